"""Guesses what a misspelt word was meant to be: words that differ by a letter or two, or two words.

It only makes guesses; which of them are words, the index of the documents in scope knows.
"""

from collections.abc import Iterator

from quire.text.words import is_spaceless

#: Letters of a word that is taken for misspelt, and of one with two mistakes.
SHORTEST, LONGEST = 4, 24
SHORTEST_OF_TWO, LONGEST_OF_TWO = 7, 15
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_VOWELS = "aeiouy"
#: Letters that are taken for each other.
_ALIKE = ("csz", "ckq", "fv", "gj", "mn", "bp", "dt", _VOWELS)
_SHORTEST_PART = 3


def is_candidate(word: str) -> bool:
    """Tell whether a word can be guessed: letters of a script with spaces, and not too few."""
    return word.isalpha() and not is_spaceless(word) and SHORTEST <= len(word) <= LONGEST


def one_edit(word: str) -> list[str]:
    """Return the words at one letter less, more, changed or swapped; swapped ones first."""
    letters = sorted({*_LETTERS, *word})
    parts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    more = [a + c + b for a, b in parts for c in letters]
    changed = [a + c + b[1:] for a, b in parts if b for c in letters]
    found = dict.fromkeys([*_swapped(word), *_shorter(word), *more, *changed])
    return [each for each in found if each != word]


def two_edits(word: str) -> list[str]:
    """Return words at two letters: doubled, left out, swapped, or taken for one like them.

    All pairs of edits would be a hundred thousand.
    """
    if not SHORTEST_OF_TWO <= len(word) <= LONGEST_OF_TWO:
        return []
    near = _small_edits(word)
    twice = dict.fromkeys(each for some in near for each in _small_edits(some))
    known = {word, *one_edit(word)}
    return [each for each in twice if each not in known]


def _small_edits(word: str) -> list[str]:
    doubled = [word[:at] + word[at:][:1] + word[at:] for at in range(len(word))]
    changed = [
        word[:at] + each + word[at + 1 :] for at in range(len(word)) for each in _alike(word[at])
    ]
    return [*_swapped(word), *_shorter(word), *doubled, *changed]


def _alike(letter: str) -> Iterator[str]:
    for group in _ALIKE:
        if letter in group:
            yield from group.replace(letter, "")


def _swapped(word: str) -> list[str]:
    return [
        word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        for at in range(len(word) - 1)
        if word[at] != word[at + 1]
    ]


def _shorter(word: str) -> list[str]:
    return [word[:at] + word[at + 1 :] for at in range(len(word))]


def splits(word: str) -> list[tuple[str, str]]:
    """Return the ways to read a word as two."""
    places = range(_SHORTEST_PART, len(word) - _SHORTEST_PART + 1)
    return [(word[:at], word[at:]) for at in places]
