"""Builds the image and tries it, alone or as `quire deploy compose` runs it, on a Docker daemon.

    .venv/bin/python tools/trial.py image      one container on SQLite: ingest, stop, replace
    .venv/bin/python tools/trial.py compose    all containers, two workers; one is killed,
                                               PostgreSQL restarted, Redis flushed

PIP_CONF names a pip.conf for an index of your own, IMAGE the tag. What the trial makes is called
quire-trial, and is removed at its end.
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
NAME = "quire-trial"
#: Each document has a word that no other has, in text or in a picture of text.
TEXTS = ("cider", "herring", "lantern", "anchor", "ballast", "compass")
SCANS = ("thunder", "orchard")
CLOSED = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL")  # noqa: S108

T = TypeVar("T")


def run(*words: str, within: float = 120, fails: bool = False) -> str:
    """Run a command to its end; returns what it printed."""
    ended = subprocess.run(words, capture_output=True, text=True, timeout=within)
    if ended.returncode and not fails:
        said = f"{ended.stdout}{ended.stderr}".strip()
        sys.exit(f"trial: {' '.join(words)}: exit code {ended.returncode}.\n{said}")
    return ended.stdout.strip()


def docker(*words: str, within: float = 120, fails: bool = False) -> str:
    return run("docker", *words, within=within, fails=fails)


def until(found: Callable[[], T], what: str, within: float = 180) -> T:
    """Look again and again; returns the first thing found."""
    end = time.monotonic() + within
    while not (seen := found()):
        if time.monotonic() > end:
            sys.exit(f"trial: {what}: not within {within:g} s.")
        time.sleep(0.5)
    return seen


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


class Api:
    """The API of a container."""

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
        """Where a word is found, by names and pages."""
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


def check(told: str, is_so: object) -> None:
    if not is_so:
        sys.exit(f"trial: NOT SO: {told}.")
    say(told)


def check_found(api: Api, word: str) -> None:
    found = api.pages(word)
    check(f"{word!r} is found in {found}", found == [(f"{word}.pdf", 1)])


# ---------------------------------------------------------------------- one container


def build() -> None:
    """Build the image, and say what it costs."""
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
    docker("run", "-d", "--name", NAME, *CLOSED, "-p", "127.0.0.1::8750",
           "-v", f"{NAME}:/var/lib/quire", IMAGE)  # fmt: skip
    until(lambda: health(NAME) == "healthy", "a healthy container")
    say(f"healthy after {time.monotonic() - began:.0f} s")
    return Api(NAME)


def try_image() -> None:
    """Take documents in, stop in the middle of a job, and find all of it in the next container."""
    check("`quire --help` runs", "ingest" in docker("run", "--rm", IMAGE, "quire", "--help"))
    api = start()
    check("it does not run as root", docker("exec", NAME, "id", "-u") == "10001")
    for word in (*TEXTS[:1], *SCANS[:1]):
        api.upload(word)
        until(lambda: set(api.states().values()) == {"success"}, "documents taken in")
        check_found(api, word)
    job = api("jobs", json.dumps({"kind": "wait", "payload": {"seconds": 5}}).encode())["id"]
    until(lambda: api(f"jobs/{job}")["state"] == "running", "a running job")
    began = time.monotonic()
    docker("stop", "-t", "60", NAME)
    code = docker("inspect", "-f", "{{.State.ExitCode}}", NAME)
    check(f"it stopped with {code} after {time.monotonic() - began:.0f} s", code == "0")
    docker("rm", NAME)
    api = start()
    check("what was running had ended", api(f"jobs/{job}")["state"] == "completed")
    check_found(api, SCANS[0])
    check("the doctor finds nothing", docker("exec", NAME, "quire", "doctor", "--deep"))


# ---------------------------------------------------------------------- all containers


class Composed:
    """What `quire deploy compose` writes, under a name of its own and on free ports."""

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

    def __call__(self, *words: str, within: float = 300, fails: bool = False) -> str:
        return docker(*self.words, *words, within=within, fails=fails)

    def of(self, part: str) -> Sequence[str]:
        return self("ps", "-aq", part).split()

    def all_well(self) -> bool:
        ids = self("ps", "-q").split()
        return all(health(each) in ("healthy", "") for each in ids)

    def secret(self, name: str) -> str:
        return (self.folder / "secrets" / name).read_text().strip()


def try_compose() -> None:
    """Take documents in while a worker, PostgreSQL and the messages go away."""
    with tempfile.TemporaryDirectory() as folder:
        composed = Composed(Path(folder) / "deploy")
        try:
            os.environ["IMAGE"] = IMAGE
            composed("up", "-d", "--scale", "worker=2", within=600)
            until(composed.all_well, "all containers healthy")
            check("all are healthy, two workers", len(composed.of("worker")) == 2)
            _try_deaths(composed)
            _try_flower(composed)
            began = time.monotonic()
            composed("stop", "-t", "60")
            took = time.monotonic() - began
            check(f"all stopped after {took:.0f} s", took < 60)
        except BaseException:
            print(composed("logs", "--tail", "20", fails=True))
            raise
        finally:
            composed("down", "-v", "-t", "60", fails=True)


def _try_deaths(composed: Composed) -> None:
    [api_container], (first, _) = composed.of("api"), composed.of("worker")
    [postgres], [redis] = composed.of("postgres"), composed.of("redis")
    api, wanted = Api(api_container), {f"{word}.pdf": "success" for word in (*TEXTS, *SCANS)}
    for word in (*SCANS, *TEXTS):
        api.upload(word)
    until(lambda: "success" in api.states().values(), "a first document taken in")
    docker("kill", "-s", "KILL", first)
    say(f"a worker was killed, with {list(api.states().values()).count('success')} of 8 done")
    docker("exec", redis, "sh", "-c",
           'REDISCLI_AUTH="$(cat /run/secrets/redis_password)" valkey-cli flushall')  # fmt: skip
    docker("restart", "-t", "60", postgres)
    say("Redis was flushed, PostgreSQL restarted")
    until(lambda: _quietly(api.states) == wanted, "all documents taken in", within=600)
    for word in (*TEXTS, *SCANS):
        check_found(api, word)
    docker("start", first)
    until(composed.all_well, "all containers healthy again")
    check("the doctor finds nothing", docker("exec", api_container, "quire", "doctor", "--deep"))


def _try_flower(composed: Composed) -> None:
    [flower] = composed.of("flower")
    url = f"http://{port(flower, 5555)}/api/workers?refresh=1"
    login = base64.b64encode(composed.secret("flower_basic_auth").encode()).decode()
    known = json.loads(ask(url, {"Authorization": f"Basic {login}"}))
    check("Flower shows both workers", len(known) >= 2)
    check("Flower asks for its password", _quietly(lambda: ask(url, {})) is None)


def _quietly(call: Callable[[], T]) -> T | None:
    """Call what may be refused while the database is away."""
    try:
        return call()
    except (HTTPError, OSError):
        return None


def main() -> None:
    wanted = {"image": try_image, "compose": try_compose}.get(" ".join(sys.argv[1:]))
    if wanted is None:
        sys.exit("trial: name one of image, compose.")
    program = shutil.which("docker")
    if program is None or subprocess.run([program, "info"], capture_output=True).returncode:
        sys.exit("trial: no Docker daemon answers here. Start one, or name it by DOCKER_HOST.")
    build()
    try:
        wanted()
    finally:
        docker("rm", "-f", NAME, fails=True)
        docker("volume", "rm", "-f", NAME, fails=True)


if __name__ == "__main__":
    main()
