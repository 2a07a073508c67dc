"""Include and exclude patterns, matched against the path inside the source.

`*` stays within one folder, `**` crosses them; a pattern without a slash matches the last
name at any depth, one that begins with a slash is meant from the top. Case is ignored:
`*.pdf` means REPORT.PDF too.
"""

import re
from collections.abc import Callable, Sequence

from quire.errors import BadInput

Matcher = Callable[[str], bool]

_MAGIC = re.compile(r"[*?\[]")
_SIGN = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\]|.", re.DOTALL)


def is_glob(text: str) -> bool:
    """Tell whether the text has a wildcard."""
    return _MAGIC.search(text) is not None


def matcher(patterns: Sequence[str]) -> Matcher | None:
    """Return a function that tells whether a path matches a pattern, or None without patterns."""
    sources = [_regex(pattern) for pattern in patterns if pattern]
    if not sources:
        return None
    try:
        compiled = re.compile("|".join(sources), re.IGNORECASE | re.DOTALL)
    except re.error as error:
        raise BadInput(f"pattern {', '.join(patterns)}: cannot be understood ({error}).") from error
    return lambda path: compiled.fullmatch(path) is not None


def chooser(include: Sequence[str], exclude: Sequence[str]) -> Matcher:
    """Return a function that tells whether a path is wanted."""
    wanted, unwanted = matcher(include), matcher(exclude)
    return lambda path: not (unwanted and unwanted(path)) and (wanted is None or wanted(path))


def require_sense(pattern: str) -> None:
    """Refuse a pattern that no path can match; one of earlier work is let be."""
    if "[" in _SIGN.findall(pattern):
        raise BadInput(
            f"pattern {pattern!r}: a bracket is not closed. Write [[] for the bracket itself."
        )
    if any(part in ("", ".", "..") for part in pattern.strip("/").split("/")):
        raise BadInput(
            f"pattern {pattern!r}: no path has such a part. Write it from the source's top, "
            "as in 'drafts/*.pdf'."
        )


def _regex(pattern: str) -> str:
    body = "".join(_translated(sign) for sign in _SIGN.findall(pattern.strip("/")))
    return f"(?:{body})" if "/" in pattern.rstrip("/") else f"(?:(?:.*/)?{body})"


_WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _translated(sign: str) -> str:
    if sign in _WILD:
        return _WILD[sign]
    if sign.startswith("[") and len(sign) > 1:
        inner = sign[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return re.escape(sign)
