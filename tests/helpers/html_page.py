"""A page as a test looks at it."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Notes every tag with its attributes, and that tags close in order."""

    EMPTY = ("meta", "br", "line", "polygon", "polyline", "circle")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def needs_nothing_from_outside(self) -> None:
        """Assert that nothing is fetched and nothing can run."""
        for tag, attributes in self.tags:
            assert tag not in ("script", "link", "iframe", "object", "embed", "img", "base", "form")
            for name, value in attributes.items():
                assert not name.startswith("on"), (tag, name)
                if name in ("src", "srcset", "href", "xlink:href", "data", "action"):
                    assert tag in ("a", "use"), (tag, name)
                    assert (value or "")[:1] == "#", (tag, value)
        css = "".join(self.texts["style"])
        assert "url(" not in css
        assert "@import" not in css
        policies = [m["content"] for m in self.all("meta") if "http-equiv" in m]
        assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
