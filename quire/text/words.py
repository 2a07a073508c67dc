"""The words of a text as they are searched for: the same on SQLite and on PostgreSQL.

English and unknown text goes into FTS5 as it is, whose tokeniser (`porter unicode61
remove_diacritics 2`) folds and stems it. Other languages are analysed here before: lower case,
stemmed where there is a stemmer, accents folded. PostgreSQL's `simple` does nothing by itself, so
for it English is analysed here too (`indexed_simple`, `query_terms(…, simple=True)`).

Scripts without spaces become overlapping pairs of characters, and the last character of a run on
its own: every character begins an entry, so that one character is found by prefix, two by an entry,
and more by a phrase of entries. Three at a time would lose the two-character words that most of
Chinese and Japanese is made of.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from quire.text.language import STOP_WORDS

MOST_TERMS = 64
_LONGEST_QUERY = 20_000  # characters that are read
_LONGEST_WORD = 64  # characters of a word that are compared
_LONGEST_PHRASE = 4  # characters of a spaceless query that must stand together

_STEMMERS = {
    "ar": "arabic",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "fr": "french",
    "it": "italian",
    "nl": "dutch",
    "pt": "portuguese",
    "ru": "russian",
}
#: What FTS5's own tokeniser would not do justice to.
_ANALYSED = frozenset({*_STEMMERS, "vi"} - {"en"})
_SPACELESS = (
    "\u0e01-\u0e7f\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_RUN = re.compile(f"[{_SPACELESS}]+")
#: FTS5's tokeniser ends a word at these, so they are left out everywhere.
_THAI_SIGNS = re.compile("[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]+")
_WORD = re.compile(f"[{_SPACELESS}]+|[^\\W_{_SPACELESS}]+")
_ASCII_GAPS = {code: " " for code in range(128) if not chr(code).isalnum()}
_PHRASE = re.compile(r'["“”„«»]([^"“”„«»]*)["“”„«»]')
#: What taking a letter apart does not fold.
_LETTERS = str.maketrans(
    {"đ": "d", "ß": "ss", "ł": "l", "ø": "o", "æ": "ae", "œ": "oe", "ı": "i", "ð": "d", "þ": "th"}
)


def indexed(text: str, language: str) -> str:
    """Return what FTS5 is given for a text."""
    if language in _ANALYSED:
        return indexed_simple(text, language)
    if text.isascii() or not _RUN.search(text):
        return text
    return _RUN.sub(lambda run: f" {' '.join(grams(run[0]))} ", text)


def indexed_simple(text: str, language: str) -> str:
    """Return what PostgreSQL's `to_tsvector('simple', …)` is given for a text."""
    return " ".join(_entries(words_of(text), language))


def query_terms(
    query: str, languages: Sequence[str] = (), *, simple: bool = False
) -> list[list[str]]:
    """Return for each word of a query its forms in the languages of the documents.

    A form with spaces is a phrase, one that ends in `*` a prefix. Small words are left out unless
    nothing else is asked for. `simple` is for PostgreSQL.
    """
    query = query[:_LONGEST_QUERY]
    kinds = list(dict.fromkeys(languages)) or [""]
    quoted = [words_of(found) for found in _PHRASE.findall(query)]
    singles = list(dict.fromkeys(words_of(_PHRASE.sub(" ", query))))
    phrases = [_phrase_forms(words, kinds, simple) for words in quoted if words]
    terms = phrases + _single_terms(singles, kinds, simple, keep_small=False)
    terms = terms or _single_terms(singles, kinds, simple, keep_small=True)
    return [list(forms) for forms in dict.fromkeys(map(tuple, terms)) if forms][:MOST_TERMS]


def fts5(terms: Iterable[Sequence[str]]) -> str:
    """Return a MATCH expression that finds any of the terms; '' finds nothing, and is not run."""
    return " OR ".join(dict.fromkeys(_quoted(form) for forms in terms for form in forms))


