"""Styles and numbering of Word files: which paragraph is a heading, and which number it shows.

Both are tables of a few entries that refer to each other, in a hostile file in circles, so each
search follows a bounded number of references.
"""

import re
from typing import NamedTuple

from quire.parse.office.ooxml import Attributes, attribute, is_on, number

_MAX_STEPS = 50  # styles based on each other
_MAX_LEVELS = 9
_BODY_LEVEL = 9  # the outline level of text that is no heading
_MAX_LABEL = 60  # characters of the number of a paragraph
_MAX_ROMAN, _MAX_LETTERED = 3999, 26 * 10
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"),
    (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip

#: Names of heading styles. Word writes the English ones in every language, other programs theirs.
_HEADING_NAME = re.compile(
    r"(?:heading|überschrift|titre|título|titolo|título|titlu|kop|rubrik|overskrift|otsikko|nadpis"
    r"|nagłówek|címsor|başlık|заголовок|επικεφαλίδα|標題|标题|見出し|제목)\s*+([1-9])(?!\d)",
    re.IGNORECASE,
)
_TITLE_NAMES = frozenset(("title", "titel", "titre", "título", "titolo"))
_CAPTION_NAMES = frozenset(("caption", "beschriftung", "légende", "leyenda", "didascalia"))
_CODE_NAMES = frozenset(("html preformatted", "source code", "code", "preformatted text"))
_PLACE = re.compile(r"%([1-9])")


class Style(NamedTuple):
    """A paragraph style: what it says itself, without the style that it is based on."""

    name: str = ""
    based_on: str | None = None
    outline_level: int | None = None
    num_id: str | None = None
    num_level: int = 0
    is_bold: bool = False


class Styles:
    """Reads `styles.xml`, and answers what a style means."""

    def __init__(self) -> None:
        self._styles: dict[str, Style] = {}
        self._id: str | None = None
        self._is_paragraph_style = False
        #: The style of paragraphs that name none.
        self.default: str | None = None

    def start(self, name: str, attributes: Attributes) -> None:
        """Take the start of an element."""
        if name == "style":
            self._id = attribute(attributes, "styleId") or ""
            if attribute(attributes, "type") in (None, "paragraph"):
                self._styles[self._id] = Style()
                if attribute(attributes, "default") in ("1", "true", "on"):
                    self.default = self._id
            return
        style = self._styles.get(self._id) if self._id is not None else None
        if style is None or self._id is None:
            return
        style = _with(style, name, attributes)
        self._styles[self._id] = style

    def end(self, name: str) -> None:
        """Take the end of an element."""
        if name == "style":
            self._id = None

    def characters(self, text: str) -> None:
        """Styles have no text."""

    def heading_level(self, style_id: str | None) -> int | None:
        """Return the level of a heading style, from 1."""
        for style in self._chain(style_id):
            if style.outline_level is not None:
                return style.outline_level + 1 if style.outline_level < _BODY_LEVEL else None
            if found := _HEADING_NAME.match(style.name):
                return int(found[1])
            if style.name in _TITLE_NAMES:
                return 1
        return None

    def numbering(self, style_id: str | None) -> tuple[str, int] | None:
        """Return the list and level that a style belongs to."""
        for style in self._chain(style_id):
            if style.num_id is not None:
                return style.num_id, style.num_level
        return None

    def is_caption(self, style_id: str | None) -> bool:
        """Tell whether a style is that of captions."""
        return any(style.name in _CAPTION_NAMES for style in self._chain(style_id))

    def is_code(self, style_id: str | None) -> bool:
        """Tell whether a style is that of program text."""
        return any(style.name in _CODE_NAMES for style in self._chain(style_id))

    def is_bold(self, style_id: str | None) -> bool:
        """Tell whether a style is bold."""
        return any(style.is_bold for style in self._chain(style_id))

    def _chain(self, style_id: str | None) -> list[Style]:
        found: list[Style] = []
        at = self.default if style_id is None else style_id
        while at is not None and at in self._styles and len(found) < _MAX_STEPS:
            found.append(self._styles[at])
            at = found[-1].based_on
        return found


class _Level(NamedTuple):
    start: int = 1
    form: str = "decimal"
    text: str = ""


def _with(style: Style, name: str, attributes: Attributes) -> Style:
    """Return a style with what one of its elements says."""
    value = attribute(attributes, "val")
    match name:
        case "name":
            return style._replace(name=(value or "")[:200].strip().lower())
        case "basedOn":
            return style._replace(based_on=value)
        case "outlineLvl":
            return style._replace(outline_level=number(value, _BODY_LEVEL, _BODY_LEVEL))
        case "numId":
            return style._replace(num_id=value)
        case "ilvl":
            return style._replace(num_level=number(value, 0, _MAX_LEVELS - 1))
        case "b":
            return style._replace(is_bold=is_on(attributes))
    return style


class Numbering:
    """Reads `numbering.xml`, and counts the paragraphs of each list as they come."""

    def __init__(self) -> None:
        self._levels: dict[str, dict[int, _Level]] = {}  # by abstract list
        self._links: dict[str, str] = {}  # abstract list → style that has the real one
        self._lists: dict[str, str] = {}  # list → abstract list
        self._style_lists: dict[str, str] = {}  # style → abstract list that it names
        self._starts: dict[str, dict[int, int]] = {}  # list → level → first number
        self._counts: dict[str, list[int | None]] = {}  # by abstract list
        self._abstract: str | None = None
        self._list: str | None = None
        self._level = 0

    def start(self, name: str, attributes: Attributes) -> None:
        """Take the start of an element."""
        value = attribute(attributes, "val")
        if name == "abstractNum":
            self._abstract = attribute(attributes, "abstractNumId") or ""
            self._levels[self._abstract] = {}
        elif name == "num":
            self._list = attribute(attributes, "numId") or ""
        elif name in ("lvl", "lvlOverride"):
            self._level = number(attribute(attributes, "ilvl"), 0, _MAX_LEVELS - 1)
        elif self._list is not None:
            if name == "abstractNumId":
                self._lists[self._list] = value or ""
            elif name == "startOverride":
                self._starts.setdefault(self._list, {})[self._level] = number(value, 1)
        elif self._abstract is not None:
            self._define(self._abstract, name, value)

    def _define(self, abstract: str, name: str, value: str | None) -> None:
        levels = self._levels[abstract]
        level = levels.get(self._level, _Level())
        if name == "start":
            levels[self._level] = level._replace(start=number(value, 1))
        elif name == "numFmt":
            levels[self._level] = level._replace(form=value or "decimal")
        elif name == "lvlText":
            levels[self._level] = level._replace(text=(value or "")[:_MAX_LABEL])
        elif name == "numStyleLink":
            self._links[abstract] = value or ""
        elif name == "styleLink":
            self._style_lists[value or ""] = abstract

    def end(self, name: str) -> None:
        """Take the end of an element."""
        if name == "abstractNum":
            self._abstract = None
        elif name == "num":
            self._list = None

    def characters(self, text: str) -> None:
        """Numbering has no text."""

    def is_list(self, num_id: str) -> bool:
        """Tell whether a list is defined."""
        return num_id in self._lists

    def count(self, num_id: str, level: int) -> str:
        """Count a paragraph; return the number that it shows, or nothing for a bullet."""
        abstract = self._lists[num_id]
        # One step: a style that links to another link is not followed.
        abstract = self._style_lists.get(self._links.get(abstract, ""), abstract)
        levels = self._levels.get(abstract, {})
        counts = self._counts.setdefault(abstract, [None] * _MAX_LEVELS)
        for at, first in self._starts.pop(num_id, {}).items():
            counts[at] = first - 1
        last = counts[level]
        counts[level] = levels.get(level, _Level()).start if last is None else last + 1
        counts[level + 1 :] = [None] * (_MAX_LEVELS - level - 1)
        shown = levels.get(level, _Level())
        if shown.form in ("bullet", "none"):
            return ""

        def place(found: re.Match[str]) -> str:
            at = int(found[1]) - 1
            value = counts[at]
            each = levels.get(at, _Level())
            return _written(each.start if value is None else value, each.form)

        return _PLACE.sub(place, shown.text)[:_MAX_LABEL].strip()


def _written(value: int, form: str) -> str:
    if form in ("lowerLetter", "upperLetter") and 0 < value <= _MAX_LETTERED:
        letters = chr(ord("a") + (value - 1) % 26) * ((value - 1) // 26 + 1)
        return letters.upper() if form == "upperLetter" else letters
    if form in ("lowerRoman", "upperRoman") and 0 < value <= _MAX_ROMAN:
        roman = ""
        for worth, letters in _ROMAN:
            roman += letters * (value // worth)
            value %= worth
        return roman.upper() if form == "upperRoman" else roman
    return f"{value:02}" if form == "decimalZero" else str(value)
