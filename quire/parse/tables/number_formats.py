"""Number formats of Excel: how a value is shown, for the parts of the language that files use.

A format that is not understood, such as one with conditions or fractions, shows the value plainly.
A full date is written as ISO 8601 writes it, because 03/02/2026 means two days.
"""

import datetime
import decimal
import functools
import re
from typing import Any, NamedTuple

from quire.parse.office.ooxml import Attributes, attribute, number

_MAX_CODE = 500  # characters
_MAX_DECIMALS = 30
_MAX_STYLES = 65_536
_LARGEST = 1e15  # beyond it a number has no decimals

_BUILT_IN = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00",
    14: "yyyy-mm-dd", 15: "yyyy-mm-dd", 16: "d-mmm", 17: "mmm-yy", 18: "h:mm AM/PM",
    19: "h:mm:ss AM/PM", 20: "h:mm", 21: "h:mm:ss", 22: "yyyy-mm-dd h:mm", 37: "#,##0;(#,##0)",
    38: "#,##0;(#,##0)", 39: "#,##0.00;(#,##0.00)", 40: "#,##0.00;(#,##0.00)",
    41: "#,##0;(#,##0);-", 42: "$#,##0;($#,##0);$-", 43: "#,##0.00;(#,##0.00);-",
    44: "$#,##0.00;($#,##0.00);$-",
}  # fmt: skip

_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*+)"?|\\(?P<escaped>.)|[_*](?:.|\Z)|\[(?P<bracket>[^\]]*+)\]?'
    r"|(?P<exponent>[Ee][+-]0++)|(?P<digits>[0#?][0#?,.]*+|\.[0#?]++)|(?P<percent>%)|(?P<other>.)",
    re.DOTALL,
)
_DATE_TOKEN = re.compile(
    r'"([^"]*+)"?|\\(.)|[_*](?:.|\Z)|\[[^\]]*+\]?|(AM/PM|A/P|y++|m++|d++|h++|s++(?:\.0++)?)|(.)',
    re.IGNORECASE | re.DOTALL,
)


class _Section(NamedTuple):
    """How numbers of one sign are shown."""

    prefix: str = ""
    digits: str = ""
    suffix: str = ""
    percents: int = 0
    exponent: str = ""


