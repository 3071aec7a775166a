"""A page as one HTML file: needs no network, runs no script, light or dark as the reader's system.

Used for every run's REPORT.html and for compare.html.
"""

import re
from html import escape
from pathlib import Path

# Nothing may be fetched and no script may run, whatever ends up in a cell.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
CSS = Path(__file__).with_name("html.css")


def document(title: str, body: str, css: str = "") -> str:
    """The whole file around `body`; `css` comes after what every page has."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>
{CSS.read_text(encoding="utf-8")}{css}</style>
</head>
<body>
{body}
</body>
</html>
"""


def contents(titles: list[str]) -> str:
    """Links to the sections of these titles."""
    links = "".join(f'<li><a href="#{anchor(title)}">{escape(title)}</a></li>' for title in titles)
    return f'<nav aria-label="Sections"><ul>{links}</ul></nav>'


def anchor(title: str) -> str:
    """The id of the heading with this title."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def wide(label: str) -> str:
    """The start of a box, ended by </div>, in which a wide table scrolls by itself."""
    return f'<div class="wide" role="region" tabindex="0" aria-label="{escape(label)}">'


def figure(caption: str, svg: str) -> str:
    return f"<figure>\n<figcaption>{escape(caption)}</figcaption>\n{svg}\n</figure>\n"
