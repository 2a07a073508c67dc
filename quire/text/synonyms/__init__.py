"""Lists of words that mean the same: CSV, a row for each meaning.

`capex,capital expenditure` lets either ask for the other. A line that begins with `#` is a comment.
"""

import csv
import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources

from quire.errors import BadInput
from quire.text import words
from quire.text.language import STOP_WORDS

#: Limits of a list: characters, rows, phrases in a row, and words in a phrase.
MAX_CHARS, MAX_ROWS, MAX_PHRASES, MAX_WORDS = 100_000, 2_000, 20, 8
#: Lists that are part of Quire.
STARTERS = ("finance",)
#: Phrases that are found for a query, about: more would not be asked for.
MAX_FOUND = 40
_LISTS_KEPT = 16

#: Stems of a phrase → the rows that have it.
Synonyms = Mapping[tuple[str, ...], Sequence[Sequence[str]]]


def starter(name: str) -> str:
    """Return a list that is part of Quire."""
    if name not in STARTERS:
        raise BadInput(f"synonyms: no list is named {name[:40]!r} (known: {', '.join(STARTERS)}).")
    return resources.files(__name__).joinpath(f"{name}.csv").read_text(encoding="utf-8")


def parse(text: str) -> list[list[str]]:
    """Return the rows of a list, or say what is wrong with it."""
    if len(text) > MAX_CHARS:
        raise _refusal(f"{len(text):,} characters (at most {MAX_CHARS:,})")
    lines = ["" if line.lstrip().startswith("#") else line for line in text.splitlines()]
    reader = csv.reader(lines, strict=True)
    rows = []
    try:
        for row in reader:
            if phrases := _phrases(row, reader.line_num):
                rows.append(phrases)
    except csv.Error as error:
        raise _refusal(f"line {reader.line_num} is not CSV ({error})") from error
    if not 0 < len(rows) <= MAX_ROWS:
        raise _refusal(f"{len(rows):,} rows (expected 1 to {MAX_ROWS:,})")
    return rows


def _phrases(row: Sequence[str], line: int) -> list[str]:
    split = list(dict.fromkeys(" ".join(words.split_words(each)) for each in row))
    found = [each for each in split if each]
    if not found:
        return []
    if not 2 <= len(found) <= MAX_PHRASES:
        raise _refusal(
            f"line {line} has {len(found)} phrases (expected 2 to {MAX_PHRASES}, with commas "
            "between)"
        )
    if longest := next((each for each in found if len(each.split()) > MAX_WORDS), None):
        raise _refusal(f"line {line}: {longest[:60]!r} has more than {MAX_WORDS} words")
    return found


def _refusal(reason: str) -> BadInput:
    return BadInput(f"synonyms: {reason}. Nothing was changed.")


def index(rows: Iterable[Sequence[str]]) -> Synonyms:
    """Index rows by the stems of each of their phrases."""
    found: dict[tuple[str, ...], list[Sequence[str]]] = {}
    for row in rows:
        for phrase in row:
            found.setdefault(_key(phrase), []).append(row)
    found.pop((), None)
    return found


@lru_cache(_LISTS_KEPT)
def indexed(text: str) -> Synonyms:
    """Index a list that was parsed before it was stored."""
    return index(parse(text))


def _key(phrase: str) -> tuple[str, ...]:
    kept = [word for word in words.split_words(phrase) if word not in STOP_WORDS["en"]]
    return tuple(words.stem(kept, ""))


def find(asked: Sequence[str], lists: Sequence[Synonyms]) -> dict[str, str]:
    """Return phrases that mean the same as some of the words asked for, each with these words.

    Of phrases that begin at the same word, the longest is meant: cost of sales are no sales.
    """
    found: dict[str, str] = {}
    stems = tuple(words.stem(list(asked), "")) if lists else ()
    start = 0
    while start < len(stems):
        stop = next(
            (
                each
                for each in range(min(start + MAX_WORDS, len(stems)), start, -1)
                if any(stems[start:each] in some for some in lists)
            ),
            start,
        )
        mine = stems[start:stop]
        for row in itertools.chain(*(some.get(mine, ()) for some in lists)):
            others = (phrase for phrase in row if _key(phrase) != mine)
            found |= dict.fromkeys(others, " ".join(asked[start:stop])) | found
            if len(found) >= MAX_FOUND:
                return found
        start = max(stop, start + 1)
    return found