class NumberFormat:
    """One number format."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._sections = [_section(each) for each in _split(code)]

    def text(self, value: Any) -> str | None:
        """Return a value as it is shown, or None if this format does not say how."""
        if isinstance(value, datetime.date | datetime.time):
            return _date_text(self._code, value)
        if not isinstance(value, int | float):
            return None
        sections = self._sections
        at = 2 if value == 0 and len(sections) > 2 else int(value < 0 and len(sections) > 1)
        section = sections[at]
        if section is None:
            return None
        sign = "-" if value < 0 and not at else ""
        return _number_text(section, abs(value), sign)


def _split(code: str) -> list[str]:
    """Split a format at the semicolons that are not quoted."""
    found = [""]
    for token in _TOKEN.finditer(code[:_MAX_CODE]):
        if token[0] == ";":
            found.append("")
        else:
            found[-1] += token[0]
    return found[:4]


def _section(code: str) -> _Section | None:
    found = _Section()
    for token in _TOKEN.finditer(code):
        kind, text = token.lastgroup, token[token.lastgroup or 0]
        if kind == "digits":
            if found.digits:
                return None  # such as a telephone number
            found = found._replace(digits=text)
        elif kind == "exponent":
            found = found._replace(exponent=text)
        elif kind is not None:
            if (literal := _literal(kind, text)) is None:
                return None
            found = found._replace(percents=found.percents + (kind == "percent"))
            place = "suffix" if found.digits else "prefix"
            found = found._replace(**{place: getattr(found, place) + literal})
    return found


def _literal(kind: str, text: str) -> str | None:
    """Return the characters that a part of a format shows, or None if it is not understood."""
    if kind == "bracket":
        if text.startswith("$"):  # a currency, and where it is used
            return text[1:].partition("-")[0]
        is_colour = text.isalpha() and len(text) > 2  # and not a condition, or hours
        return "" if is_colour else None
    if kind == "other" and (text in "/@" or text.isalpha()):
        return None  # a fraction, a text, General or a date
    return text


def _number_text(section: _Section, value: float, sign: str) -> str | None:
    if not section.digits:
        return f"{section.prefix}{section.suffix}".strip() or None
    whole, _, fraction = section.digits.partition(".")
    decimals = sum(char in "0#?" for char in fraction)
    if section.exponent or decimals > _MAX_DECIMALS or not value < _LARGEST:
        return None
    thousands = len(section.digits) - len(section.digits.rstrip(","))
    number = decimal.Decimal(repr(value)).scaleb(2 * section.percents - 3 * thousands)
    step = decimal.Decimal(1).scaleb(-decimals)
    with decimal.localcontext(prec=100):
        number = number.quantize(step, decimal.ROUND_HALF_UP)
    is_grouped = "," in whole.rstrip(",")
    text = f"{number:,f}" if is_grouped else f"{number:f}"
    integer, _, rest = text.partition(".")
    fraction = fraction.rstrip(",")
    optional = len(fraction) - len(fraction.rstrip("#"))
    while optional and rest.endswith("0"):
        rest, optional = rest[:-1], optional - 1
    integer = integer.zfill(min(whole.count("0"), _MAX_DECIMALS))
    if not number:
        sign = ""
    shown = f"{integer}.{rest}" if rest else integer
    return f"{sign}{section.prefix}{shown}{section.suffix}".strip()


def _date_text(code: str, value: datetime.date | datetime.time) -> str | None:
    tokens = [token[3].lower() for token in _DATE_TOKEN.finditer(code[:_MAX_CODE]) if token[3]]
    kinds = {token[0] for token in tokens}
    if not kinds or {"y", "m", "d"} <= kinds:
        return None  # plainly, which is ISO 8601
    moment = datetime.datetime(1900, 1, 1)  # noqa: DTZ001 (a cell has no time zone)
    if isinstance(value, datetime.time):
        moment = datetime.datetime.combine(moment, value)
    elif isinstance(value, datetime.datetime):
        moment = value
    else:
        moment = datetime.datetime.combine(value, moment.time())
    is_half_day = any(token in ("am/pm", "a/p") for token in tokens)
    shown = []
    before = ""
    for token in _DATE_TOKEN.finditer(code.partition(";")[0][:_MAX_CODE]):
        field = (token[3] or "").lower()
        if not field:
            shown.append(token[1] or token[2] or token[4] or "")
            continue
        shown.append(_field(field, moment, before, is_half_day=is_half_day))
        before = field
    return "".join(shown).strip()


def _field(field: str, moment: datetime.datetime, before: str, *, is_half_day: bool) -> str:
    if field in ("am/pm", "a/p"):
        return "AM" if moment.hour < 12 else "PM"
    is_long = len(field) > 1
    match field[0]:
        case "y":
            return f"{moment:%Y}" if len(field) > 2 else f"{moment:%y}"
        case "m" if before[:1] == "h":
            return f"{moment.minute:02}" if is_long else str(moment.minute)
        case "m":
            names = {3: f"{moment:%b}", 4: f"{moment:%B}", 5: f"{moment:%b}"[:1]}
            plain = f"{moment.month:02}" if is_long else str(moment.month)
            return names.get(len(field), plain)
        case "d":
            names = {3: f"{moment:%a}", 4: f"{moment:%A}"}
            return names.get(len(field), f"{moment.day:02}" if is_long else str(moment.day))
        case "h":
            hour = (moment.hour % 12 or 12) if is_half_day else moment.hour
            return f"{hour:02}" if is_long else str(hour)
    return f"{moment.second:02}" if is_long else str(moment.second)


class NumberFormats:
    """Reads `styles.xml`: the format of each style of cells."""

    def __init__(self) -> None:
        self._codes = dict(_BUILT_IN)
        self._cells: list[int] = []
        self._in_cells = False

    def start(self, name: str, attributes: Attributes) -> None:
        """Take the start of an element."""
        if name == "numFmt":
            format_id = number(attribute(attributes, "numFmtId"), 0)
            self._codes[format_id] = (attribute(attributes, "formatCode") or "")[:_MAX_CODE]
        elif name == "cellXfs":
            self._in_cells = True
        elif name == "xf" and self._in_cells and len(self._cells) < _MAX_STYLES:
            self._cells.append(number(attribute(attributes, "numFmtId"), 0))

    def end(self, name: str) -> None:
        """Take the end of an element."""
        if name == "cellXfs":
            self._in_cells = False

    def characters(self, text: str) -> None:
        """Styles have no text."""

    def of_cells(self) -> list[NumberFormat | None]:
        """Return the format of each style, or None for plain values."""
        made = functools.cache(NumberFormat)
        codes = [self._codes.get(format_id, "General") for format_id in self._cells]
        return [None if code in ("", "General", "@") else made(code) for code in codes]
