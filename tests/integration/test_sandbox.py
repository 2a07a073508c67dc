"""A file that takes its parser over finds nothing in its box, and leaves nothing behind.

`tests.exploit` runs in place of the parsers, through the same template and the same confinement.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from quire.errors import Permanent, Refused, Unreadable
from quire.model.pages import Page
from quire.parse import limits
from quire.parse.boxed_reader import BoxedReader
from quire.parse.parser import ReadOptions
from quire.sandbox import confine, landlock, seccomp
from quire.sandbox.box import BoxDied, Sandbox, TookTooLong
from quire.sandbox.messages import Message
from tests.waiting import until

Attempt = Any


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "blobs" / "ours"
    file.parent.mkdir()
    file.write_bytes(b"our own document")
    return file


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    if lacks := confine.missing():
        pytest.skip(f"no whole box here: {', '.join(lacks)}")
    monkeypatch.setenv("QUIRE_EMBED_API_KEY", "sk-secret")
    monkeypatch.setenv("QUIRE_DATABASE_URL", "postgresql://quire:secret@db/quire")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    found = Sandbox("tests.exploit", tmp_path / "box")
    yield found
    found.close()


@pytest.fixture
def attempt(sandbox: Sandbox, file: Path) -> Attempt:
    """Let the exploit try something; return what it tells."""

    def act(what: str, owner: str = "acme", **given: Any) -> dict[str, Any]:
        [message] = sandbox.ask(owner, {"do": what, **given}, file)
        return message.head

    return act


def refused(told: dict[str, Any]) -> bool:
    return str(told.get("refused")).startswith(("PermissionError", "OSError: [Errno 38]"))


def test_it_reads_its_own_file_and_the_installation_only(
    attempt: Attempt, tmp_path: Path, file: Path
):
    assert attempt("read", path=str(tmp_path / "box" / "ours")) == {"found": "b'our own document'"}
    other = file.with_name("theirs")
    other.write_bytes(b"a document of another tenant")
    database, secret = tmp_path / "quire.db", tmp_path / "quire.toml"
    database.write_bytes(b"SQLite format 3\0")
    secret.write_text("embed_api_key = 'sk-secret'")
    forbidden = [
        file, other, database, secret, Path("/etc/passwd"), Path("/proc/1/environ"),
        Path("/proc/self/environ"), Path(f"/proc/{os.getpid()}/environ"),
        Path(f"/proc/{os.getpid()}/mem"), Path("/proc/self/maps"), Path.home(), Path.cwd(),
    ]  # fmt: skip
    for path in forbidden:
        assert "refused" in attempt("read", path=str(path)), path
    (tmp_path / "box" / "link").symlink_to(other)
    assert refused(attempt("read", path=str(tmp_path / "box" / "link")))


def test_its_environment_and_descriptors_hold_nothing(attempt: Attempt):
    found = attempt("environment")["found"]
    assert "secret" not in repr(found)
    assert found.keys() <= {
        *confine.ENVIRONMENT, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONPATH",
        "PYTHONDONTWRITEBYTECODE",
    }  # fmt: skip
    kinds = attempt("descriptor_kinds")["found"]
    # Standard input, output and errors, and its pipe to us: no file of a database among them.
    assert len(kinds) == 4
    assert [stat.S_ISSOCK(kind) for kind in kinds] == [False, False, False, True]


def test_it_changes_no_file_not_even_its_own(attempt: Attempt, tmp_path: Path, file: Path):
    for what in ("write_to_scratch", "change_file", "truncate_file"):
        assert refused(attempt(what)), what
    for path in (tmp_path / "new", file, Path("/tmp/exploited")):
        assert refused(attempt("write", path=str(path)))
    assert file.read_bytes() == b"our own document"


def test_it_reaches_no_network_and_no_local_socket(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        monkeypatch.chdir(tmp_path)  # the name of a socket must be short
        local.bind("local")
        local.listen()
        port = server.getsockname()[1]
        assert refused(attempt("connect", port=port))
        assert refused(attempt("datagram", port=port))
        assert refused(attempt("connect_locally", path=str(tmp_path / "local")))


CALLS = {
    "ptrace of its parent": {"x86_64": [101, 16, os.getppid(), 0, 0]},
    "process_vm_readv": {"x86_64": [310, os.getpid(), 0, 0, 0, 0, 0]},
    "pidfd_open": {"x86_64": [434, os.getpid(), 0]},
    "io_uring_setup": {"x86_64": [425, 1, 0]},
    "unshare of users": {"x86_64": [272, 0x10000000]},
    "mount": {"x86_64": [165, 0, 0, 0, 0, 0]},
    "clone3": {"x86_64": [435, 0, 0]},
    "userfaultfd": {"x86_64": [323, 0]},
    "bpf": {"x86_64": [321, 0, 0, 0]},
    "keyctl": {"x86_64": [250, 0, 0, 0, 0, 0]},
    "memfd_create": {"x86_64": [319, 0, 0]},
    "perf_event_open": {"x86_64": [298, 0, 0, 0, 0, 0]},
    "a call newer than the list": {"x86_64": [500, 0]},
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are of x86-64")
@pytest.mark.parametrize("name", CALLS)
def test_a_dangerous_system_call_is_refused(attempt: Attempt, name: str):
    assert refused(attempt("call", call=CALLS[name]["x86_64"]))


def test_it_starts_signals_and_leaves_no_process(attempt: Attempt):
    for what in ("fork", "execute", "spawn", "leave_group"):
        assert refused(attempt(what)), what
    for pid in (os.getpid(), os.getppid(), 1, -1):
        assert refused(attempt("kill", pid=pid))
    assert "refused" in attempt("raise_limits")
    assert attempt("memory", bytes=confine.MEMORY_BYTES)["refused"].startswith("MemoryError")


def test_what_it_keeps_in_memory_is_gone_before_the_file_of_another_tenant(attempt: Attempt):
    assert attempt("stay", secret="of acme") == {"found": "['of acme']"}
    assert attempt("stay", secret="again") == {"found": "['of acme', 'again']"}
    assert attempt("stay", owner="globex", secret="of globex") == {"found": "['of globex']"}


def test_a_box_that_crashes_spins_or_lies_is_noticed_and_replaced(
    attempt: Attempt, sandbox: Sandbox, file: Path
):
    with pytest.raises(BoxDied) as died:
        attempt("crash")
    assert died.value.code == -signal.SIGSEGV
    with pytest.raises(TookTooLong):
        list(sandbox.ask("acme", {"do": "spin"}, file, cpu=0.5))
    link = attempt("descriptors")["found"][-1]
    with pytest.raises(BoxDied) as died:
        attempt("lie", fd=link)
    assert died.value.code == -signal.SIGSYS
    assert attempt("stay", secret="x") == {"found": "['x']"}


def test_a_box_outlives_the_thread_that_opened_it(attempt: Attempt, sandbox: Sandbox):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(attempt, "stay", secret="x").result() == {"found": "['x']"}
    opened = sandbox.pid
    assert attempt("stay", secret="y") == {"found": "['x', 'y']"}
    assert sandbox.pid == opened


OWNER = """
import os, signal, sys, threading
from pathlib import Path
from quire.sandbox.box import Sandbox

