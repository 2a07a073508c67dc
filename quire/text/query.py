"""Parses a query into terms: words, phrases in quotes, and fields such as `name:` and `year:`.

Words that only make a text a question are left out if others remain. FY2018 also asks for 2018,
because tables and file names have the bare year. Neighbouring words are also joined, for names that
are written as one word.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from quire.errors import BadInput
from quire.text import synonyms, words
from quire.text.language import STOP_WORDS

#: Maximum characters of a query, and maximum number of its terms: the first ones.
MAX_CHARS, MAX_TERMS = 10_000, 32
#: Weight of a word that only a synonym asks for, and how many of these count.
SYNONYM_WEIGHT, MAX_SYNONYMS = 0.5, 16
FIELDS = ("name", "type", "year")
_FIELD = re.compile(rf'(?<!\S)({"|".join(FIELDS)}):("[^"]*"|\S+)', re.IGNORECASE)
_PHRASE = re.compile(r'["“”„«»]([^"“”„«»]*)["“”„«»]')
_PERIOD = re.compile(r"(?:fy|cy)(\d{4}|\d\d)")
_CENTURY = 70  # FY69 is 2069, FY70 is 1970
_QUESTION_WORDS = frozenset(
    [
        "according",
        "answer",
        "approximately",
        "assume",
        "based",
        "calculate",
        "compute",
        "could",
        "describe",
        "detail",
        "determine",
        "did",
        "does",
        "explain",
        "explicit",
        "find",
        "give",
        "how",
        "identify",
        "many",
        "much",
        "please",
        "provide",
        "question",
        "respond",
        "round",
        "show",
        "shown",
        "tell",
        "using",
        "what",
        "when",
        "where",
        "whether",
        "which",
        "who",
        "whom",
        "whose",
        "why",
        "would",
    ]
)
_LONGEST_JOINED = 3


class Term(NamedTuple):
    """A word or a phrase, with its forms in the languages of the documents.

    A form with spaces is a phrase, one that ends in `*` a prefix.
    """

    word: str  # as the user wrote it
    fts5: tuple[str, ...]
    forms: tuple[str, ...]  # as `words.tsvector_input` analyses text
    weight: float = 1.0
    synonym_of: str = ""  # the words of the query that it means the same as
    is_exact: bool = False  # in quotes


class Query(NamedTuple):
    """A parsed query."""

    plain: str  # without fields
    terms: tuple[Term, ...]
    joined: tuple[str, ...] = ()  # neighbouring words as one, only looked for in names
    names: tuple[str, ...] = ()  # words that the name must have
    media_types: tuple[str, ...] = ()
    is_cut: bool = False  # only the first terms are used


def parse(
    text: str,
    languages: Sequence[str] = (),
    lists: Sequence[synonyms.Synonyms] = (),
    instead: Mapping[str, str] | None = None,
) -> Query:
    """Parse a query, in time proportional to its length.

    `lists` are synonyms; `instead` has other words for some that are not in quotes.
    """
    if len(text) > MAX_CHARS:
        raise BadInput(
            f"search: the query has {len(text):,} characters (at most {MAX_CHARS:,}). Nothing was "
            "searched. Use fewer words."
        )
    fields: dict[str, list[str]] = {name: [] for name in FIELDS}
    for name, value in _FIELD.findall(text):
        fields[name.lower()].append(value.strip('"'))
    # A field alone asks for its value, too: the documents are listed.
    plain = _FIELD.sub(" ", text).strip() or " ".join(fields["name"] + fields["year"])
    kinds = list(dict.fromkeys(languages)) or [""]
    phrases = [found for found in map(words.split_words, _PHRASE.findall(plain)) if found]
    singles = words.split_words(_PHRASE.sub(" ", plain))
    if instead:
        singles = words.split_words(" ".join([instead.get(word, word) for word in singles]))
    distinct_words = list(dict.fromkeys(singles))
    asked = _content(distinct_words, kinds)
    if not (asked or phrases):
        asked = [word for word in distinct_words if word not in _QUESTION_WORDS] or distinct_words
    terms = [_phrase(each, kinds) for each in phrases]
    terms += [term for word in asked for term in _terms_of(word, kinds)]
    written = _distinct(terms)
    other = _distinct([*written, *_synonyms(asked, kinds, lists)])[len(written) :]
    return Query(
        plain,
        (*written[:MAX_TERMS], *other[:MAX_SYNONYMS]),
        tuple(_joined([*singles, *(word for each in phrases for word in each)])),
        tuple(_name_words(fields)),
        tuple(fields["type"]),
        len(written) > MAX_TERMS,
    )


def _distinct(terms: Sequence[Term]) -> list[Term]:
    """Return the first of the terms with the same forms."""
    found: dict[tuple[str, ...], Term] = {}
    for term in terms:
        found.setdefault(term.forms, term)
    found.pop((), None)
    return list(found.values())


def _content(singles: list[str], languages: list[str]) -> list[str]:
    found: list[str] = []
    for word in singles:
        if word in _QUESTION_WORDS or _is_small(word, languages):
            continue
        found.append(word)
        if period := _PERIOD.fullmatch(word):
            found.append(_year(period[1]))
        if len(found) > 4 * MAX_TERMS:
            break
    return list(dict.fromkeys(found))


def _is_small(word: str, languages: Iterable[str]) -> bool:
    """Tell whether a word is a stop word in each language of the documents."""
    return all(word in STOP_WORDS.get(each, STOP_WORDS["en"]) for each in languages)


def _year(digits: str) -> str:
    if len(digits) == 4:
        return digits
    return f"{20 if int(digits) < _CENTURY else 19}{digits}"


def _terms_of(word: str, languages: list[str]) -> list[Term]:
    """Return the terms of a word: several for a long word of a script without spaces."""
    spoken = [each for each in languages if not _is_small(word, [each])] or languages
    pairs = zip(
        words.word_terms(word, spoken, simple=False),
        words.word_terms(word, spoken, simple=True),
        strict=True,
    )
    return [Term(word, tuple(fts5), tuple(simple)) for fts5, simple in pairs]


def _phrase(found: list[str], languages: list[str]) -> Term:
    fts5, simple = (words.phrase_forms(found, languages, simple=each) for each in (False, True))
    return Term(" ".join(found), tuple(fts5), tuple(simple), is_exact=True)


def _joined(singles: Sequence[str]) -> list[str]:
    found: dict[str, None] = {}
    some = singles[: 2 * MAX_TERMS]
    for count in range(2, _LONGEST_JOINED + 1):
        for at in range(len(some) - count + 1):
            if not any(map(words.is_spaceless, some[at : at + count])):
                found["".join(some[at : at + count])] = None
    return words.tsvector_input(" ".join(found), "").split()


def _name_words(fields: Mapping[str, Sequence[str]]) -> Iterable[str]:
    for value in fields["name"]:
        yield from words.tsvector_input(value, "").split()
    for value in fields["year"]:
        period = _PERIOD.fullmatch(value.lower())
        digits = period[1] if period else value
        if not (digits.isdecimal() and len(digits) in (2, 4)):
            raise BadInput(f"search: year:{value[:20]} is not a year. Write year:2018.")
        yield _year(digits)


def _synonyms(
    asked: list[str], languages: list[str], lists: Sequence[synonyms.Synonyms]
) -> list[Term]:
    found: dict[str, str] = {}
    for phrase, of in synonyms.find(asked, lists).items():
        for word in _content(words.split_words(phrase), languages):
            found.setdefault(word, of)
    return [
        term._replace(weight=SYNONYM_WEIGHT, synonym_of=of)
        for word, of in found.items()
        for term in _terms_of(word, languages)
    ]
