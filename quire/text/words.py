"""Text analysis for full-text search: the same words on SQLite and on PostgreSQL.

FTS5 gets English and unknown text unchanged: its tokenizer (`porter unicode61 remove_diacritics 2`)
folds and stems it. Text in other languages is analysed here first: lower case, stemmed if there is
a stemmer, accents folded. PostgreSQL's `simple` configuration does none of this, so for it English
is analysed here too (`tsvector_input`, `query_terms(…, simple=True)`).

Runs of a script without spaces (Chinese, Japanese, Korean, Thai) become overlapping bigrams, plus
the last character alone. Every character starts an entry, so one character is found by prefix, two
by an entry, and more by a phrase of entries. Trigrams would lose the two-character words of which
Chinese and Japanese mostly consist.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from quire.text.language import STOP_WORDS

MAX_TERMS = 64
_MAX_QUERY_CHARS = 20_000  # the rest is ignored
_MAX_WORD_CHARS = 64  # the rest is ignored
_MAX_PHRASE_CHARS = 4  # longer spaceless queries match by single bigrams

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
#: Languages that FTS5's own tokenizer does not analyse well.
_ANALYSED = frozenset({*_STEMMERS, "vi"} - {"en"})
_SPACELESS = (
    "\u0e01-\u0e7f\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_RUN = re.compile(f"[{_SPACELESS}]+")
#: Combining vowels and tone marks: FTS5's tokenizer ends a word at them, so they are removed.
_THAI_MARKS = re.compile("[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]+")
_WORD = re.compile(f"[{_SPACELESS}]+|[^\\W_{_SPACELESS}]+")
_ASCII_GAPS = {code: " " for code in range(128) if not chr(code).isalnum()}
_PHRASE = re.compile(r'["“”„«»]([^"“”„«»]*)["“”„«»]')
#: Letters that NFKD does not decompose.
_LETTERS = str.maketrans(
    {"đ": "d", "ß": "ss", "ł": "l", "ø": "o", "æ": "ae", "œ": "oe", "ı": "i", "ð": "d", "þ": "th"}
)


def fts5_input(text: str, language: str) -> str:
    """Return the text to insert into the FTS5 index."""
    if language in _ANALYSED:
        return tsvector_input(text, language)
    if text.isascii() or not _RUN.search(text):
        return text
    return _RUN.sub(lambda run: f" {' '.join(bigrams(run[0]))} ", text)


def tsvector_input(text: str, language: str) -> str:
    """Return the text to pass to PostgreSQL's `to_tsvector('simple', …)`."""
    return " ".join(analyse(split_words(text), language))


def query_terms(
    query: str, languages: Sequence[str] = (), *, simple: bool = False
) -> list[list[str]]:
    """Return the terms of a query, each as its forms in the languages of the documents.

    A form with spaces is a phrase, one that ends in `*` a prefix. Stop words are left out unless
    the query has nothing else. `simple` is for PostgreSQL.
    """
    query = query[:_MAX_QUERY_CHARS]
    kinds = list(dict.fromkeys(languages)) or [""]
    quoted = [split_words(found) for found in _PHRASE.findall(query)]
    singles = list(dict.fromkeys(split_words(_PHRASE.sub(" ", query))))
    phrases = [phrase_forms(words, kinds, simple=simple) for words in quoted if words]
    terms = phrases + _single_terms(singles, kinds, simple, keep_stop_words=False)
    terms = terms or _single_terms(singles, kinds, simple, keep_stop_words=True)
    return [list(forms) for forms in dict.fromkeys(map(tuple, terms)) if forms][:MAX_TERMS]


def fts5_query(terms: Iterable[Sequence[str]]) -> str:
    """Return a MATCH expression for any of the terms, or "" if there are none."""
    return " OR ".join(dict.fromkeys(_quoted(form) for forms in terms for form in forms))


