"""Pages as tests see them: their elements, and what they would load."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
LOADING_TAGS = ("script", "link", "iframe", "object", "embed", "base", "form")
LOADING_ATTRIBUTES = ("src", "href", "xlink:href", "srcset", "action", "data", "poster")


class Elements(HTMLParser):
    """Every element with its attributes, its text, and the ids of the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found = []
        self.open = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        element = (tag, dict(attributes), [])
        self.found.append(element)
        self.open.append(element)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes), []))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for _, _, text in self.open:
            text.append(data)

    def named(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, "".join(text)) for name, attributes, text in self.found if name == tag]

    def words_of_plots(self) -> dict[str, str]:
        """The text alternatives of all plots by id; each plot must have two, a short and a long."""
        words = {a["id"]: text for tag in ("title", "desc") for a, text in self.named(tag) if a}
        for attributes, _ in self.named("svg"):
            assert attributes["role"] == "img"
            title, text = attributes["aria-labelledby"].split()
            assert words[title] and words[text]
        return words


def loads(page: str) -> list[str]:
    """All that a page would load, run or send; nothing in a page that needs nothing but itself."""
    elements = Elements(page)
    found = [tag for tag in LOADING_TAGS if elements.named(tag)]
    for _, attributes, _ in elements.found:
        targets = [attributes[name] for name in LOADING_ATTRIBUTES if attributes.get(name)]
        found += [target for target in targets if not target.startswith(("#", "data:image/"))]
        found += [name for name in attributes if name.startswith("on")]
    found += re.findall(r"url\((?!#)[^)]*\)", page)
    found += re.findall("@import", page)
    addresses = set(re.findall(r"https?://[^\"'\s<>]+", page))
    return found + sorted(addresses - NAMESPACES)


def dangling(page: str) -> list[str]:
    """Links within a page and references of its elements that lead nowhere, and ids used twice."""
    elements = Elements(page)
    ids = [attributes["id"] for _, attributes, _ in elements.found if "id" in attributes]
    used = {a["href"][1:] for a, _ in elements.named("a") if "href" in a}
    used |= {a["xlink:href"][1:] for _, a, _ in elements.found if "xlink:href" in a}
    used |= set(re.findall(r"url\(#([^)]+)\)", page))
    used |= {i for _, a, _ in elements.found for i in a.get("aria-labelledby", "").split()}
    return sorted(used - set(ids)) + sorted({i for i in ids if ids.count(i) > 1})


def assert_for_every_reader(page: str) -> None:
    """A language, any window, dark, print and keyboard, and headings that leave no level out."""
    assert '<html lang="en">' in page
    assert 'name="viewport"' in page
    for rule in ("prefers-color-scheme: dark", "@media print", ":focus-visible"):
        assert rule in page
    levels = [int(tag[1]) for tag, _, _ in Elements(page).found if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
