"""Tells which rows of a table are headers, where the format does not say it."""

import re
from collections.abc import Sequence

#: Rows of headers above each other; a table with more is one of text.
MAX_HEADER_ROWS = 4
_MAX_NAME = 200  # characters of the name of a column
_LOOKED_AT = 30  # rows

_NUMBER = re.compile(
    r"[-+–−(\[]?\s?(?:[$€£¥]|[A-Z]{3}\s)?\s?[-–−(]?\d[\d.,'\u00a0\u202f ]*+(?:[eE][-+]?\d{1,4})?"
    r"\s?(?:[%‰€$£¥)\]]|bps|pp|x|m|bn|k){0,3}"
    r"|\d{4}-\d\d-\d\d(?:[ T].*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}"
)
_YEAR = re.compile(r"(?:FY\s?)?(?:19|20)\d\d(?:\s?[/–-]\s?\d{2,4})?[A-Z]?")


def is_number(text: str) -> bool:
    """Tell whether a cell holds a number, an amount or a date."""
    return len(text) < 50 and _NUMBER.fullmatch(text) is not None


def count(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of header rows at the top of a table.

    Headers are names and years above numbers. In a table of words they are the first row, if it
    has a name of its own for every column.
    """
    filled = [[cell.strip() for cell in row] for row in rows[:_LOOKED_AT]]
    if len(filled) < 2:
        return 0
    first_numbers = next(
        (at for at, row in enumerate(filled) if _has_numbers(row, filled[at + 1 :])), None
    )
    if first_numbers is None:
        return int(_names_all(filled))
    if first_numbers > MAX_HEADER_ROWS:
        return int(_names_all(filled))
    found = 0
    for row in filled[:first_numbers]:
        if not any(row) or (found and _is_section(row)) or max(map(len, row)) >= _MAX_NAME:
            break
        found += 1
    return 0 if found == 1 and _is_section(filled[0]) else found


def _is_section(row: Sequence[str]) -> bool:
    return not any(row[1:])


def starts_table(above: Sequence[Sequence[str]], below: Sequence[Sequence[str]]) -> bool:
    """Tell whether the rows after an empty row are a table of their own, with other headers."""
    if not count(below) or sum(map(bool, map(str.strip, below[0]))) < 2:
        return False
    has_numbers = any(is_number(cell.strip()) for row in below[1:_LOOKED_AT] for cell in row)
    return has_numbers or _used(above) != _used(below)


def _used(rows: Sequence[Sequence[str]]) -> set[int]:
    return {at for row in rows[-_LOOKED_AT:] for at, cell in enumerate(row) if cell.strip()}


def _has_numbers(row: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    numbers = [at for at, cell in enumerate(row) if is_number(cell)]
    if not numbers:
        return False
    # Years in all columns but the first are the names of these columns.
    are_years = all(_YEAR.fullmatch(row[at]) for at in numbers)
    if not are_years or is_number(row[0]):
        return True
    return len(numbers) == 1 and not _has_other_numbers(below, numbers[0])


def _has_other_numbers(rows: Sequence[Sequence[str]], column: int) -> bool:
    cells = [row[column] for row in rows if column < len(row) and is_number(row[column])]
    return any(not _YEAR.fullmatch(cell) for cell in cells)


def _names_all(rows: Sequence[Sequence[str]]) -> bool:
    names = list(rows[0])
    while names and not names[-1]:
        names.pop()
    width = max(len(_trimmed(row)) for row in rows)
    if len(names) < max(2, width):
        return False
    named = names if names[0] else names[1:]
    return all(named) and len(set(names)) == len(names) and max(map(len, names)) < _MAX_NAME


def _trimmed(row: Sequence[str]) -> list[str]:
    found = list(row)
    while found and not found[-1]:
        found.pop()
    return found