def tsquery(terms: Iterable[Sequence[str]]) -> str:
    """Return the argument of `to_tsquery('simple', …)` for any of the terms."""
    return " | ".join(dict.fromkeys(_lexemes(form) for forms in terms for form in forms))


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case; of scripts without spaces, whole runs."""
    lowered = text.lower()
    if lowered.isascii():
        return lowered.translate(_ASCII_GAPS).split()  # several times as fast as a regex
    return _WORD.findall(unicodedata.normalize("NFC", lowered))


def fold(word: str) -> str:
    """Return a lower-case word without its accents."""
    if word.isascii():
        return word
    apart = unicodedata.normalize("NFKD", word.translate(_LETTERS))
    return "".join(char for char in apart if unicodedata.category(char) != "Mn")


def stem_all(words: list[str], languages: Iterable[str]) -> list[list[str]]:
    """Return the stems of lower-case words, once per distinct stemmer of the languages."""
    return [stem(words, language) for language in with_own_stemmer(languages)]


def with_own_stemmer(languages: Iterable[str]) -> list[str]:
    """Return one of the languages for each distinct stemmer."""
    return list({_stemmer_name(language): language for language in sorted(languages)}.values())


def _stemmer_name(language: str) -> str:
    return _STEMMERS.get(language, "" if language == "vi" else "english")


def stem(words: list[str], language: str) -> list[str]:
    """Return the stems of lower-case words; an unknown language is stemmed as English."""
    name = _stemmer_name(language)
    if not name:
        return words
    stems: list[str] = _stemmer(name).stemWords(words)
    return stems


def bigrams(run: str) -> list[str]:
    """Return the overlapping bigrams of a run, and its last character."""
    bare = _THAI_MARKS.sub("", unicodedata.normalize("NFKC", run))
    return [bare[at : at + 2] for at in range(len(bare))]


def is_spaceless(word: str) -> bool:
    """Return whether a word is in a script without spaces."""
    return not word.isascii() and _RUN.match(word) is not None


@cache
def _stemmer(name: str) -> Any:
    import Stemmer

    return Stemmer.Stemmer(name)


def analyse(words: list[str], language: str) -> list[str]:
    """Return the index entries of words: stemmed and folded, or bigrams."""
    # Fold after stemming: stemmers recognize endings by their accents.
    stems = [fold(word)[:_MAX_WORD_CHARS] for word in stem(words, language)]
    if not any(map(is_spaceless, words)):
        return stems
    found: list[str] = []
    for word, entry in zip(words, stems, strict=True):
        found += bigrams(word) if is_spaceless(word) else [entry]
    return found


def _form(words: list[str], language: str, simple: bool) -> str:
    """Return the form of consecutive words in the index."""
    if simple or language in _ANALYSED:
        return " ".join(analyse(words, language))
    return " ".join(" ".join(bigrams(word)) if is_spaceless(word) else word for word in words)


def phrase_forms(words: list[str], languages: list[str], *, simple: bool) -> list[str]:
    """Return the forms of a phrase in the index, one for each way to analyse it."""
    if len(words) == 1 and is_spaceless(words[0]):
        pairs = bigrams(words[0])[:-1]
        return [" ".join(pairs)] if pairs else []
    return list(dict.fromkeys(_form(words, language, simple) for language in languages))


def _single_terms(
    words: list[str], languages: list[str], simple: bool, keep_stop_words: bool
) -> list[list[str]]:
    found: list[list[str]] = []
    for word in words:
        if is_spaceless(word):
            entries = bigrams(word)
            if len(entries) == 1:
                found.append([entries[0] + "*"])
            elif len(entries) <= _MAX_PHRASE_CHARS:
                found.append([" ".join(entries[:-1])] if entries else [])
            else:
                found += [[pair] for pair in entries[:-1]]
            continue
        forms_in = [
            language
            for language in languages
            if keep_stop_words or word not in STOP_WORDS.get(language, STOP_WORDS["en"])
        ]
        found.append(list(dict.fromkeys(_form([word], language, simple) for language in forms_in)))
        if len(found) > 4 * MAX_TERMS:
            break
    return [forms for forms in found if forms]


def word_terms(word: str, languages: list[str], *, simple: bool) -> list[list[str]]:
    """Return the terms of one word, each as its forms, also of a stop word."""
    return _single_terms([word], languages, simple, keep_stop_words=True)


def _quoted(form: str) -> str:
    bare = form.rstrip("*").replace('"', " ").replace("\0", " ")
    return f'"{bare}"' + (" *" if form.endswith("*") else "")


def _lexemes(form: str) -> str:
    prefix = ":*" if form.endswith("*") else ""
    words = form.rstrip("*").replace("'", " ").replace("\\", " ").replace("\0", " ").split()
    joined = " <-> ".join(f"'{word}'{prefix}" for word in words)
    return f"({joined})" if len(words) > 1 else joined
