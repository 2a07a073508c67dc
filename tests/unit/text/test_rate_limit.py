"""The limits of an endpoint, kept by many processes through one file."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from quire.clock import boot_id
from quire.errors import Stopped, Transient
from quire.text.embed.rate_limit import RateLimiter, Waiter
from tests.embedding import Waiting

CHANCE = 0.11  # whose turn it is among many is left to chance
HOLDS = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def patient(time: Waiting) -> Waiter:
    return Waiter("far", time.wait, time.meanwhile)


def hurried(time: Waiting) -> Waiter:
    return Waiter("far", time.wait, None)


def stopped(time: Waiting) -> Waiter:
    def meanwhile(why: str | None) -> None:
        raise Stopped("job 1 was stopped")

    return Waiter("far", time.wait, meanwhile)


def test_requests_and_tokens_are_paced_by_the_minute():
    time = Waiting()
    limiter = RateLimiter(60, 600, lambda: time.now)
    for _ in range(200):
        limiter.acquire(10, patient(time))  # a request a second and ten tokens a second
    assert 185 <= time.now <= 200
    limiter.acquire(6000, patient(time))
    before = time.now
    limiter.acquire(1, patient(time))
    assert 590 <= time.now - before <= 610
    assert max(time.slices) <= 0.2
    assert set(time.whys) == {"waits for the rate limit of the endpoint"}


def test_no_limit_never_waits():
    time = Waiting()
    limiter = RateLimiter(0, 0, lambda: time.now)
    for _ in range(100):
        limiter.acquire(10**6, patient(time))
    assert time.slices == []


def test_those_that_name_one_file_keep_one_limit(tmp_path: Path):
    time = Waiting()
    some = [RateLimiter(60, 0, lambda: time.now, tmp_path / "pace") for _ in range(4)]
    for turn in range(200):
        some[turn % 4].acquire(10**6, patient(time))  # tokens have no limit
    assert 185 <= time.now <= 200


def test_who_is_stopped_while_it_waits_has_taken_nothing(tmp_path: Path):
    time = Waiting()
    limiter = RateLimiter(60, 0, lambda: time.now, tmp_path / "pace")
    for _ in range(11):
        limiter.acquire(1, patient(time))
    for _ in range(50):
        with pytest.raises(Stopped):
            limiter.acquire(1, stopped(time))
    limiter.acquire(1, patient(time))
    assert time.now == pytest.approx(1, abs=CHANCE)


def test_a_query_goes_before_those_that_can_wait_and_is_paid_for_by_them(tmp_path: Path):
    time = Waiting()
    limiter = RateLimiter(60, 6000, lambda: time.now, tmp_path / "pace")
    limiter.acquire(2500, patient(time))
    for _ in range(5):
        limiter.acquire(10, hurried(time))
    assert time.now == 0
    limiter.acquire(10, patient(time))
    assert 15 <= time.now <= 16


def test_queries_borrow_only_so_much_and_then_are_transient():
    time = Waiting()
    limiter = RateLimiter(60, 0, lambda: time.now)
    for _ in range(200):
        limiter.acquire(1, hurried(time))  # each waits only a second
    assert 165 <= time.now <= 175
    slow, before = RateLimiter(1, 0, lambda: time.now), time.now
    for _ in range(2):
        slow.acquire(1, hurried(time))
    with pytest.raises(Transient, match=r"embedder far: .*limit .* for 4[01] s more") as error:
        slow.acquire(1, hurried(time))
    assert error.value.retry_after == pytest.approx(40, abs=CHANCE)
    assert time.now == before  # it does not wait in vain


def test_limits_that_were_mistyped_are_forgotten_with_them(tmp_path: Path):
    time = Waiting()
    wrong = RateLimiter(0.01, 0, lambda: time.now, tmp_path / "pace")
    for _ in range(2):
        wrong.acquire(1, patient(time))
    assert time.now == 0
    RateLimiter(6000, 0, lambda: time.now, tmp_path / "pace").acquire(1, patient(time))
    assert time.now <= 0.01 + CHANCE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "another-boot -9e9 1 -9e9 1",
        "{boot} soon 1",
        "{boot} 1",
        "{boot} 1 2 3",
        "\n{boot} nan nan nan nan\n",
        "{boot} -inf inf -inf -inf",
        "\x00\udcff",
    ],
)
def test_a_file_of_another_boot_or_with_nonsense_in_it_holds_nobody_up_for_long(
    tmp_path: Path, text: str
):
    time, shared = Waiting(), tmp_path / "pace"
    shared.write_bytes(text.format(boot=boot_id()).encode(errors="surrogateescape"))
    RateLimiter(60, 600, lambda: time.now, shared, largest=100).acquire(10, patient(time))
    assert time.now <= 31  # what the largest request and queries may owe
    assert len(shared.read_text(errors="replace").splitlines()[0].split()) == 5


def test_a_clock_that_is_behind_what_is_written_waits_no_longer_than_the_debt(tmp_path: Path):
    time, shared = Waiting(), tmp_path / "pace"
    shared.write_text(f"{boot_id()} -2.0 9e9 0.0 9e9\n")
    RateLimiter(60, 600, lambda: time.now, shared).acquire(10, patient(time))
    assert time.now <= 3


def test_machines_that_share_a_home_keep_the_limit_each_for_itself(tmp_path: Path):
    time, shared = Waiting(), tmp_path / "pace"
    others = [f"boot-{n} -9.0 1.0 -9.0 1.0" for n in range(12)]
    shared.write_text("\n".join(others))
    limiter = RateLimiter(60, 0, lambda: time.now, shared)
    for _ in range(13):
        limiter.acquire(1, patient(time))
    assert time.now == pytest.approx(2, abs=CHANCE)
    own, *kept = shared.read_text().splitlines()
    assert own.split()[0] == boot_id()
    assert kept == others[:7]


def test_a_file_that_cannot_be_used_leaves_each_process_its_own_pace(tmp_path: Path, caplog):
    time = Waiting()
    limiter = RateLimiter(60, 0, lambda: time.now, tmp_path)  # a folder
    for _ in range(20):
        limiter.acquire(1, patient(time))
    assert 8 <= time.now <= 10
    assert [record.message for record in caplog.records] == ["embed.rate_limit_unshared"]


def test_a_lock_that_another_process_holds_is_looked_at_again_not_waited_for(tmp_path: Path):
    time, shared = Waiting(), tmp_path / "pace"
    limiter = RateLimiter(60, 0, lambda: time.now, shared)
    with shared.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Stopped):
            limiter.acquire(1, stopped(time))
        with pytest.raises(Transient):
            limiter.acquire(1, hurried(time))
    limiter.acquire(1, stopped(time))
    assert time.now == pytest.approx(10, abs=CHANCE + 0.05)


def test_a_process_that_is_killed_with_the_lock_leaves_it_free(tmp_path: Path):
    time, shared = Waiting(), tmp_path / "pace"
    command = [sys.executable, "-c", HOLDS, str(shared)]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as holder:
        assert holder.stdout and holder.stdout.readline() == b"held\n"
        with pytest.raises(Stopped):
            RateLimiter(60, 0, lambda: time.now, shared).acquire(1, stopped(time))
        holder.kill()
        holder.wait()
        RateLimiter(60, 0, lambda: time.now, shared).acquire(1, stopped(time))
