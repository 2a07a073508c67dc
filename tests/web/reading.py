"""Reads a page as a person without JavaScript does: its text, links, forms and headings."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from fastapi.testclient import TestClient

VOID = frozenset({"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source"})
LABELLED = frozenset({"input", "select", "textarea", "progress"})
HTML = {"Accept": "text/html,application/xhtml+xml"}


@dataclass
class Form:
    """A form with the fields that it would send, and the names of its buttons."""

    action: str
    method: str
    enctype: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    buttons: list[dict[str, str]] = field(default_factory=list)


class Page(HTMLParser):
    """One page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.forms: list[Form] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.headings: list[int] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.faults: list[str] = []
        self.words: list[str] = []
        self.landmarks: list[str] = []
        self._open: list[str] = []
        self._select: str | None = None
        self.feed(text)
        self.close()

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def form(self, action: str) -> Form:
        [found] = [each for each in self._posting() if each.action.partition("?")[0] == action]
        return found

    def has_form(self, action: str) -> bool:
        return any(each.action.partition("?")[0] == action for each in self._posting())

    def _posting(self) -> list[Form]:
        return [each for each in self.forms if each.method == "post"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.attributes += [(tag, name, value) for name, value in given.items()]
        if tag not in VOID:
            self._open.append(tag)
        if "id" in given:
            self.ids.append(given["id"])
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append(int(tag[1]))
        if tag in ("main", "nav", "header"):
            self.landmarks.append(tag)
        if tag == "a":
            self.links.append(given.get("href", ""))
        self._check(tag, given)
        self._fill(tag, given)

    def _check(self, tag: str, given: dict[str, str]) -> None:
        is_named = "label" in self._open or "aria-label" in given or "aria-labelledby" in given
        is_shown = tag in LABELLED and given.get("type") != "hidden"
        if is_shown and not is_named:
            self.faults.append(f"{tag} {given} has no label")
        if tag == "img" and "alt" not in given:
            self.faults.append(f"img {given} has no alt")
        if tag == "svg" and "aria-hidden" not in given and "aria-label" not in given:
            self.faults.append(f"svg {given} says nothing")
        if tag == "script" and "src" not in given:
            self.faults.append("a script is inline")

    def _fill(self, tag: str, given: dict[str, str]) -> None:
        if tag == "form":
            form = Form(
                given.get("action", ""), given.get("method", "get"), given.get("enctype", "")
            )
            self.forms.append(form)
        if not self.forms or "form" not in self._open:
            return
        fields = self.forms[-1].fields
        if tag == "input" and "name" in given and given.get("type") not in ("checkbox", "file"):
            fields.append((given["name"], given.get("value", "")))
        if tag == "select":
            self._select = given.get("name")
        if tag == "option" and self._select:
            self._choose(fields, given)
        if tag == "button":
            self.forms[-1].buttons.append(given)

    def _choose(self, fields: list[tuple[str, str]], given: dict[str, str]) -> None:
        name = self._select or ""
        known = [at for at, each in enumerate(fields) if each[0] == name]
        if not known:
            fields.append((name, given.get("value", "")))
        elif "selected" in given:
            fields[known[0]] = (name, given.get("value", ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = None
        while self._open and (last := self._open.pop()) != tag:
            self.faults.append(f"{last} is not closed before {tag}")

    def handle_data(self, data: str) -> None:
        if not {"script", "style", "title"} & set(self._open):
            self.words.append(data)


class Visitor:
    """Somebody with a browser that runs no scripts."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.answer: Any = None

    def get(self, address: str, status: int = 200) -> Page:
        """Open an address; redirects are followed."""
        self.answer = self.client.get(address, headers=HTML)
        while self.answer.is_redirect:
            self.answer = self.client.get(self.answer.headers["location"], headers=HTML)
        assert self.answer.status_code == status, (address, self.answer.text[-2000:])
        return Page(self.answer.text)

    def send(
        self, page: Page, action: str, status: int = 200, files: Any = None, **values: Any
    ) -> Page:
        """Fill a form of a page in, send it, and go where that leads."""
        form = page.form(action)
        sent: dict[str, Any] = {}
        for name, value in [*form.fields, *values.items()]:
            sent[name] = (
                value if name in values or name not in sent else [*_list(sent[name]), value]
            )
        headers = {**HTML, "Sec-Fetch-Site": "same-origin"}
        self.answer = self.client.post(form.action, data=sent, files=files, headers=headers)
        if self.answer.is_redirect:
            return self.get(self.answer.headers["location"], status)
        assert self.answer.status_code == status, self.answer.text[-2000:]
        return Page(self.answer.text)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
