"""Several hosts on one machine, each with an address, a name and a home of its own.

With the right to it, a host is a set of Linux namespaces: network (one end of a cable whose other
end is in a switch), name, process ids, and mounts that hide every other home. They end with the
processes in them, however the test ends. Elsewhere a host is an address 127.0.0.x that reaches the
database through a proxy of its own.
"""

from __future__ import annotations

import functools
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tests import postgres
from tests.integration.processes import Running
from tests.proxy import Proxy
from tests.waiting import until

HUB = "10.77.0.1"


class Network(Protocol):
    """What connects the hosts."""

    @property
    def server(self) -> postgres.Server:
        """The database server."""
        ...

    @property
    def hub(self) -> str:
        """The address where servers listen that every host uses."""
        ...

    def address(self, host: str) -> str:
        """The address of a host."""
        ...

    def reach(self, host: str, port: int) -> tuple[str, int]:
        """A port of the hub as that host reaches it, unless it is isolated."""
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
        self._in("hub", "ip link set lo up")
        for name in hosts:
            self._plug_in(name)

    @property
    def server(self) -> postgres.Server:
        return self._server

    @property
    def hub(self) -> str:
        return HUB

    def address(self, host: str) -> str:
        return f"10.77.0.{self._numbers[host]}"

    def reach(self, host: str, port: int) -> tuple[str, int]:
        return HUB, port

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
            name: [Proxy(folder / ".s.PGSQL.5432", self.address(name))] for name in hosts
        }

    @property
    def server(self) -> postgres.Server:
        return self._server

    @property
    def hub(self) -> str:
        return "127.0.0.1"

    def address(self, host: str) -> str:
        # Elsewhere than on Linux, 127.0.0.1 is the only address of the loopback.
        return f"127.0.0.{self._numbers[host]}" if sys.platform == "linux" else "127.0.0.1"

    def reach(self, host: str, port: int) -> tuple[str, int]:
        self._proxies[host].append(Proxy((self.hub, port), self.address(host)))
        return self._proxies[host][-1].address

    def free_port(self, host: str) -> int:
        with socket.create_server((self.address(host), 0)) as found:
            return int(found.getsockname()[1])

    def database_url(self, host: str) -> str:
        address, port = self._proxies[host][0].address
        return f"postgresql://postgres@{address}:{port}/quire"

    def prefix(self, host: str, home: Path) -> Sequence[str]:
        home.mkdir(parents=True, exist_ok=True)
        return []

    def inside(self, running: Running, home: Path) -> Path:
        return home

    def asking(self) -> Sequence[str]:
        return []

    def isolate(self, host: str) -> None:
        for proxy in self._proxies[host]:
            proxy.drop()

    def rejoin(self, host: str) -> None:
        for proxy in self._proxies[host]:
            proxy.heal()

    def close(self) -> None:
        for proxy in (each for some in self._proxies.values() for each in some):
            proxy.close()


@functools.cache
def may_make_namespaces() -> bool:
    """Tell whether this user may build a network of namespaces here."""
    if not all(map(shutil.which, ("ip", "nsenter", "unshare", "setpriv", "hostname"))):
        return False
    try_out = "ip link add br0 type bridge && ip link add p0 type veth && mount -t tmpfs t /mnt"
    own = ["--net", "--uts", "--pid", "--fork", "--mount", "--mount-proc"]
    tried = subprocess.run(["unshare", *own, "sh", "-c", try_out], capture_output=True)
    return tried.returncode == 0


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
