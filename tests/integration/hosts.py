"""Several hosts on one machine, each with an address, a name and a home of its own.

With the right to it, a host is a set of Linux namespaces: network (one end of a cable whose other
end is in a switch), name, process ids, and mounts that hide every other home. They end with the
processes in them, however the test ends. Elsewhere a host is an address 127.0.0.x that reaches the
database through a proxy of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil

from tests import postgres
from tests.integration.processes import HANDLERS, ROOT, SHORT, Running
from tests.proxy import Proxy
from tests.waiting import until

HUB = "10.77.0.1"
#: Sends one request, read from stdin, and writes the answer to stdout; told to wait, it waits.
_ASK = """
import json, sys, threading, urllib.error, urllib.request
asked = json.load(sys.stdin)
body = None if asked["body"] is None else json.dumps(asked["body"]).encode()
request = urllib.request.Request(asked["url"], body, asked["headers"], method=asked["method"])
for turn in range(10):
    try:
        answer = urllib.request.urlopen(request, timeout=60)
        break
    except urllib.error.HTTPError as error:
        answer = error
        if error.status != 503:
            break
        threading.Event().wait(float(error.headers["Retry-After"]))
json.dump([answer.status, answer.read().decode()], sys.stdout)
"""


class Network(Protocol):
    """What connects the hosts."""

    @property
    def server(self) -> postgres.Server:
        """The database server."""
        ...

    def address(self, host: str) -> str:
        """The address of a host."""
        ...

    def free_port(self, host: str) -> int:
        """A port of that address that nobody uses."""
        ...

    def database_url(self, host: str) -> str:
        """The database as that host reaches it."""
        ...

    def prefix(self, host: str, home: Path) -> Sequence[str]:
        """How a program is started on that host, with a home that only it sees."""
        ...

    def inside(self, running: Running, home: Path) -> Path:
        """A home as the test sees it, though other hosts do not."""
        ...

    def asking(self) -> Sequence[str]:
        """How a program is started on a host of people, which asks the API."""
        ...

    def isolate(self, host: str) -> None:
        """Pull the plug."""
        ...

    def rejoin(self, host: str) -> None:
        """Put it back."""
        ...

    def close(self) -> None:
        """Take everything down."""
        ...


class Namespaces:
    """A switch in a namespace of its own, where the database listens, and a cable to each host."""

    def __init__(self, folder: Path, hosts: Sequence[str]) -> None:
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._numbers = {name: at for at, name in enumerate(hosts, start=2)}
        self._server = postgres.Server(
            folder, "quire", address=HUB, prefix=["nsenter", self._net_of("hub")]
        )
        self._in("hub", "ip link add br0 type bridge")
        self._in("hub", f"ip address add {HUB}/24 dev br0")
        self._in("hub", "ip link set br0 up")
        for name in hosts:
            self._plug_in(name)

    @property
    def server(self) -> postgres.Server:
        return self._server

    def address(self, host: str) -> str:
        return f"10.77.0.{self._numbers[host]}"

    def free_port(self, host: str) -> int:
        return 8750

    def database_url(self, host: str) -> str:
        return f"postgresql://postgres@{HUB}/quire"

    def prefix(self, host: str, home: Path) -> Sequence[str]:
        hide = f'mount -t tmpfs tmpfs "{home.parent}" && mkdir "{home}" && exec "$@"'
        name = f"--uts=/proc/{self._holders[host].pid}/ns/uts"
        own = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return ["nsenter", self._net_of(host), name, *own, "sh", "-c", hide, "sh"]

    def inside(self, running: Running, home: Path) -> Path:
        [first] = until(lambda: running.children()[:1])
        return Path(f"/proc/{first.pid}/root{home}")

    def asking(self) -> Sequence[str]:
        return ["nsenter", self._net_of("hub")]

    def isolate(self, host: str) -> None:
        self._in("hub", f"ip link set p{self._numbers[host]} down")

    def rejoin(self, host: str) -> None:
        self._in("hub", f"ip link set p{self._numbers[host]} up")

    def close(self) -> None:
        for holder in self._holders.values():
            holder.kill()
            holder.wait()

    def _plug_in(self, name: str) -> None:
        number = self._numbers[name]
        self._net_of(name)
        at = f"/proc/{self._holders[name].pid}/ns/net"
        self._in("hub", f"ip link add p{number} type veth peer name eth0 netns {at}")
        self._in("hub", f"ip link set p{number} master br0 up")
        self._in(name, f"ip address add {self.address(name)}/24 dev eth0")
        self._in(name, "ip link set eth0 up")
        self._in(name, "ip link set lo up")
        _run("nsenter", f"--uts=/proc/{self._holders[name].pid}/ns/uts", "hostname", name)

    def _net_of(self, name: str) -> str:
        if name not in self._holders:
            self._holders[name] = _hold_namespaces()
        return f"--net=/proc/{self._holders[name].pid}/ns/net"

    def _in(self, name: str, command: str) -> None:
        _run("nsenter", self._net_of(name), *command.split())


class Loopback:
    """Addresses of this machine, and a proxy between each host and the database."""

    def __init__(self, folder: Path, hosts: Sequence[str]) -> None:
        self._server = postgres.Server(folder, "quire")
        self._numbers = {name: at for at, name in enumerate(hosts, start=11)}
        self._proxies = {
            name: Proxy(folder / ".s.PGSQL.5432", self.address(name)) for name in hosts
        }

    @property
    def server(self) -> postgres.Server:
        return self._server

    def address(self, host: str) -> str:
        # Elsewhere than on Linux, 127.0.0.1 is the only address of the loopback.
        return f"127.0.0.{self._numbers[host]}" if sys.platform == "linux" else "127.0.0.1"

    def free_port(self, host: str) -> int:
        with socket.create_server((self.address(host), 0)) as found:
            return int(found.getsockname()[1])

    def database_url(self, host: str) -> str:
        address, port = self._proxies[host].address
        return f"postgresql://postgres@{address}:{port}/quire"

    def prefix(self, host: str, home: Path) -> Sequence[str]:
        home.mkdir(parents=True, exist_ok=True)
        return []

    def inside(self, running: Running, home: Path) -> Path:
        return home

    def asking(self) -> Sequence[str]:
        return []

    def isolate(self, host: str) -> None:
        self._proxies[host].drop()

    def rejoin(self, host: str) -> None:
        self._proxies[host].heal()

    def close(self) -> None:
        for proxy in self._proxies.values():
            proxy.close()


def may_make_namespaces() -> bool:
    """Tell whether this user may build a network of namespaces here."""
    if not all(map(shutil.which, ("ip", "nsenter", "unshare", "setpriv", "hostname"))):
        return False
    try_out = "ip link add br0 type bridge && ip link add p0 type veth && mount -t tmpfs t /mnt"
    own = ["--net", "--uts", "--pid", "--fork", "--mount", "--mount-proc"]
    tried = subprocess.run(["unshare", *own, "sh", "-c", try_out], capture_output=True)
    return tried.returncode == 0


class Host:
    """A host with one process of Quire on it."""

    def __init__(self, network: Network, folder: Path, name: str) -> None:
        self.network = network
        self.name = name
        self.home = folder / "hosts" / name
        self._log = folder / f"{name}.log"
        self.running: Running | None = None

    @property
    def address(self) -> str:
        return self.network.address(self.name)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self, command: str, **settings: Any) -> None:
        """Start `quire command` there, and wait until it says so."""
        given: dict[str, Any] = {
            "home": self.home, "plugins": HANDLERS, **SHORT, "lease_seconds": 6, "user": "ada",
            "database_url": self.network.database_url(self.name), **settings,
        }  # fmt: skip
        own = {f"QUIRE_{name.upper()}": str(value) for name, value in given.items()}
        self.home.parent.mkdir(exist_ok=True)
        prefix = self.network.prefix(self.name, self.home)
        with self._log.open("ab") as out:
            popen = subprocess.Popen(
                [*prefix, sys.executable, "-m", "quire", command],
                env={**os.environ, **own, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd="/",
            )
        self.running = Running(popen, self._log)
        until(lambda: f"{command}.started" in self.log, what=lambda: self.log)

    def seen(self) -> Path:
        """Its home, as the test can reach it."""
        assert self.running is not None
        return self.network.inside(self.running, self.home)

    def open_gate(self) -> None:
        (self.seen() / "gate").touch()

    def traced(self, *words: str) -> bool:
        """Tell whether a handler there has written a line that begins with these words."""
        path = self.seen() / "trace.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return any(line.split()[: len(words)] == list(words) for line in lines)

    def kill(self) -> None:
        """End all its processes, as a loss of power would."""
        if self.running is None:
            return
        for each in self.running.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self.running.popen.wait(30)
        self.running = None


def ask(
    network: Network, method: str, url: str, token: str, body: dict[str, Any] | None = None
) -> tuple[int, Any]:
    """Send a request to the API from a host of people; returns the status and the answer."""
    asked: dict[str, Any] = {"method": method, "url": url, "body": body}
    asked["headers"] = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Idempotency-Key": uuid.uuid4().hex,
    }
    command = [*network.asking(), sys.executable, "-c", _ASK]
    ended = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, timeout=90
    )
    assert ended.returncode == 0, ended.stderr
    status, text = json.loads(ended.stdout)
    return status, json.loads(text)


def _hold_namespaces() -> subprocess.Popen[bytes]:
    """Start a process that keeps a network and a name; both end with it, and it with us."""
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "sleep", "infinity"]
    holder = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    own = Path("/proc/self/ns/net").readlink()

    def is_apart() -> bool:
        here = Path(f"/proc/{holder.pid}")
        is_asleep = (here / "comm").read_text().strip() == "sleep"
        return is_asleep and (here / "ns" / "net").readlink() != own

    until(is_apart, within=20)
    return holder


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)
