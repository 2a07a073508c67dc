"""Builds the container image and tests it on a Docker daemon, alone or with `quire deploy compose`.

    .venv/bin/python tools/container_tests.py image      one container on SQLite: ingest, stop,
                                                         continue in a new container
    .venv/bin/python tools/container_tests.py compose    all containers with two workers: kill one,
                                                         restart PostgreSQL, flush Redis

PIP_CONF names a pip.conf with your own package index, IMAGE the tag. Containers and volumes are
called quire-test, and are removed at the end.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote

import quire
from quire.demo import samples

ROOT = Path(__file__).resolve().parents[1]
IMAGE = os.environ.get("IMAGE", f"quire:{quire.__version__}")
NAME = "quire-test"
#: Each document has a unique word, as text or in a scan.
TEXTS = ("cider", "herring", "lantern", "anchor", "ballast", "compass")
SCANS = ("thunder", "orchard")
HARDENED = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL")  # noqa: S108

T = TypeVar("T")


def run(*words: str, within: float = 120, may_fail: bool = False) -> str:
    """Run a command; returns its output. Exits if it fails, unless `may_fail`."""
    ended = subprocess.run(words, capture_output=True, text=True, timeout=within)
    if ended.returncode and not may_fail:
        said = f"{ended.stdout}{ended.stderr}".strip()
        sys.exit(f"container tests: {' '.join(words)}: exit code {ended.returncode}.\n{said}")
    return ended.stdout.strip()


def docker(*words: str, within: float = 120, may_fail: bool = False) -> str:
    return run("docker", *words, within=within, may_fail=may_fail)


def until(found: Callable[[], T], what: str, within: float = 180) -> T:
    """Poll `found` until it returns something; exits after `within` seconds."""
    end = time.monotonic() + within
    while not (seen := found()):
        if time.monotonic() > end:
            sys.exit(f"container tests: {what}: not within {within:g} s.")
        time.sleep(0.5)
    return seen


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


class Api:
    """The API in a container."""

    def __init__(self, container: str) -> None:
        self.root = f"http://{port(container, 8750)}"
        self.token = docker("exec", container, "quire", "token", "create", NAME)

    def __call__(self, path: str, body: bytes | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        return json.loads(ask(f"{self.root}/api/{path}", headers, body))

    def upload(self, word: str) -> None:
        paragraphs = [f"In the harbour they speak of {word}."]
        page = samples.scanned_page if word in SCANS else samples.text_page
        self(f"documents?name={word}.pdf", samples.pdf([page(paragraphs)]))

    def states(self) -> dict[str, str]:
        return {each["name"]: each["state"] for each in self("documents?limit=100")["items"]}

    def pages(self, word: str) -> list[tuple[str, int]]:
        """Return the names and pages where a word is found."""
        items = self(f"search?mode=text&q={quote(word)}")["items"]
        return sorted((each["name"], each["page"]) for each in items)


def ask(url: str, headers: dict[str, str], body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, body, headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        found: bytes = answer.read()
    return found


def port(container: str, number: int) -> str:
    return docker("port", container, str(number)).splitlines()[0]


def health(container: str) -> str:
    return docker("inspect", "-f", "{{if .State.Health}}{{.State.Health.Status}}{{end}}", container)


def check(claim: str, is_true: object) -> None:
    if not is_true:
        sys.exit(f"container tests: FAILED: {claim}.")
    say(claim)


def check_found(api: Api, word: str) -> None:
    found = api.pages(word)
    check(f"{word!r} is found in {found}", found == [(f"{word}.pdf", 1)])


# ---------------------------------------------------------------------- one container


def build() -> None:
    """Build the image, and print its size and the time it took."""
    own = os.environ.get("PIP_CONF")
    secret = ["--secret", f"id=pip,src={own}"] if own else []
    os.environ.setdefault("DOCKER_BUILDKIT", "1")
    began = time.monotonic()
    docker("build", *secret, "-t", IMAGE, str(ROOT), within=3600)
    size = int(docker("image", "inspect", "-f", "{{.Size}}", IMAGE)) / 1e6
    say(f"{IMAGE}: {size:.0f} MB, built in {time.monotonic() - began:.0f} s")


def start() -> Api:
    """Run one container on the volume, and wait until it is healthy."""
    began = time.monotonic()
    docker("run", "-d", "--name", NAME, *HARDENED, "-p", "127.0.0.1::8750",
           "-v", f"{NAME}:/var/lib/quire", IMAGE)  # fmt: skip
    until(lambda: health(NAME) == "healthy", "a healthy container")
    say(f"healthy after {time.monotonic() - began:.0f} s")
    return Api(NAME)


def test_image() -> None:
    """Ingest documents, stop during a job, and find everything in the next container."""
    check("`quire --help` runs", "ingest" in docker("run", "--rm", IMAGE, "quire", "--help"))
    api = start()
    check("it does not run as root", docker("exec", NAME, "id", "-u") == "10001")
    for word in (*TEXTS[:1], *SCANS[:1]):
        api.upload(word)
        until(lambda: set(api.states().values()) == {"success"}, "documents to be ingested")
        check_found(api, word)
    made = docker("exec", NAME, "quire", "submit", "wait", "--arg", "seconds=5", "--json")
    job = json.loads(made)["id"]
    until(lambda: api(f"jobs/{job}")["state"] == "running", "a running job")
    began = time.monotonic()
    docker("stop", "-t", "60", NAME)
    code = docker("inspect", "-f", "{{.State.ExitCode}}", NAME)
    check(f"it stopped with {code} after {time.monotonic() - began:.0f} s", code == "0")
    docker("rm", NAME)
    api = start()
    check("the running job was completed", api(f"jobs/{job}")["state"] == "completed")
    check_found(api, SCANS[0])
    check("the doctor finds nothing", docker("exec", NAME, "quire", "doctor", "--deep"))


# ---------------------------------------------------------------------- all containers


class Composed:
    """The files of `quire deploy compose`, with a separate project name and free ports."""

    def __init__(self, folder: Path) -> None:
        run(str(Path(sys.executable).with_name("quire")), "deploy", "compose",
            "--folder", str(folder))  # fmt: skip
        file = folder / "compose.yaml"
        text = file.read_text()
        for number in ("8750", "5555"):
            text = text.replace(f"127.0.0.1:{number}:{number}", f"127.0.0.1::{number}")
        file.write_text(text)
        self.folder = folder
        self.words = ("compose", "-p", NAME, "-f", str(file))

    def __call__(self, *words: str, within: float = 300, may_fail: bool = False) -> str:
        return docker(*self.words, *words, within=within, may_fail=may_fail)

    def of(self, part: str) -> Sequence[str]:
        return self("ps", "-aq", part).split()

    def all_healthy(self) -> bool:
        ids = self("ps", "-q").split()
        return all(health(each) in ("healthy", "") for each in ids)

    def secret(self, name: str) -> str:
        return (self.folder / "secrets" / name).read_text().strip()


def test_compose() -> None:
    """Ingest documents while a worker is killed, PostgreSQL restarts and messages are lost."""
    with tempfile.TemporaryDirectory() as folder:
        composed = Composed(Path(folder) / "deploy")
        try:
            os.environ["IMAGE"] = IMAGE
            composed("up", "-d", "--scale", "worker=2", within=600)
            until(composed.all_healthy, "all containers healthy")
            check("all are healthy, two workers", len(composed.of("worker")) == 2)
            _test_failures(composed)
            _test_flower(composed)
            began = time.monotonic()
            composed("stop", "-t", "60")
            took = time.monotonic() - began
            check(f"all stopped after {took:.0f} s", took < 60)
        except BaseException:
            print(composed("logs", "--tail", "20", may_fail=True))
            raise
        finally:
            composed("down", "-v", "-t", "60", may_fail=True)


def _test_failures(composed: Composed) -> None:
    [api_container], (first, _) = composed.of("api"), composed.of("worker")
    [postgres], [redis] = composed.of("postgres"), composed.of("redis")
    api, wanted = Api(api_container), {f"{word}.pdf": "success" for word in (*TEXTS, *SCANS)}
    for word in (*SCANS, *TEXTS):
        api.upload(word)
    until(lambda: "success" in api.states().values(), "a first document to be ingested")
    docker("kill", "-s", "KILL", first)
    say(f"a worker was killed, with {list(api.states().values()).count('success')} of 8 done")
    docker("exec", redis, "sh", "-c",
           'REDISCLI_AUTH="$(cat /run/secrets/redis_password)" valkey-cli flushall')  # fmt: skip
    docker("restart", "-t", "60", postgres)
    say("Redis was flushed, PostgreSQL restarted")
    until(lambda: _quietly(api.states) == wanted, "all documents to be ingested", within=600)
    for word in (*TEXTS, *SCANS):
        check_found(api, word)
    docker("start", first)
    until(composed.all_healthy, "all containers healthy again")
    check("the doctor finds nothing", docker("exec", api_container, "quire", "doctor", "--deep"))


def _test_flower(composed: Composed) -> None:
    [flower] = composed.of("flower")
    url = f"http://{port(flower, 5555)}/api/workers?refresh=1"
    login = base64.b64encode(composed.secret("flower_basic_auth").encode()).decode()
    known = json.loads(ask(url, {"Authorization": f"Basic {login}"}))
    check("Flower shows both workers", len(known) >= 2)
    check("Flower asks for its password", _quietly(lambda: ask(url, {})) is None)


def _quietly(call: Callable[[], T]) -> T | None:
    """Call a function that may fail while the database is unreachable; returns None then."""
    try:
        return call()
    except (HTTPError, OSError):
        return None


def main() -> None:
    test = {"image": test_image, "compose": test_compose}.get(" ".join(sys.argv[1:]))
    if test is None:
        sys.exit("container tests: expected image or compose.")
    program = shutil.which("docker")
    if program is None or subprocess.run([program, "info"], capture_output=True).returncode:
        sys.exit("container tests: no Docker daemon answers. Start one, or set DOCKER_HOST.")
    build()
    try:
        test()
    finally:
        docker("rm", "-f", NAME, may_fail=True)
        docker("volume", "rm", "-f", NAME, may_fail=True)


if __name__ == "__main__":
    main()
