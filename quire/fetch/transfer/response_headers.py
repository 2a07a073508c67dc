"""Parses HTTP response headers: ranges, lengths, digests and Retry-After."""

import base64
import binascii
import json
import re
from email.utils import parsedate_to_datetime
from typing import NamedTuple

_RANGE = re.compile(r"bytes\s+(\d+)-(\d+)/(\d+|\*)")
_EMPTY_RANGE = re.compile(r"bytes\s+\*/(\d+)")
_RATE_LIMITS = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})
_MD5 = re.compile(r"[0-9a-f]{32}")


class Span(NamedTuple):
    """The byte range of a response: `start` to `stop` (exclusive) of `total`."""

    start: int
    stop: int
    total: int | None


def span(headers: dict[str, str]) -> Span | None:
    """Parse Content-Range."""
    if not (found := _RANGE.match(headers.get("content-range", ""))):
        return None
    total = None if found[3] == "*" else int(found[3])
    return Span(int(found[1]), int(found[2]) + 1, total)


def total_of_unmet_range(headers: dict[str, str]) -> int | None:
    """Parse the file size in a 416 response."""
    found = _EMPTY_RANGE.match(headers.get("content-range", ""))
    return int(found[1]) if found else None


def length(headers: dict[str, str]) -> int | None:
    """Parse Content-Length."""
    text = headers.get("content-length", "")
    return int(text) if text.isdigit() else None


def retry_after(headers: dict[str, str], now: float) -> float | None:
    """Parse Retry-After, seconds or a date, as seconds from the wall-clock time `now`."""
    text = headers.get("retry-after", "").strip()
    if text.isdigit():
        return float(text)
    at = moment(text)
    return None if at is None else max(0.0, at - now)


def moment(text: str) -> float | None:
    """Parse a date, or return None if it is malformed."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError):
        return None


def is_rate_limit(body: str) -> bool:
    """Tell whether a 403 from Google is a rate limit."""
    try:
        errors = json.loads(body)["error"]["errors"]
        return any(str(each.get("reason", "")) in _RATE_LIMITS for each in errors)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def google_message(body: str) -> str:
    """Return the message of a Google API error, or ''."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def is_strong(etag: str | None) -> bool:
    """Tell whether an ETag is strong: equal tags mean equal bytes."""
    return bool(etag) and not str(etag).startswith("W/")


def digests(headers: dict[str, str], *, whole: bool) -> dict[str, str]:
    """Return the hashes of the whole file in the headers, in hex by algorithm."""
    named = headers.get("x-goog-hash", "") + "," + headers.get("repr-digest", "")
    pairs = [each.strip().partition("=") for each in named.split(",")]
    texts = {name.lower(): value.strip(":") for name, _, value in pairs}
    texts["md5"] = headers.get("x-ms-blob-content-md5") or texts.get("md5", "")
    if whole and not texts["md5"]:
        texts["md5"] = headers.get("content-md5", "")
    known = {"md5": (texts["md5"], 16), "sha256": (texts.get("sha-256", ""), 32)}
    found = {name: _hex(text, size) for name, (text, size) in known.items()}
    return {name: value for name, value in found.items() if value}


def md5_of_etag(headers: dict[str, str]) -> str:
    """Return the MD5 in a bucket's ETag, or '' if it is something else."""
    # With KMS keys the ETag is not an MD5, although it may look like one.
    if headers.get("x-amz-server-side-encryption", "AES256") != "AES256":
        return ""
    if "x-amz-server-side-encryption-customer-algorithm" in headers:
        return ""
    text = headers.get("etag", "").strip('"')
    return text if _MD5.fullmatch(text) else ""


def _hex(text: str, size: int) -> str:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return ""
    return raw.hex() if len(raw) == size else ""
