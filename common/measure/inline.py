"""A figure's SVG as a part of a web page: colours of the page, ids of its own, tips that show."""

import re
from pathlib import Path
from xml.etree import ElementTree

from common.measure import figures

# Room below the figure for what the point under the pointer says.
SAID = 20
# matplotlib's own colours for lines, in order; those of the page can be read on dark ground too.
LINES = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b")
COLORS = {
    "#ffffff": "var(--paper)",
    "#000000": "var(--ink)",
    figures.INK: "var(--ink)",
    figures.PAYS: "var(--pays)",
    figures.EVEN: "var(--even)",
    figures.LOSES: "var(--loses)",
    **{color: f"var(--s{index})" for index, color in enumerate(LINES)},
}
IN_XML = re.compile(r"\{[^}]*\}")


def svg(path: Path, name: str, described: str) -> str:
    """The figure as an <svg> element in which every id starts with `name`."""
    # The file is one this project drew.
    root = ElementTree.parse(path).getroot()  # noqa: S314
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    for element in root.iter():
        element.tag = IN_XML.sub("", element.tag)
        known = {IN_XML.sub("", key): value for key, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update({key: _value(key, known[key], name) for key in known})
    for group in root.iter("g"):
        if group.get("class") == figures.TIPS:
            _tell(group, root)
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.attrib |= {"role": "img", "aria-label": described}
    return ElementTree.tostring(root, encoding="unicode").strip()


def _value(key: str, value: str, name: str) -> str:
    """An attribute with the page's colours, no fonts, and ids that start with `name`."""
    if key == "style":
        value = re.sub(r"font-family: [^;]*;? ?", "", value)
        return re.sub("#[0-9a-f]{6}", lambda color: COLORS.get(color[0], color[0]), value)
    if key == "id":
        return f"{name}-{value}"
    return re.sub(r"^(url\(#|#)", rf"\1{name}-", value)


def _tell(tips: ElementTree.Element, root: ElementTree.Element) -> None:
    """Let each tip also say its words below the figure, at once and where a finger taps it."""
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    root.set("viewBox", f"{left:g} {top:g} {width:g} {height + SAID:g}")
    for index, tip in enumerate(list(tips)):
        tip.set("tabindex", "-1")
        said = ElementTree.Element("text", {"class": "said", "x": "4", "y": f"{height + 14:g}"})
        said.set("style", "stroke: none; font-size: 12px; pointer-events: none")
        said.text = tip.findtext("title")
        tips.insert(2 * index + 1, said)
