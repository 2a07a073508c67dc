"""Logs one line per event: `12:04:05 info task.claim task=8123 job=77 worker=w2`, or JSON.

An event has a name and fields, which are keyword arguments. Secrets of URLs in them are masked.
"""

import contextlib
import contextvars
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from quire.url_secrets import masked

#: Longest field that a child passes on.
MAX_FIELD = 500
_logger = logging.getLogger("quire")
_bound: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("bound", default={})  # noqa: B039


def setup(*, as_json: bool = False, level: str = "info") -> None:
    """Send the events of this process to standard error."""
    shape = _Json() if as_json else _Text()
    out = logging.StreamHandler(sys.stderr)
    out.setFormatter(shape)
    _logger.handlers[:] = [out]
    _logger.setLevel(level.upper())
    _logger.propagate = False


def send_to(send: Callable[[str, str, dict[str, str]], None]) -> None:
    """Pass warnings and errors of this process, a child, to the log of its worker."""
    _logger.handlers[:] = [_Passing(send)]
    _logger.setLevel("WARNING")
    _logger.propagate = False


def event(name: str, /, *, level: str = "info", **fields: Any) -> None:
    """Log an event."""
    fields = {**_bound.get(), **fields}
    _logger.log(logging.getLevelName(level.upper()), name, extra={"fields": fields})


@contextlib.contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """Add fields to every event of the block, also in threads that copy its context."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def trouble(name: str, error: BaseException, **fields: Any) -> None:
    """Log an error that a loop survived."""
    event(name, level="error", error=f"{type(error).__name__}: {error}", **fields)


class _Passing(logging.Handler):
    def __init__(self, send: Callable[[str, str, dict[str, str]], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        fields = {k: str(v)[:MAX_FIELD] for k, v in _fields(record).items()}
        self._send(record.levelname.lower(), record.getMessage(), fields)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.gmtime(record.created))
        fields = "".join(f" {k}={_quoted(v)}" for k, v in _fields(record).items())
        return f"{at} {record.levelname.lower()} {record.getMessage()}{fields}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "at": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **_fields(record),
        }
        return json.dumps(line, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = {k: v for k, v in getattr(record, "fields", {}).items() if v is not None}
    return {k: masked(v) if isinstance(v, str) else v for k, v in fields.items()}


def _quoted(value: object) -> str:
    text = str(value)
    needs_quotes = text == "" or not set(text).isdisjoint(' "\n\r=')
    return json.dumps(text, ensure_ascii=False) if needs_quotes else text
