"""Include and exclude patterns, matched against the path inside the source.

`*` stays within one folder, `**` crosses folders. A pattern without a slash matches the file name
at any depth; a leading slash anchors it at the top. Matching ignores case: `*.pdf` matches
REPORT.PDF.
"""

import re
from collections.abc import Callable, Sequence

from quire.errors import BadInput

Matcher = Callable[[str], bool]

_MAGIC = re.compile(r"[*?\[]")
_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\]|.", re.DOTALL)


def is_glob(text: str) -> bool:
    """Tell whether the text contains a wildcard."""
    return _MAGIC.search(text) is not None


def matcher(patterns: Sequence[str]) -> Matcher | None:
    """Return a function that tells whether a path matches a pattern, or None without patterns."""
    sources = []
    for pattern in filter(None, patterns):
        body = "".join(_translate(token) for token in _TOKEN.findall(pattern.strip("/")))
        sources.append(body if "/" in pattern.rstrip("/") else f"(?:.*/)?{body}")
    if not sources:
        return None
    try:
        compiled = re.compile("|".join(sources), re.IGNORECASE | re.DOTALL)
    except re.error as error:
        raise BadInput(f"pattern {', '.join(patterns)}: invalid ({error}).") from error
    return lambda path: compiled.fullmatch(path) is not None


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


_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _translate(token: str) -> str:
    if token in _WILDCARDS:
        return _WILDCARDS[token]
    if token.startswith("[") and len(token) > 1:
        inner = token[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return re.escape(token)
