"""The decorators of plugins: `@job` and `@parser` mark functions, `@source` marks classes.

A decorator only attaches a description; `plugins.py` collects them from modules. There is no global
registry, and importing a plugin has no side effects.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Never, TypeVar

from quire.model.payloads import BUILT_IN, Payload

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

MARK = "__quire__"
#: Schemes of the built-in sources.
OWN_SCHEMES = ("file", "http", "https", "gdrive", "s3", "gs", "az")

#: The error about a name that counted the attempts after the first.
ATTEMPTS = "{old} was replaced by max_attempts, which counts the first attempt too (2 becomes 3)."
_RENAMED = {"wedged": "stall_timeout", "backoff_most": "max_backoff"}

_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9][a-z0-9.+-]*")
_SUFFIX = re.compile(r"(\.[a-z0-9_-]+)+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+")


@dataclass(frozen=True, slots=True)
class JobKind:
    """A job kind: its function and how to run it."""

    name: str
    function: Callable[..., Any]
    queue: str = "default"
    max_attempts: int = 3
    timeout: float | None = 3600.0
    memory: int | None = None
    stall_timeout: float | None = None
    grace: float = 0.5
    backoff: float = 60.0
    max_backoff: float = 300.0
    at_most_once: bool = False
    reason: str = ""
    #: Users of the API may not submit it.
    is_internal: bool = False
    #: What its payload holds, if it is a kind of Quire.
    payload: Payload | None = None

    def described(self) -> dict[str, Any]:
        """Return it as JSON, without what exists in one process only."""
        return {n: getattr(self, n) for n in self.__slots__ if n not in ("function", "payload")}


def in_queues(kinds: Iterable[JobKind], queues: Mapping[str, str]) -> list[JobKind]:
    """Return the kinds with their queues replaced by those in `queues`."""
    return [replace(kind, queue=queues.get(kind.name, kind.queue)) for kind in kinds]


def job(
    name: str,
    *,
    max_attempts: int = 3,
    timeout: float | None = 3600.0,
    memory: int | None = None,
    stall_timeout: float | None = None,
    grace: float = 0.5,
    backoff: float = 60.0,
    max_backoff: float = 300.0,
    queue: str = "default",
    at_most_once: bool = False,
    reason: str = "",
    internal: bool = False,
    **renamed: Never,
) -> Callable[[F], F]:
    """Mark a function as the handler of a job kind.

    `max_attempts` counts the first attempt too. `timeout`, `stall_timeout` (no progress) and
    `grace` (after a stop) are seconds, `memory` is bytes. A kind that must not run twice says so
    with `at_most_once=True` and a `reason`. With `internal=True` users of the API may not submit
    the kind.
    """
    _refuse_old_names(name, renamed)
    _check(name, max_attempts, at_most_once, reason)
    if not _is_name(queue):
        raise ValueError(
            f"@job({name!r}): a queue name consists of letters, digits, '.', '-' and '_'"
        )

    def mark(function: F) -> F:
        kind = JobKind(
            name=name,
            function=function,
            queue=queue,
            max_attempts=1 if at_most_once else max_attempts,
            timeout=timeout,
            memory=memory,
            stall_timeout=stall_timeout,
            grace=grace,
            backoff=backoff,
            max_backoff=max(backoff, max_backoff),
            at_most_once=at_most_once,
            reason=reason,
            is_internal=internal,
            payload=BUILT_IN.get(name)
            if (function.__module__ or "").startswith("quire.")
            else None,
        )
        setattr(function, MARK, kind)
        return function

    return mark


def _refuse_old_names(name: str, given: Mapping[str, object]) -> None:
    for old in given:
        if old == "retries":
            raise TypeError(f"@job({name!r}): {ATTEMPTS.format(old=old)}")
        if new := _RENAMED.get(old):
            raise TypeError(f"@job({name!r}): {old} was renamed to {new}. Use that instead.")
        raise TypeError(f"@job({name!r}): there is no option {old!r}")


def _check(name: str, max_attempts: int, at_most_once: bool, reason: str) -> None:
    if not _is_name(name):
        raise ValueError(
            f"@job({name!r}): a kind's name consists of letters, digits, '.', '-' and '_'"
        )
    if not 1 <= max_attempts <= 1000:
        raise ValueError(f"@job({name!r}): max_attempts must be 1 to 1000, not {max_attempts}")
    if at_most_once and not reason:
        raise ValueError(f"@job({name!r}): at_most_once needs reason='why it must not run twice'")


@dataclass(frozen=True, slots=True)
class ParserKind:
    """A parser: its media types and its function, which takes the path of a file."""

    name: str
    function: Callable[..., Any]
    media_types: tuple[str, ...]
    suffixes: tuple[str, ...] = ()
    version: int = 1


def parser(
    *media_types: str, name: str = "", suffixes: Sequence[str] = (), version: int = 1
) -> Callable[[F], F]:
    """Mark a function that takes the path of a file and yields its pages.

    A file whose type cannot be detected from its bytes has the first of `media_types` if its name
    ends with one of `suffixes`. Increase `version` to have files parsed again.
    """

    def mark(function: F) -> F:
        named = name or function.__name__
        _check_parser(named, media_types, suffixes, version)
        setattr(function, MARK, ParserKind(named, function, media_types, tuple(suffixes), version))
        return function

    return mark


@dataclass(frozen=True, slots=True)
class LayoutKind:
    """A reader of layout: its function, which takes the picture of a page and its words."""

    name: str
    function: Callable[..., Any]
    version: int = 1


def layout(name: str = "", *, version: int = 1) -> Callable[[F], F]:
    """Mark a function that takes a `quire.model.pages.PagePicture` and returns its blocks.

    Increase `version` to have pages read again.
    """

    def mark(function: F) -> F:
        named = name or function.__name__
        if not _is_name(named):
            raise ValueError(
                f"@layout {named!r}: a name consists of letters, digits, '.', '-' and '_'"
            )
        if type(version) is not int:
            raise ValueError(f"@layout {named!r}: version={version!r} is not an integer")
        setattr(function, MARK, LayoutKind(named, function, version))
        return function

    return mark


def _check_parser(
    name: str, media_types: tuple[str, ...], suffixes: Sequence[str], version: int
) -> None:
    if not _is_name(name) or name == "auto":
        raise ValueError(
            f"@parser {name!r}: a parser's name consists of letters, digits, '.', '-' and '_', "
            "and is not 'auto'"
        )
    if not media_types:
        raise ValueError(f"@parser {name!r}: no media type given")
    for each in media_types:
        if not _MEDIA_TYPE.fullmatch(each):
            raise ValueError(f"@parser {name!r}: {each!r} is not a lower-case media type")
    if isinstance(suffixes, str) or not all(map(_SUFFIX.fullmatch, suffixes)):
        raise ValueError(
            f"@parser {name!r}: suffixes are a tuple of lower-case strings, as in ('.epub',), "
            f"not {suffixes!r}"
        )
    if type(version) is not int:
        raise ValueError(f"@parser {name!r}: version must be a whole number, not {version!r}")


@dataclass(frozen=True, slots=True)
class SourceKind:
    """A source: its URL scheme, and the class that lists and reads its files."""

    name: str
    maker: Callable[[], Any]


def source(scheme: str) -> Callable[[C], C]:
    """Mark a class that lists and reads the files at `scheme:` URLs. It takes no arguments.

    `items(url)` yields an `Item` for each file; `read(item, start)` yields its bytes from offset
    `start`.
    """
    if not _SCHEME.fullmatch(scheme):
        raise ValueError(
            f"@source({scheme!r}): a scheme consists of two or more lower-case letters, digits, "
            "'+', '.' or '-', and starts with a letter"
        )
    if scheme in OWN_SCHEMES:
        raise ValueError(f"@source({scheme!r}): Quire has a built-in source of this name")

    def mark(maker: C) -> C:
        for method in ("items", "read"):
            if not callable(getattr(maker, method, None)):
                raise ValueError(f"@source({scheme!r}): {maker.__name__} has no method {method}()")
        setattr(maker, MARK, SourceKind(scheme, maker))
        return maker

    return mark


def _is_name(text: str) -> bool:
    return text.replace("_", "").replace("-", "").replace(".", "").isalnum()
