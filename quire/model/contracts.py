"""What a plugin author marks: a function with `@job` or `@parser`, a class with `@source`.

A mark only attaches a description; `plugins.py` collects what is marked from modules.
There is no registry to import into and no side effect of importing.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Never, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

MARK = "__quire__"
#: Sources that come with Quire.
OWN_SCHEMES = ("file", "http", "https", "gdrive", "s3", "gs", "az")

#: The error about a name that counted the attempts after the first.
ATTEMPTS = "{old} was replaced by max_attempts, which counts the first attempt too (2 becomes 3)."
_RENAMED = {"wedged": "stall_timeout", "backoff_most": "max_backoff"}

_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9][a-z0-9.+-]*")
_SUFFIX = re.compile(r"(\.[a-z0-9_-]+)+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+")


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job: its function and how it is to be run."""

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


def in_queues(kinds: Iterable[JobKind], queues: Mapping[str, str]) -> list[JobKind]:
    """Return the kinds, each in the queue that `queues` has for its name, else in its own."""
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
    **renamed: Never,
) -> Callable[[F], F]:
    """Mark a function as the handler of a job kind.

    `max_attempts` counts the first attempt too. `timeout`, `stall_timeout` (no progress) and
    `grace` (after a stop) are seconds, `memory` is bytes. A kind that must not run twice says so
    with `at_most_once=True` and a `reason`.
    """
    _refuse_old_names(name, renamed)
    _check(name, max_attempts, at_most_once, reason)
    if not _is_name(queue):
        raise ValueError(f"@job({name!r}): a queue's name has letters, digits, '.', '-' and '_'")

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
        raise ValueError(f"@job({name!r}): a kind's name has letters, digits, '.', '-' and '_'")
    if not 1 <= max_attempts <= 1000:
        raise ValueError(f"@job({name!r}): max_attempts must be 1 to 1000, not {max_attempts}")
    if at_most_once and not reason:
        raise ValueError(f"@job({name!r}): at_most_once needs reason='why it must not run twice'")


@dataclass(frozen=True, slots=True)
class ParserKind:
    """A reader of files: the types it reads and its function, which is given the path of one."""

    name: str
    function: Callable[..., Any]
    media_types: tuple[str, ...]
    suffixes: tuple[str, ...] = ()
    version: int = 1


def parser(
    *media_types: str, name: str = "", suffixes: Sequence[str] = (), version: int = 1
) -> Callable[[F], F]:
    """Mark a function that takes a file's path and yields its pages.

    A file whose bytes do not tell its type is of the first of `media_types` where its name ends
    with one of `suffixes`. A change of `version` reads files anew instead of using known pages.
    """

    def mark(function: F) -> F:
        named = name or function.__name__
        _check_parser(named, media_types, suffixes, version)
        setattr(function, MARK, ParserKind(named, function, media_types, tuple(suffixes), version))
        return function

    return mark


def _check_parser(
    name: str, media_types: tuple[str, ...], suffixes: Sequence[str], version: int
) -> None:
    if not _is_name(name) or name == "auto":
        raise ValueError(
            f"@parser {name!r}: a parser's name has letters, digits, '.', '-' and '_', "
            "and is not 'auto'"
        )
    if not media_types:
        raise ValueError(f"@parser {name!r}: which media types does it read?")
    for each in media_types:
        if not _MEDIA_TYPE.fullmatch(each):
            raise ValueError(f"@parser {name!r}: {each!r} is not a media type in small letters")
    if isinstance(suffixes, str) or not all(map(_SUFFIX.fullmatch, suffixes)):
        raise ValueError(
            f"@parser {name!r}: suffixes are a tuple like ('.epub',) in small letters, "
            f"not {suffixes!r}"
        )
    if type(version) is not int:
        raise ValueError(f"@parser {name!r}: version must be a whole number, not {version!r}")


@dataclass(frozen=True, slots=True)
class SourceKind:
    """A kind of place that files come from: its scheme, and the class that lists and reads it."""

    name: str
    maker: Callable[[], Any]


def source(scheme: str) -> Callable[[C], C]:
    """Mark a class, made without arguments, that lists and reads the files at `scheme:` URLs.

    `items(url)` yields an `Item` for each file; `read(item, start)` yields its bytes from
    `start` on.
    """
    if not _SCHEME.fullmatch(scheme):
        raise ValueError(
            f"@source({scheme!r}): a scheme's name begins with a letter and has two or more small "
            "letters, digits, '+', '.' and '-'"
        )
    if scheme in OWN_SCHEMES:
        raise ValueError(f"@source({scheme!r}): Quire has a source of this name itself")

    def mark(maker: C) -> C:
        for method in ("items", "read"):
            if not callable(getattr(maker, method, None)):
                raise ValueError(f"@source({scheme!r}): {maker.__name__} has no method {method}()")
        setattr(maker, MARK, SourceKind(scheme, maker))
        return maker

    return mark


def _is_name(text: str) -> bool:
    return text.replace("_", "").replace("-", "").replace(".", "").isalnum()