def tsquery(terms: Iterable[Sequence[str]]) -> str:
    """Return the text of a `to_tsquery('simple', …)` that finds any of the terms."""
    return " | ".join(dict.fromkeys(_lexemes(form) for forms in terms for form in forms))


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; of scripts without spaces, whole runs."""
    lowered = text.lower()
    if lowered.isascii():
        return lowered.translate(_ASCII_GAPS).split()  # several times as fast as a pattern
    return _WORD.findall(unicodedata.normalize("NFC", lowered))


def fold(word: str) -> str:
    """Return a lower-case word without its accents."""
    if word.isascii():
        return word
    apart = unicodedata.normalize("NFKD", word.translate(_LETTERS))
    return "".join(char for char in apart if unicodedata.category(char) != "Mn")


def stemmed(words: list[str], languages: Iterable[str]) -> list[list[str]]:
    """Return the stems of lower-case words once for each stemmer that the languages have."""
    one_each = {_stemmer_name(language): language for language in sorted(languages)}
    return [stem(words, language) for language in one_each.values()]


def _stemmer_name(language: str) -> str:
    return _STEMMERS.get(language, "" if language == "vi" else "english")


def stem(words: list[str], language: str) -> list[str]:
    """Return the stems of lower-case words; unknown text is read as English."""
    name = _stemmer_name(language)
    if not name:
        return words
    stems: list[str] = _stemmer(name).stemWords(words)
    return stems


def grams(run: str) -> list[str]:
    """Return the pairs of a run's characters, and its last character."""
    bare = _THAI_SIGNS.sub("", unicodedata.normalize("NFKC", run))
    return [bare[at : at + 2] for at in range(len(bare))]


def is_run(word: str) -> bool:
    """Tell whether a word is of a script without spaces."""
    return not word.isascii() and _RUN.match(word) is not None


@cache
def _stemmer(name: str) -> Any:
    import Stemmer

    return Stemmer.Stemmer(name)


def _entries(words: list[str], language: str) -> list[str]:
    """Return the entries of words: stemmed and folded, or characters in pairs."""
    # Accents go last: the stemmers know endings by them.
    stems = [fold(word)[:_LONGEST_WORD] for word in stem(words, language)]
    if not any(map(is_run, words)):
        return stems
    found: list[str] = []
    for word, entry in zip(words, stems, strict=True):
        found += grams(word) if is_run(word) else [entry]
    return found


def _form(words: list[str], language: str, simple: bool) -> str:
    """Return how words that stand together are written in the index."""
    if simple or language in _ANALYSED:
        return " ".join(_entries(words, language))
    return " ".join(" ".join(grams(word)) if is_run(word) else word for word in words)


def _phrase_forms(words: list[str], languages: list[str], simple: bool) -> list[str]:
    if len(words) == 1 and is_run(words[0]):
        pairs = grams(words[0])[:-1]
        return [" ".join(pairs)] if pairs else []
    return list(dict.fromkeys(_form(words, language, simple) for language in languages))


def _single_terms(
    words: list[str], languages: list[str], simple: bool, keep_small: bool
) -> list[list[str]]:
    found: list[list[str]] = []
    for word in words:
        if is_run(word):
            found += _run_terms(grams(word))
            continue
        spoken = [
            language
            for language in languages
            if keep_small or word not in STOP_WORDS.get(language, STOP_WORDS["en"])
        ]
        found.append(list(dict.fromkeys(_form([word], language, simple) for language in spoken)))
        if len(found) > 4 * MOST_TERMS:
            break
    return [forms for forms in found if forms]


def _run_terms(entries: list[str]) -> list[list[str]]:
    if len(entries) == 1:
        return [[entries[0] + "*"]]
    if len(entries) <= _LONGEST_PHRASE:
        return [[" ".join(entries[:-1])]] if entries else []
    return [[pair] for pair in entries[:-1]]


def _quoted(form: str) -> str:
    bare = form.rstrip("*").replace('"', " ").replace("\0", " ")
    return f'"{bare}"' + (" *" if form.endswith("*") else "")


def _lexemes(form: str) -> str:
    prefix = ":*" if form.endswith("*") else ""
    words = form.rstrip("*").replace("'", " ").replace("\\", " ").replace("\0", " ").split()
    joined = " <-> ".join(f"'{word}'{prefix}" for word in words)
    return f"({joined})" if len(words) > 1 else joined