folder, file = map(Path, sys.argv[1:])
sandbox = Sandbox("tests.exploit", folder)
list(sandbox.ask("acme", {"do": "stay", "secret": "x"}, file))
fork = os.fork()
if fork:
    print(fork, sandbox.pid, flush=True)
signal.pause()
"""


def test_a_box_ends_with_its_owner_though_a_fork_of_it_lives(tmp_path: Path, file: Path):
    """The fork keeps the owner's end of the socket open."""
    command = [sys.executable, "-c", OWNER, str(tmp_path / "box"), str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        fork, box = map(int, owner.stdout.readline().split())
        try:
            owner.kill()
            until(lambda: not Path(f"/proc/{box}/root").exists(), what="the box lives")
            assert Path(f"/proc/{fork}").exists()
        finally:
            os.kill(fork, signal.SIGKILL)


LIES: list[list[Any]] = [
    [{"page": [1, 1e400, 1, "text", None, None], "sizes": [0, 0]}],
    [{"page": [-1, 1, 1, "text", None, None], "sizes": [0, 0]}],
    [{"page": [1, 1, 1, "evil", None, None], "sizes": [0, 0]}],
    [{"page": [1, 1, 1, "text", 5, None], "sizes": [0, 0]}],
    [{"page": [1, 1, 1, "text", None, None], "sizes": [5, 0]}],
    [{"page": "x"}],
    [{"failed": [1]}],
    [{}],
]


@pytest.mark.parametrize("answers", LIES)
def test_what_a_box_answers_is_checked_as_the_input_of_a_stranger(
    sandbox: Sandbox, file: Path, answers: list[Any], monkeypatch: pytest.MonkeyPatch
):
    def fail(died: BoxDied) -> Any:
        raise died

    reader = BoxedReader(sandbox, "acme", fail)
    ask = sandbox.ask
    monkeypatch.setattr(
        sandbox, "ask", lambda o, r, f, **m: ask(o, {"do": "answer", "answers": answers}, f, **m)
    )
    with pytest.raises(Permanent, match="reading process answered"):
        list(reader.read(file, "application/pdf", ReadOptions(), 1, 1))
    with pytest.raises(Permanent, match="reading process answered"):
        reader.inspect(file, "application/pdf", ReadOptions())


def page(number: int) -> dict[str, Any]:
    return {"page": [number, 10, 10, "none", None, None], "sizes": [0, 0]}


@pytest.mark.parametrize(
    "numbers", [(1, 1), (2, 1), (0,), (2_000_000_000,), (1, limits.MAX_PAGES + 1)], ids=str
)
def test_pages_that_a_box_repeats_or_makes_up_take_no_memory_of_its_owner(
    sandbox: Sandbox, file: Path, numbers: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
):
    def fail(died: BoxDied) -> Any:
        raise died

    reader, ask = BoxedReader(sandbox, "acme", fail), sandbox.ask
    answers: list[Any] = [page(number) for number in numbers]

    def answering(owner: str, _: dict[str, Any], file: Path, **more: Any) -> Iterator[Message]:
        return ask(owner, {"do": "answer", "answers": answers}, file, **more)

    monkeypatch.setattr(sandbox, "ask", answering)
    with pytest.raises(Permanent, match="pages out of order"):
        list(reader.read(file, "application/pdf", ReadOptions(), 1, 1))
    answers[:] = [{"unit": "page", "length": 2_000_000_000, "scans": None}]
    with pytest.raises(Unreadable, match="at most 1,000,000"):
        reader.inspect(file, "application/pdf", ReadOptions())


def test_a_box_cannot_fill_the_database_with_boxes_of_no_words(
    sandbox: Sandbox, file: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(died: BoxDied) -> Any:
        raise died

    reader, ask = BoxedReader(sandbox, "acme", fail), sandbox.ask
    given = {"do": "answer", "bytes": 1 << 20, "answers": [{**page(1), "sizes": [1000, 0]}]}

    def answering(owner: str, _: dict[str, Any], file: Path, **more: Any) -> Iterator[Message]:
        return ask(owner, given, file, **more)

    monkeypatch.setattr(sandbox, "ask", answering)
    [found] = list(reader.read(file, "application/pdf", ReadOptions(), 1, 1))
    assert isinstance(found, Page) and not found.blocks and len(found.text) == 1000
    given["answers"] = [{**page(1), "sizes": [1000, (1 << 20) - 1000]}]
    with pytest.raises(Permanent, match="more words than the text can have"):
        list(reader.read(file, "application/pdf", ReadOptions(), 1, 1))


def test_a_machine_that_cannot_make_a_whole_box_is_refused_only_if_one_is_required(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(landlock, "version", lambda: 0)
    confine.check("auto")
    with pytest.raises(Refused, match="no Landlock"):
        confine.check("require")


def test_people_are_told_what_a_box_lacks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(confine, "missing", list)
    assert confine.described("auto") is None
    assert "all rights of a worker" in str(confine.described("off"))
    monkeypatch.setattr(confine, "missing", lambda: ["Landlock"])
    assert "this machine has no Landlock" in str(confine.described("auto"))


def test_the_list_of_system_calls_names_none_that_opens_or_starts_anything():
    dangerous = {
        "socket", "connect", "execve", "execveat", "fork", "vfork", "clone", "ptrace", "kill",
        "unlink", "rename", "mkdir", "chmod", "mount", "unshare", "setns", "io_uring_setup",
        "sendmsg", "recvmsg", "sendto", "memfd_create", "setuid", "setrlimit", "ioctl", "prctl",
    }  # fmt: skip
    for machine in ("x86_64", "aarch64"):
        names = seccomp.allowed(machine)
        assert not dangerous & names.keys()
        assert len(set(names.values())) == len(names)
