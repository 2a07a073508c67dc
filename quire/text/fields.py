"""The searchable fields beside chunks: first lines of pages, names and words of documents.

All are analysed as for PostgreSQL's `simple` configuration (`words.tsvector_input`), so both
databases have the same entries and scores.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from quire.text import words
from quire.text.language import STOP_WORDS

_HEAD_LINES, _HEAD_CHARS = 4, 240
#: Pages have few lines before the first four that are not empty; the rest is not looked at.
_HEAD_SEARCHED = 4_000
#: Different words of a document that are indexed: those on most pages.
MAX_WORDS = 50_000
_MAX_COUNTED = 4 * MAX_WORDS
_MAX_NAME_WORDS = 200
#: A word on this many pages has an entry `word~N` for each N that it reaches.
STEPS = (2, 4, 8, 16)
#: The number of pages that a word counts for, by the entries that it has.
PAGES_OF_STEP = (1, 3, 6, 12, 24)
#: Marks entries of the name.
NAME = "="
_PARTS = re.compile(r"[^\W\d_]+|\d+")
_WHOLE = re.compile(r"[^\W_]+")


class PageEntries(NamedTuple):
    """What the index of documents has of the pages of one document."""

    length: int  # words of all pages, each once a page
    entries: list[str]


def heads(text: str, language: str) -> str:
    """Return the words of the first lines of a page, separated by spaces."""
    lines = [line.strip() for line in text[:_HEAD_SEARCHED].splitlines()]
    first = " \n".join([line for line in lines if line][:_HEAD_LINES])[:_HEAD_CHARS]
    return words.tsvector_input(first, language)


def name_parts(name: str) -> list[str]:
    """Split a name at case, digits and punctuation; whole parts and neighbours are kept too.

    `AcmeWorks-10K` gives acmeworks, acme, works, 10k, 10, works10 and k.
    """
    found: list[str] = []
    last = ""
    for whole in _WHOLE.findall(name):
        found.append(whole)
        for part in _PARTS.findall(whole):
            for piece in _split_case(part):
                found.append(piece)
                if last and last[0].isdigit() != piece[0].isdigit():
                    found.append(last + piece)
                last = piece
    return list(dict.fromkeys(part.lower() for part in found))[:_MAX_NAME_WORDS]


def _split_case(part: str) -> Iterator[str]:
    """Split letters where a word begins: at a capital after a small letter or before one."""
    start = 0
    for at in range(1, len(part)):
        follows = part[at + 1 : at + 2].islower() or part[at - 1].islower()
        if part[at].isupper() and follows:
            yield part[start:at]
            start = at
    yield part[start:]


def name_words(name: str, metadata: Mapping[str, Any]) -> str:
    """Return the words of a document's name and metadata values, separated by spaces."""
    values = [str(each) for each in metadata.values() if isinstance(each, str | int | float)]
    stem, dot, suffix = name.rpartition(".")
    is_suffix = bool(dot and stem) and suffix.isalnum() and len(suffix) <= 5
    parts = name_parts(stem if is_suffix else name)
    parts += [word for value in values for word in words.split_words(value[:2_000])]
    # Names have no language that could be told: stemmed as English, as queries are.
    found = words.tsvector_input(" ".join(parts), "").split()
    return " ".join(list(dict.fromkeys(found))[:_MAX_NAME_WORDS])


class PageWords:
    """Counts on how many pages each word is, in bounded memory."""

    def __init__(self) -> None:
        self._pages: Counter[str] = Counter()
        self._length = 0

    def add(self, text: str, language: str) -> None:
        """Count a page."""
        small = STOP_WORDS.get(language, STOP_WORDS["en"])
        distinct = [word for word in dict.fromkeys(words.split_words(text)) if word not in small]
        found = set(words.tsvector_input(" ".join(distinct), language).split())
        self._pages.update(found)
        self._length += len(found)
        if len(self._pages) > _MAX_COUNTED:
            self._pages = Counter(dict(self._most_frequent(MAX_WORDS)))

    def _most_frequent(self, most: int) -> list[tuple[str, int]]:
        return sorted(self._pages.items(), key=lambda item: (-item[1], item[0]))[:most]

    def entries(self) -> PageEntries:
        """Return the entries of the words of all pages."""
        kept = self._pages.items()
        if len(kept) > MAX_WORDS:
            kept = dict(self._most_frequent(MAX_WORDS)).items()
        found = [entry for word, count in kept for entry in _entries_of(word, count)]
        return PageEntries(self._length, found)


def name_entries(name: str) -> list[str]:
    """Return the entries of the words that `name_words` has found."""
    return [NAME + word for word in name.split()]


def text_entries(word: str) -> list[str]:
    """Return the entries that a word may have, by falling number of documents."""
    return [word, *(f"{word}~{step}" for step in STEPS)]


def _entries_of(word: str, pages: int) -> Iterator[str]:
    yield word
    for step in STEPS:
        if pages < step:
            return
        yield f"{word}~{step}"
