"""Passwords and signatures in URLs: where they are, what is stored instead, what is shown.

Stored texts hold a *mark* in place of a secret, `***` and a keyed hash of it, under which the
sealed secret is found. What people see has `***` only.
"""

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

MASK = "***"
#: Characters of the keyed hash in a mark: 80 bits.
TAG_LENGTH = 16
MARK = re.compile(rf"\*\*\*([0-9a-v]{{{TAG_LENGTH}}})")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SPACE = re.compile(r"\s")
#: The user of a URL; in a text, where a URL ends with white space or a quote.
_USER = re.compile(r"://([^/?#]*)@")
_USER_IN_TEXT = re.compile(r"://([^/?#\s\"'\\]*)@")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
#: Parameters that hold a secret: one of these words is in the name, or the name ends with a stem.
_WORDS = frozenset({
    "auth", "authorization", "code", "credential", "credentials", "jwt", "key", "pass", "passwd",
    "password", "pw", "pwd", "sas", "secret", "sig", "signature", "token",
})  # fmt: skip
_STEMS = ("key", "password", "secret", "signature", "token")
#: Of signed URLs of the clouds: a new signature of the same file changes all of them.
_SIGNED = re.compile(r"(sig|signature|awsaccesskeyid|policy|key-pair-id|x-(amz|goog|oss|obs)-.*)")
_BESIDE_A_SIGNATURE = frozenset({
    "awsaccesskeyid", "expires", "googleaccessid", "key-pair-id", "ossaccesskeyid", "policy", "se",
    "ske", "skt", "st",
})  # fmt: skip


@functools.lru_cache(4096)
def is_secret(name: str) -> bool:
    """Tell whether a parameter of a URL holds a secret, by its name."""
    plain = unquote_plus(name)
    lower = plain.lower()
    if lower.endswith(_STEMS) or lower.startswith(("x-amz-", "x-goog-", "x-oss-", "x-obs-")):
        return True
    return not _WORDS.isdisjoint(each.lower() for each in _WORD.findall(plain))


class _Span(NamedTuple):
    """Where the value of a parameter, or the password of a user, is in a text."""

    name: str
    start: int
    end: int


class _Query:
    """Finds parameters in a text, whose values end with one of some characters."""

    def __init__(self, ends: str, trailing: str) -> None:
        self._trailing = trailing
        self._name = re.compile(rf"[?&;#]([^=?&;#{ends}]{{1,80}})=")
        self._value = re.compile(rf"[^&;#{ends}]*")
        # If it holds no secret, it may be a URL with parameters of its own.
        self._short_value = re.compile(rf"[^?&;#{ends}]*")

    def spans(
        self, text: str, start: int, is_wanted: Callable[[str], bool], *, is_outer: bool = True
    ) -> Iterator[_Span]:
        """Yield the values of the parameters that are wanted, and those that hold such a URL."""
        for found in self._name.finditer(text, start):
            if found.start() < start:
                continue
            is_whole = is_wanted(found[1])
            value = (self._value if is_whole else self._short_value).match(text, found.end())
            # In a sentence, what follows the value is not part of it.
            text_of_value = value[0].rstrip(self._trailing) if value else ""
            if not text_of_value:
                continue
            if is_whole or (is_outer and _holds_secret(text_of_value)):
                start = found.end() + len(text_of_value)
                yield _Span(unquote_plus(found[1]).lower(), found.end(), start)


_IN_URL = _Query("", "")
_IN_TEXT = _Query(r"\s\"'\\<>", ":.,)")


def _holds_secret(value: str) -> bool:
    """Tell whether a value is an escaped URL with a secret in it."""
    if "%3" not in value:
        return False
    return any(True for _ in _spans(unquote_plus(value), is_outer=False))


def _spans(text: str, *, is_outer: bool = True) -> Iterator[_Span]:
    """Find the secrets of one URL, or of those in a text; the password of a user has no name."""
    scheme = _SCHEME.match(text)
    if "://" not in text or (scheme is not None and scheme[1].lower() == "file"):
        return
    # One URL ends where the text does: a password may have a quote in it.
    is_one = scheme is not None and not _SPACE.search(text)
    users = (_USER if is_one else _USER_IN_TEXT).finditer(text)
    parameters = (_IN_URL if is_one else _IN_TEXT).spans(text, 0, is_secret, is_outer=is_outer)
    found = [_password(each) for each in users] + [*parameters]
    done = 0
    for each in sorted(found, key=lambda span: span.start):
        if done <= each.start < each.end:
            yield each
            done = each.end


def _password(user: re.Match[str]) -> _Span:
    """Return where the password is; on the web, a user without one may be a token."""
    name, colon, _ = user[1].partition(":")
    is_token = (
        user.string[max(user.start() - 5, 0) : user.start()].lower().endswith(("http", "https"))
    )
    start = user.start(1) + len(name) + 1 if colon or not is_token else user.start(1)
    return _Span("", start, user.end(1))


def secrets_of(url: str) -> list[str]:
    """List the secrets of a URL, or the marks in place of them."""
    return [url[each.start : each.end] for each in _spans(url)]


def open_secrets(url: str) -> list[str]:
    """List the secrets of a URL that are neither marks nor masked."""
    return [each for each in secrets_of(url) if each != MASK and not MARK.fullmatch(each)]


def marked(url: str, tag: Callable[[str], str]) -> str:
    """Return a URL with a mark in place of each secret; `tag` hashes one."""

    def mark(_: str, secret: str) -> str:
        return secret if MARK.fullmatch(secret) or secret == MASK else MASK + tag(secret)

    return _replaced(url, _spans(url), mark)


def identity(url: str) -> str:
    """Return what a marked URL stays when its password or signature is another one.

    The marks of other parameters stay: `?key=a` and `?key=b` may be two files.
    """
    if "://" not in url:
        return url
    is_signed = any(_SIGNED.fullmatch(each.name) for each in _spans(url))

    def shorten(name: str, secret: str) -> str:
        return MASK if not name or _SIGNED.fullmatch(name) else secret

    url = _replaced(url, _spans(url), shorten)
    if not is_signed:
        return url
    beside = _IN_URL.spans(url, 0, lambda name: name.lower() in _BESIDE_A_SIGNATURE)
    return _replaced(url, beside, lambda name, value: MASK)


def _replaced(text: str, spans: Iterable[_Span], replace: Callable[[str, str], str]) -> str:
    parts, done = [], 0
    for each in spans:
        parts += [text[done : each.start], replace(each.name, text[each.start : each.end])]
        done = each.end
    return "".join([*parts, text[done:]])


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with every text in it changed, also the names of its fields."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {each_text(k, change): each_text(v, change) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [each_text(each, change) for each in value]
    return value


def masked(text: str) -> str:
    """Return a URL or a text, JSON too, without the secrets of the URLs in it."""
    if "://" not in text:
        return text
    return MARK.sub(MASK, _replaced(text, _spans(text), lambda name, value: MASK))


def masked_values(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the values with the texts of these names masked."""
    return values | {
        name: masked(value) for name in names if isinstance(value := values.get(name), str)
    }


def masked_json(text: str | None) -> Any:
    """Return what a JSON text holds, masked; None for None."""
    if text is None:
        return None
    found = json.loads(text)
    return each_text(found, masked) if "://" in text else found
