"""Parses a query into terms: words, phrases in quotes, and fields such as `name:` and `year:`.

Words that only make a text a question are left out if others remain. FY2018 also asks for 2018,
because tables and file names have the bare year. Neighbouring words are also joined, for names that
are written as one word.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from quire.errors import BadInput
from quire.text import words
from quire.text.language import STOP_WORDS

#: Maximum characters of a query, and maximum number of its terms: the first ones.
MAX_CHARS, MAX_TERMS = 10_000, 32
#: Weight of a word that only a synonym asks for.
SYNONYM_WEIGHT = 0.5
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
#: Letters of a word that is taken for misspelt.
_SHORTEST, _LONGEST = 4, 24

#: Word sequences (analysed) → the phrases that mean the same.
Synonyms = Mapping[tuple[str, ...], Sequence[str]]


class Term(NamedTuple):
    """A word or a phrase, with its forms in the languages of the documents.

    A form with spaces is a phrase, one that ends in `*` a prefix.
    """

    word: str  # as the user wrote it
    fts5: tuple[str, ...]
    forms: tuple[str, ...]  # as `words.tsvector_input` analyses text
    weight: float = 1.0


class Query(NamedTuple):
    """A parsed query."""

    plain: str  # without fields
    terms: tuple[Term, ...]
    joined: tuple[str, ...] = ()  # neighbouring words as one, only looked for in names
    names: tuple[str, ...] = ()  # words that the name must have
    media_types: tuple[str, ...] = ()
    is_cut: bool = False  # only the first terms are used


def parse(text: str, languages: Sequence[str] = (), synonyms: Synonyms | None = None) -> Query:
    """Parse a query, in time proportional to its length."""
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
    distinct_words = list(dict.fromkeys(singles))
    asked = _content(distinct_words, kinds)
    if not (asked or phrases):
        asked = [word for word in distinct_words if word not in _QUESTION_WORDS] or distinct_words
    terms = [_phrase(each, kinds) for each in phrases]
    terms += [term for word in asked for term in _terms_of(word, kinds)]
    terms += _synonyms(asked, kinds, synonyms or {})
    distinct = list({term.forms: term for term in reversed(terms) if term.forms}.values())[::-1]
    return Query(
        plain,
        tuple(distinct[:MAX_TERMS]),
        tuple(_joined([*singles, *(word for each in phrases for word in each)])),
        tuple(_name_words(fields)),
        tuple(fields["type"]),
        len(distinct) > MAX_TERMS,
    )


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
    return Term(" ".join(found), tuple(fts5), tuple(simple))


def _joined(singles: Sequence[str]) -> list[str]:
    found: dict[str, None] = {}
    some = singles[: 2 * MAX_TERMS]
    for count in range(2, _LONGEST_JOINED + 1):
        for at in range(len(some) - count + 1):
            if not any(map(words.is_spaceless, some[at : at + count])):
                found["".join(some[at : at + count])] = None
    return words.tsvector_input(" ".join(found), "").split()


def misspelt(query: Query, known: Iterable[bool]) -> list[str]:
    """Return the words that no document has and that may be misspelt, given which are known."""
    unknown = (term.word for term, is_known in zip(query.terms, known, strict=True) if not is_known)
    return [word for word in unknown if word.isalpha() and _SHORTEST <= len(word) <= _LONGEST][:2]


def edits(word: str) -> list[str]:
    """Return the words at one letter less, more, changed or swapped; swapped ones first."""
    splits = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    letters = sorted({*"abcdefghijklmnopqrstuvwxyz", *word})
    swapped = [a + b[1] + b[0] + b[2:] for a, b in splits if len(b) > 1]
    less = [a + b[1:] for a, b in splits if b]
    changed = [a + c + b[1:] for a, b in splits if b for c in letters]
    more = [a + c + b for a, b in splits for c in letters]
    found = dict.fromkeys([*swapped, *less, *more, *changed])
    return [each for each in found if each != word]


def _name_words(fields: Mapping[str, Sequence[str]]) -> Iterable[str]:
    for value in fields["name"]:
        yield from words.tsvector_input(value, "").split()
    for value in fields["year"]:
        period = _PERIOD.fullmatch(value.lower())
        digits = period[1] if period else value
        if not (digits.isdecimal() and len(digits) in (2, 4)):
            raise BadInput(f"search: year:{value[:20]} is not a year. Write year:2018.")
        yield _year(digits)


def synonyms_of(rows: Iterable[Sequence[str]]) -> Synonyms:
    """Index rows of phrases that mean the same by each of their phrases."""
    found: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        for phrase in row:
            others = [each for each in row if each != phrase]
            found.setdefault(_key(words.split_words(phrase)), []).extend(others)
    found.pop((), None)
    return found


def _key(singles: Iterable[str]) -> tuple[str, ...]:
    kept = [word for word in singles if word not in STOP_WORDS["en"]]
    return tuple(words.stem(kept, ""))


def _synonyms(asked: list[str], languages: list[str], synonyms: Synonyms) -> list[Term]:
    if not synonyms:
        return []
    stems = words.stem(asked, "")
    longest = max(map(len, synonyms))
    found: dict[str, None] = {}
    for start in range(len(stems)):
        for stop in range(start + 1, min(start + longest, len(stems)) + 1):
            for phrase in synonyms.get(tuple(stems[start:stop]), ()):
                found |= dict.fromkeys(_content(words.split_words(phrase), languages))
    return [
        term._replace(weight=SYNONYM_WEIGHT)
        for word in found
        for term in _terms_of(word, languages)
    ]
