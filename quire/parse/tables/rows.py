"""What every kind of table gives: sheets, each with rows of text and perhaps a header."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

Row = list[str]
_NUMBER = re.compile(r"[-+(]?[\d.,\s%€$£]*\d[\d.,\s%€$£)]*|\d{4}-\d\d-\d\d.*")


class Sheet(NamedTuple):
    """Rows under one name."""

    name: str
    height: int
    rows: Callable[[], Iterator[Row]]  # from the first one, each time
    header: Row | None


def header_of(rows: Iterator[Row]) -> Row | None:
    """Return the first row where it names columns: words in every column, no number, no gap."""
    first, second = next(rows, None), next(rows, None)
    if not first or not second:
        return None
    while first and not first[-1].strip():
        first = first[:-1]
    if len(first) < 2 or len(set(first)) < len(first):
        return None
    named = all(cell.strip() and len(cell) < 200 and not _NUMBER.fullmatch(cell) for cell in first)
    return first if named else None
