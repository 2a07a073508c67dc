"""Include and exclude patterns, matched against the path inside the source.

`*` stays within one folder, `**` crosses folders. A pattern without a slash matches the file name
at any depth; a leading slash anchors it at the top. Matching ignores case: `*.pdf` matches
REPORT.PDF.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from quire.errors import BadInput

Matcher = Callable[[str], bool]

_MAGIC = re.compile(r"[*?\[]")
_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\]|.", re.DOTALL)


def is_glob(text: str) -> bool:
    """Tell whether the text contains a wildcard."""
    return _MAGIC.search(text) is not None


def matcher(patterns: Sequence[str]) -> Matcher | None:
    """Return a function that tells whether a path matches a pattern, or None without patterns.

    Its time grows with the length of the path times that of the patterns, whatever they are.
    """
    machines = [_Machine(pattern) for pattern in patterns if pattern]
    if not machines:
        return None
    return lambda path: any(machine.matches(path) for machine in machines)


def path_filter(include: Sequence[str], exclude: Sequence[str]) -> Matcher:
    """Return a function that applies include and exclude patterns to a path."""
    wanted, unwanted = matcher(include), matcher(exclude)
    return lambda path: not (unwanted and unwanted(path)) and (wanted is None or wanted(path))


def validate_pattern(pattern: str) -> None:
    """Refuse a new pattern that no path can match; stored ones are accepted as they are."""
    if "[" in _TOKEN.findall(pattern):
        raise BadInput(
            f"pattern {pattern!r}: a bracket is not closed. Write [[] for a literal bracket."
        )
    if any(part in ("", ".", "..") for part in pattern.strip("/").split("/")):
        raise BadInput(
            f"pattern {pattern!r}: no path contains '.', '..' or an empty part. Write it relative "
            "to the source, as in 'drafts/*.pdf'."
        )


class _Machine:
    """One pattern as a row of states, all of them followed at once: bit n is the n-th token.

    A regular expression would try the stars one after another, and take time of the n-th power.
    """

    def __init__(self, pattern: str) -> None:
        tokens = _TOKEN.findall(pattern.strip("/"))
        if "/" not in pattern.rstrip("/"):
            tokens.insert(0, "**/")
        self._tests = [_test(token) for token in tokens]
        #: Tokens that need no character, and tokens that any number of characters fit.
        self._optional = _bits(each in _STARS for each in tokens)
        self._repeated = self._optional
        #: After `**/` has taken a character, only a slash ends it.
        self._folders = _bits(each == "**/" for each in tokens)
        self._end = 1 << len(tokens)
        self._steps: dict[str, int] = {}

    def matches(self, path: str) -> bool:
        """Tell whether the whole path matches."""
        begun = 0  # inside the folders of a `**/`
        states = self._skipped(1)
        for character in path:
            fits = self._steps.get(character)
            if fits is None:
                fits = _bits(test(character) for test in self._tests)
                self._steps[character] = fits
            taken = states & fits
            folders = (states | begun) & self._folders
            ended = folders << 1 if character == "/" else 0
            stars = taken & self._repeated & ~self._folders
            after = (taken & ~self._repeated) << 1 | stars | ended
            states, begun = self._skipped(after), folders
            if not states and not begun:
                return False
        return bool(states & self._end)

    def _skipped(self, states: int) -> int:
        """Add the states behind tokens that need no character."""
        while (more := states | (states & self._optional) << 1) != states:
            states = more
        return states


_STARS = frozenset({"*", "**", "**/"})


def _bits(values: Iterable[bool]) -> int:
    return sum(1 << at for at, value in enumerate(values) if value)


def _test(token: str) -> Matcher:
    """Return whether a character fits a token."""
    if token in ("**", "**/"):
        return lambda character: True
    if token in ("*", "?"):
        return lambda character: character != "/"
    try:
        compiled = re.compile(_class_of(token), re.IGNORECASE | re.DOTALL)
    except re.error as error:
        raise BadInput(f"pattern {token}: invalid ({error}).") from error
    return lambda character: compiled.fullmatch(character) is not None


def _class_of(token: str) -> str:
    if token.startswith("[") and len(token) > 1:
        inner = token[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return re.escape(token)
