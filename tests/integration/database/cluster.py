"""Programs on the hosts of a network: Quire's own, an S3 server, and people who ask the API."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psutil

from quire.app import App
from quire.control import access, sign_in
from quire.settings import load
from tests.integration.database.hosts import Network
from tests.integration.fetch.fetch_places import SIGNED
from tests.integration.processes import HANDLERS, ROOT, SHORT, Running
from tests.waiting import until

NAMES = ("api", "first", "second", "clock")
#: Sends one request, read from stdin, and writes the answer to stdout; told to wait, it waits.
_ASK = """
import base64, json, sys, threading, urllib.error, urllib.request
asked = json.load(sys.stdin)
body = base64.b64decode(asked["body"]) or None
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
json.dump([answer.status, base64.b64encode(answer.read()).decode()], sys.stdout)
"""
#: Serves S3 until its stdin is closed, as it is when whoever started it ends in any way.
_STORE = """
import os, sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(sys.argv[1], port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
os._exit(0)
"""


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

    @property
    def worker(self) -> str:
        """The id of the worker there, from its log."""
        line = next(line for line in reversed(self.log.splitlines()) if "worker.started" in line)
        return next(word for word in line.split() if word.startswith("worker="))[7:]

    def kept(self, folder: str) -> set[str]:
        """The files of a folder of its home: digests in `cache`, ids of programs in `run`."""
        place = self.seen() / folder
        found = (path.relative_to(place) for path in place.rglob("*") if not path.is_dir())
        return {"".join(path.with_suffix("").parts) for path in found}

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


class Store:
    """A server of S3 at the hub, with one bucket in it."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._popen = subprocess.Popen(
            [*network.asking(), sys.executable, "-c", _STORE, network.hub],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @functools.cached_property
    def port(self) -> int:
        """Its port, as soon as it listens; the bucket is there then."""
        assert self._popen.stdout is not None
        port = int(self._popen.stdout.readline())
        status, told = self._ask("PUT", port, "")
        assert status == 200, told
        return port

    def settings(self, host: str) -> dict[str, Any]:
        """What a host has to know to keep its blobs there."""
        address, port = self.network.reach(host, self.port)
        return {"blobs": "s3://shelf/quire", "bucket_endpoint": f"http://{address}:{port}"}

    def blobs(self) -> set[str]:
        """The digests of what is in the bucket."""
        status, told = self._ask("GET", self.port, "?list-type=2")
        assert status == 200, told
        keys = re.findall(r"<Key>quire/(.+?)</Key>", told.decode())
        return {key.replace("/", "") for key in keys}

    def close(self) -> None:
        self._popen.communicate(timeout=30)

    def _ask(self, method: str, port: int, query: str) -> tuple[int, bytes]:
        url = f"http://{self.network.hub}:{port}/shelf{query}"
        return send(self.network, method, url, {"Authorization": SIGNED})


def send(
    network: Network, method: str, url: str, headers: dict[str, str], body: bytes = b""
) -> tuple[int, bytes]:
    """Send a request from a host of people; returns the status and the answer."""
    asked = {"method": method, "url": url, "headers": headers}
    command = [*network.asking(), sys.executable, "-c", _ASK]
    ended = subprocess.run(
        command,
        input=json.dumps({**asked, "body": base64.b64encode(body).decode()}),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert ended.returncode == 0, ended.stderr
    status, text = json.loads(ended.stdout)
    return status, base64.b64decode(text)


class Cluster:
    """The hosts, a person who asks the API, and an observer beside the database server."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        self.port = network.free_port("api")
        self.api, self.first, self.second, self.clock = (
            Host(network, folder, name) for name in NAMES
        )
        self.app = App(
            load({}, home=folder, database_url=network.server.url, plugins=(HANDLERS,), user="ada")
        )
        with self.app.db.begin() as conn:
            conn.exec_driver_sql("CREATE TABLE effects (tag TEXT, task BIGINT, fence BIGINT)")
        sign_in.first_start(self.app.caller)
        self._token = access.create_token(self.app.caller, "people", ["write"], None)["token"]

    def start_api(self, **settings: Any) -> None:
        address = {"api_host": self.api.address, "api_port": self.port}
        self.api.start("api", **address, api_requests_per_minute=0, **settings)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        content = b"" if body is None else json.dumps(body).encode()
        return json.loads(self.send(method, path, "application/json", content))

    def upload(self, files: dict[str, bytes], corpus: str) -> int:
        """Send files by one form, as a browser does; returns the job."""
        edge, parts = uuid.uuid4().hex, [('name="corpus"', corpus.encode())]
        parts += [(f'name="files"; filename="{name}"', files[name]) for name in files]
        lines = [
            b"--%b\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n"
            % (edge.encode(), disposition.encode(), content)
            for disposition, content in parts
        ]
        form = b"".join(lines) + b"--%b--\r\n" % edge.encode()
        kind = f"multipart/form-data; boundary={edge}"
        return int(json.loads(self.send("POST", "/api/documents", kind, form))["id"])

    def send(self, method: str, path: str, kind: str = "", body: bytes = b"") -> bytes:
        url = f"http://{self.api.address}:{self.port}{path}"
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": kind,
            "Idempotency-Key": uuid.uuid4().hex,
        }
        status, answer = send(self.network, method, url, headers, body)
        assert status < 300, answer
        return answer

    def submit(self, kind: str, **payload: Any) -> int:
        return int(self.ask("POST", "/api/jobs", {"kind": kind, "payload": payload})["id"])

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.app.db.read() as conn:
            return [tuple(row) for row in conn.exec_driver_sql(query)]

    def effects(self) -> list[str]:
        return sorted(tag for (tag,) in self.rows("SELECT tag FROM effects"))

    def holder_of(self, job: int) -> tuple[str | None, int]:
        [row] = self.rows(f"SELECT worker_id, fence FROM tasks WHERE job_id = {job}")
        return row

    def open_jobs(self) -> int:
        [(count,)] = self.rows("SELECT count(*) FROM jobs WHERE state IN ('pending', 'running')")
        return int(count)

    def logs(self) -> str:
        each = (self.api, self.first, self.second, self.clock)
        return "\n".join(f"--- {host.name}\n{host.log}" for host in each)

    def close(self) -> None:
        for host in (self.first, self.second, self.clock, self.api):
            host.kill()
        self.app.close()
