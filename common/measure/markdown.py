"""REPORT.md as REPORT.html: the same words, tables and figures in one file.

A report may hold what a server logged, so tags in it are shown as text, and the only pictures are
the run's own figures.
"""

import re
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from common.measure import html, inline

CSS = Path(__file__).with_name("report.css")
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
FIGURE = re.compile(r"figures/([\w-]+)\.svg")
# Characters from which a cell may wrap.
LONG = 60
BREAK = "<br>"
"""the end of a line inside a cell, as page.table writes it"""


def document(text: str, folder: Path) -> str:
    """The page of this report; its figures are read from `folder`."""
    tokens = MARKDOWN.parse(text)
    headings = [(one.tag, token) for one, token in pairwise(tokens) if one.type == "heading_open"]
    title = next((token.content for tag, token in headings if tag == "h1"), "Report")
    nav = html.contents([token.content for tag, token in headings if tag == "h2"])
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if before.type == "td_open" and len(token.content) > LONG:
            before.attrSet("class", "long")
        if before.tag == "h2" and before.type == "heading_open":
            before.attrSet("id", html.anchor(token.content))
        if token.children and _fill(token, token.children, folder):
            before.hidden = after.hidden = True
    found: list[Token] = []
    for token in tokens:
        if token.type == "table_open":
            found.append(_raw(html.wide("Table")))
        found.append(token)
        if token.type == "table_close":
            found.append(_raw("</div>\n"))
        if token.type == "heading_close" and token.tag == "h1":
            found.append(_raw(f"{nav}\n"))
    body = MARKDOWN.renderer.render(found, MARKDOWN.options, {})
    return html.document(title, f"<main>\n{body}</main>", CSS.read_text(encoding="utf-8"))


def _fill(token: Token, children: list[Token], folder: Path) -> bool:
    """Put lines in place of a cell's breaks, and a figure in place of its link; was it a figure?"""
    path = _figure(children[0], folder) if len(children) == 1 else None
    if path is None:
        token.children = [part for child in children for part in _plain(child)]
        return False
    said = children[0].content
    token.children = [_raw(html.figure(said, inline.svg(path, path.stem, said)))]
    return True


def _figure(token: Token, folder: Path) -> Path | None:
    name = FIGURE.fullmatch(str(token.attrGet("src")))
    path = folder / "figures" / f"{name[1]}.svg" if name else None
    return path if token.type == "image" and path and path.is_file() else None


def _plain(token: Token) -> list[Token]:
    """A piece of text without pictures, its lines apart."""
    if token.type == "image":
        return [Token("text", "", 0, content=f"![{token.content}]({token.attrGet('src')})")]
    if token.type != "text":
        return [token]
    found: list[Token] = []
    for line in token.content.split(BREAK):
        found += [Token("hardbreak", "br", 0), Token("text", "", 0, content=line)]
    return found[1:]


def _raw(markup: str) -> Token:
    """Markup of ours among what the report says."""
    return Token("html_block", "", 0, content=markup)
