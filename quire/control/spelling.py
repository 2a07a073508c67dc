"""Finds what a word that no document in scope has was meant to be, among the words that they have.

Only words of documents in scope are told. The cost is bounded: two words of a query, and some
thousand guesses for each, which are looked up in the index of documents.
"""

from collections.abc import Sequence

from quire.model.search import Scope
from quire.store import Connection
from quire.store.search import search as store
from quire.text import fields, spelling, words
from quire.text.query import Term

#: Words of a query that are corrected, and languages whose stems are looked up.
MAX_WORDS, MAX_LANGUAGES = 2, 4


def corrections(
    conn: Connection, scope: Scope, missing: Sequence[Term], languages: Sequence[str]
) -> dict[str, str]:
    """Return other words for those of a query that are missing; not for synonyms and phrases."""
    asked = [
        term.word
        for term in missing
        if not (term.is_exact or term.synonym_of) and spelling.is_candidate(term.word)
    ]
    # Names are stemmed as English.
    spoken = words.with_own_stemmer(["", *languages])[:MAX_LANGUAGES]
    found = {word: _nearest(conn, scope, word, spoken) for word in asked[:MAX_WORDS]}
    return {word: better for word, better in found.items() if better}


def _nearest(conn: Connection, scope: Scope, word: str, languages: Sequence[str]) -> str:
    """Return the most frequent word that is near, two words that are written as one, or nothing."""
    pairs = spelling.splits(word)
    near = spelling.one_edit(word)
    known = _known(
        conn, scope, [word, *near, *(part for pair in pairs for part in pair)], languages
    )
    if word in known:
        return ""
    if best := _best(word, near, known):
        return best
    both = {f"{a} {b}": known.get(a, set()) & known.get(b, set()) for a, b in pairs}
    if (best := max(both, key=lambda each: len(both[each]), default="")) and both[best]:
        return best
    far = spelling.two_edits(word)
    return _best(word, far, _known(conn, scope, far, languages))


def _best(word: str, guesses: Sequence[str], known: dict[str, set[int]]) -> str:
    """Return the guess that most documents have; the first letter is seldom wrong."""
    there = [each for each in guesses if each in known]
    return max(there, key=lambda each: (each[0] == word[0], len(known[each])), default="")


def _known(
    conn: Connection, scope: Scope, guesses: Sequence[str], languages: Sequence[str]
) -> dict[str, set[int]]:
    """Return the documents that have each of the guesses, in their names or on their pages."""
    forms = [words.analyse(list(guesses), language) for language in languages]
    looked = sorted({entry for some in forms for form in some for entry in _entries(form)})
    there = store.entries_in(conn, scope, looked)
    found: dict[str, set[int]] = {}
    for some in forms:
        for guess, form in zip(guesses, some, strict=True):
            for entry in _entries(form):
                if entry in there:
                    found.setdefault(guess, set()).update(there[entry])
    return found


def _entries(form: str) -> tuple[str, str]:
    return form, fields.NAME + form
