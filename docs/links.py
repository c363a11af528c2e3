"""Follow every link of a folder of HTML pages: to files and anchors that exist, and nothing fetched from elsewhere."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["check"]

_FETCHES = {("script", "src"), ("img", "src"), ("source", "srcset"), ("iframe", "src")}


class _Page(HTMLParser):
    """The anchors of a page, where it leads, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.leads: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "link" and given.get("rel") in ("stylesheet", "preconnect", "icon", "preload"):
            self.loads.add(given.get("href", ""))
        elif tag == "a" and "href" in given:
            self.leads.add(given["href"])
        self.loads |= {value for name, value in given.items() if (tag, name) in _FETCHES}


def check(folder: Path) -> list[str]:
    """One line for every link that leads nowhere and every load from another host."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    lines = []
    for path, page in sorted(pages.items()):
        name = path.relative_to(folder)
        lines += [f"{name}: loads {url}" for url in sorted(page.loads) if urlsplit(url).netloc]
        lines += [f"{name}: {url} leads nowhere" for url in sorted(page.leads | page.loads) if _dead(path, url, pages)]
    return lines


def _dead(path: Path, url: str, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(url)
    if parts.scheme or parts.netloc or not url or path.name == "404.html":
        return False
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return True
    fragment = unquote(parts.fragment)
    return bool(fragment) and target in pages and fragment not in pages[target].anchors | {"__skip", "top"}
