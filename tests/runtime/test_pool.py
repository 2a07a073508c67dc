"""Children under bad handlers, kills and stops: each task gets its outcome, nothing lingers."""

import json
import os
import selectors
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import psutil
import pytest

from quire.model.outcomes import Lease, RunReport
from quire.runtime.child.channel import Progress
from quire.runtime.child.pool import Child, ChildPool

HANDLERS = str(Path(__file__).with_name("handlers_for_tests.py"))
ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 30.0
LINUX_ONLY = pytest.mark.skipif(
    sys.platform != "linux", reason="other kernels do not kill a group whose parent is gone"
)


class Pool:
    """A pool with the loop of a worker around it, and everything it has reported."""

    def __init__(self, scratch: Path, **options: Any) -> None:
        self.selector = selectors.DefaultSelector()
        usual: dict[str, Any] = {"concurrency": 1, "plugins": [HANDLERS]}
        usual |= {"max_tasks": 0, "max_rss": 0} | options
        self.children = ChildPool(selector=self.selector, scratch=scratch, **usual)
        self.ended: dict[int, RunReport] = {}
        self.order: list[int] = []
        self.progress: list[Progress] = []
        self.last_id = 0

    def turn(self) -> None:
        now = monotonic()
        due = self.children.next_deadline(now)
        self.selector.select(0.5 if due is None else max(0.0, min(due - now, 0.5)))
        ended, progress = self.children.serve(monotonic())
        for each in ended:
            assert each.task_id not in self.ended, f"ended twice: {each}"
            self.ended[each.task_id] = each
            self.order.append(each.task_id)
        self.progress += progress

    def until(self, is_true: Callable[[], object]) -> None:
        end = monotonic() + DEADLINE
        while not is_true():
            assert monotonic() < end, (self.ended, list(self.children.start_errors))
            self.turn()

    def ready(self) -> Child:
        self.until(self.children.idle)
        return self.children.idle()[0]

    def task(self, kind: str, **payload: Any) -> Lease:
        self.last_id += 1
        return lease(self.last_id, kind, json.dumps(payload))

    def limit(self, kind: str, **limits: Any) -> None:
        """Set limits of a kind, as its `@job` would."""
        self.ready()
        self.children.kinds[kind] = replace(self.children.kinds[kind], **limits)

    def hand(self, *tasks: Lease) -> Child:
        child = self.ready()
        self.children.assign(child, tasks)
        return child

    def run(self, *tasks: Lease) -> list[RunReport]:
        self.hand(*tasks)
        self.until(lambda: all(task.task_id in self.ended for task in tasks))
        return [self.ended[task.task_id] for task in tasks]

    def one(self, kind: str, **payload: Any) -> RunReport:
        return self.run(self.task(kind, **payload))[0]

    def begun(self, task: Lease) -> Child:
        """Wait until the task runs."""
        self.until(lambda: any(running(child) == task for child, _ in self.children.assigned()))
        return next(child for child, each in self.children.assigned() if each == task)

    def start_of(self, task: Lease) -> Child:
        self.hand(task)
        return self.begun(task)


def lease(task_id: int, kind: str, payload: str) -> Lease:
    return Lease(
        task_id=task_id, fence=1, job_id=1, kind=kind, payload=payload, attempt=1, max_attempts=3,
        crashes=0, queue="default", priority=5, fair_tag=0.0, begin_at=0.0,
    )  # fmt: skip


def running(child: Child) -> Lease | None:
    task = child.running()
    return task.lease if task else None


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def make_pool(tmp_path: Path) -> Iterator[Callable[..., Pool]]:
    pools: list[Pool] = []

    def make(**options: Any) -> Pool:
        pools.append(Pool(tmp_path, **options))
        pools[-1].children.start()
        return pools[-1]

    yield make
    for pool in pools:
        pids = [child.pid for child in pool.children._children]
        pool.children.close()
        pool.selector.close()
        assert all(map(is_gone, pids))


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool()


def test_a_result_comes_back_as_json_with_its_times(pool):
    ended = pool.one("t.echo", value={"pages": [1, 2]})
    assert ended.outcome == "done"
    assert json.loads(ended.result) == {"pages": [1, 2]}
    assert 0 <= ended.duration < 1
    assert ended.peak_rss is None


def test_a_thousand_tasks_in_batches_end_in_order_and_once(pool):
    tasks = [pool.task("t.nothing") for _ in range(1000)]
    for start in range(0, 1000, 250):
        pool.run(*tasks[start : start + 250])
    assert pool.order == [task.task_id for task in tasks]
    assert {ended.outcome for ended in pool.ended.values()} == {"done"}
    assert list(pool.children.assigned()) == []


def test_several_children_work_at_the_same_time(make_pool):
    pool = make_pool(concurrency=3)
    pool.until(lambda: len(pool.children.idle()) == 3)
    tasks = [pool.task("t.waits") for _ in range(3)]
    for child, task in zip(pool.children.idle(), tasks, strict=True):
        pool.children.assign(child, [task])
    pool.until(lambda: {running(child) for child, _ in pool.children.assigned()} == set(tasks))
    assert pool.children.idle() == []


def test_a_payload_larger_than_the_socket_takes_at_once_arrives(pool):
    text = "é" * 3_000_000
    tasks = [pool.task("t.echo", value=text), pool.task("t.nothing")]
    first, second = pool.run(*tasks)
    assert first.outcome == "permanent"
    assert "at most 1048576" in first.error
    assert second.outcome == "done"


def test_a_result_larger_than_the_outbox_arrives_in_order(pool):
    ended = pool.run(
        pool.task("t.echo", value=1),
        pool.task("t.huge", size=900_000),
        pool.task("t.echo", value=2),
    )
    assert [len(each.result) for each in ended] == [1, 900_002, 1]


def test_an_error_of_the_handler_is_transient_with_its_traceback(pool):
    ended = pool.one("t.bug")
    assert ended.outcome == "transient"
    assert ended.error == "KeyError: 'a \\x00 and a \\udc80 in it'"
    assert "handlers_for_tests.py" in ended.traceback
    assert "child/main.py" not in ended.traceback


def test_the_class_of_the_error_decides_the_outcome(pool):
    transient, permanent = pool.run(
        pool.task("t.transient", retry_after=7.5), pool.task("t.permanent")
    )
    assert transient[2:5] == ("transient", None, "the service is away")
    assert transient.retry_after == 7.5
    assert permanent[2:5] == ("permanent", None, "the file is empty")


@pytest.mark.parametrize(
    ("kind", "payload", "words"),
    [
        ("t.echo", {}, "missing a required argument: 'value'"),
        ("t.nothing", {"extra": 1}, "unexpected keyword argument 'extra'"),
    ],
)
def test_a_payload_that_does_not_fit_the_handler_is_permanent(pool, kind, payload, words):
    ended = pool.one(kind, **payload)
    assert ended.outcome == "permanent"
    assert words in ended.error


def test_a_type_error_inside_the_handler_is_transient(pool):
    assert pool.one("t.inner_type_error").outcome == "transient"


@pytest.mark.parametrize("payload", ["[1]", "{", ""])
def test_a_payload_that_is_no_object_is_permanent(pool, payload):
    [ended] = pool.run(pool.task("t.nothing")._replace(payload=payload))
    assert ended.outcome == "permanent"


def test_an_unknown_kind_names_the_known_ones_and_is_retried(pool):
    ended = pool.one("t.unheard_of")
    assert ended.outcome == "transient"
    assert "t.nothing" in ended.error


def test_sys_exit_ends_the_task_and_not_the_child(pool):
    child = pool.ready()
    ended = pool.run(pool.task("t.sys_exit", code=3), pool.task("t.interrupt"))
    assert [each.outcome for each in ended] == ["transient", "transient"]
    assert ended[0].error == "handler called sys.exit(3)"
    assert ended[1].error == "handler raised KeyboardInterrupt"
    assert pool.ready() is child


@pytest.mark.parametrize("kind", ["t.object", "t.not_a_number"])
def test_a_result_that_is_no_json_is_permanent(pool, kind):
    ended = pool.one(kind)
    assert ended.outcome == "permanent"
    assert "cannot be written as JSON" in ended.error


def test_a_crash_costs_the_task_that_ran_and_no_other(pool):
    before, after = pool.task("t.echo", value=1), pool.task("t.echo", value=2)
    crash = pool.task("t.hard_exit", code=3)
    ended = pool.run(before, crash, after)
    assert [each.outcome for each in ended] == ["done", "crashed", "unstarted"]
    assert ended[0].result == "1"
    assert ended[1].error == "the child exited with code 3"
    assert ended[1].traceback == "leaving now"
    assert ended[1].duration >= 0
    assert ended[2].duration is None
    assert pool.one("t.echo", value=3).result == "3"


def test_a_segfault_is_a_crash_that_shows_where_it_was(pool):
    ended = pool.one("t.segfault")
    assert (ended.outcome, ended.error) == ("crashed", "killed by SIGSEGV")
    assert "in segfault" in ended.traceback


def test_a_handler_that_closes_the_connection_costs_the_child_and_not_its_result(pool):
    child = pool.ready()
    assert pool.one("t.closes_all").outcome == "done"
    assert pool.one("t.nothing").outcome == "done"
    assert is_gone(child.pid)


@pytest.mark.parametrize("kind", ["t.hog", "t.hog_in_fork"])
def test_a_task_over_its_memory_is_killed_with_its_descendants(pool, kind):
    pool.limit(kind, memory=200_000_000)
    ended = pool.one(kind)
    assert ended.outcome == "memory"
    assert "limit 200 MB" in ended.error
    assert ended.peak_rss > 200_000_000


def test_the_peak_of_a_task_does_not_count_for_the_next(pool):
    first, second = pool.run(pool.task("t.large", megabytes=200), pool.task("t.large", megabytes=1))
    assert first.peak_rss > 200_000_000
    assert second.peak_rss < 100_000_000


@pytest.mark.parametrize("kind", ["t.waits", "t.holds_gil"])
def test_a_task_over_its_time_is_killed_whatever_it_does(pool, kind):
    pool.limit(kind, timeout=0.3)
    ended, unstarted = pool.run(pool.task(kind), pool.task("t.nothing"))
    assert (ended.outcome, ended.error) == ("timeout", "ran longer than its limit of 0.3 s")
    assert 0.3 <= ended.duration < 2
    assert unstarted.outcome == "unstarted"


def test_time_behind_another_task_does_not_count(pool):
    pool.limit("t.nothing", timeout=0.2)
    ended = pool.run(pool.task("t.waits", seconds=0.5), pool.task("t.nothing"))
    assert [each.outcome for each in ended] == ["done", "done"]


def test_a_task_without_progress_stalls_and_one_with_progress_is_not(pool):
    pool.limit("t.moves", stall_timeout=0.4)
    pool.limit("t.progress", stall_timeout=0.4)
    ended = pool.run(pool.task("t.moves", steps=8), pool.task("t.progress", steps=3, then=60))
    assert [each.outcome for each in ended] == ["done", "stalled"]


def test_a_stop_is_obeyed_by_a_task_that_checks(pool):
    pool.limit("t.obeys", grace=DEADLINE)
    task = pool.task("t.obeys")
    child = pool.start_of(task)
    assert pool.children.revoke(task.task_id, task.fence)
    pool.until(lambda: task.task_id in pool.ended)
    assert pool.ended[task.task_id].outcome == "stopped"
    assert pool.ready() is child


@pytest.mark.parametrize("kind", ["t.waits", "t.holds_gil"])
def test_a_task_that_ignores_a_stop_is_killed_after_its_grace(pool, kind):
    pool.limit(kind, grace=0.2)
    task = pool.task(kind)
    pool.start_of(task)
    began = monotonic()
    pool.children.revoke(task.task_id, task.fence)
    pool.until(lambda: task.task_id in pool.ended)
    assert pool.ended[task.task_id].outcome == "revoked"
    assert 0.2 <= monotonic() - began < 1


def test_a_stop_with_an_old_fence_does_nothing(pool):
    task = pool.task("t.obeys")
    pool.start_of(task)
    assert not pool.children.revoke(task.task_id, task.fence - 1)


def test_a_task_revoked_before_it_begins_is_skipped_and_the_rest_runs(pool, tmp_path):
    notes = tmp_path / "notes"
    head = pool.task("t.waits", seconds=0.4)
    skipped, after = (pool.task("t.note", path=str(notes), line=line) for line in ("no", "yes"))
    pool.hand(head, skipped, after)
    pool.children.revoke(skipped.task_id, skipped.fence)
    pool.until(lambda: after.task_id in pool.ended)
    outcomes = [pool.ended[task.task_id].outcome for task in (head, skipped, after)]
    assert outcomes == ["done", "revoked", "done"]
    assert notes.read_text() == "yes\n"


def test_what_waits_behind_a_long_task_can_be_taken_back(pool):
    head, revoked, behind = pool.task("t.obeys"), pool.task("t.nothing"), pool.task("t.nothing")
    child = pool.hand(head, revoked, behind)
    pool.begun(head)
    pool.children.revoke(revoked.task_id, revoked.fence)
    assert pool.children.take_back(child) == [behind]
    assert [task for _, task in pool.children.assigned()] == [head]
    pool.until(lambda: revoked.task_id in pool.ended)
    assert pool.ended[revoked.task_id].outcome == "revoked"
    assert pool.children.take_back(child) == []
    pool.children.revoke(head.task_id, head.fence)
    assert pool.run(behind)[0].outcome == "done"
    assert pool.ready() is child


def test_a_task_taken_back_never_runs_and_one_not_taken_back_does(pool, tmp_path):
    notes = tmp_path / "notes"
    notes.touch()
    taken: set[int] = set()
    handed: set[int] = set()
    for spin in range(60):
        tasks = [
            pool.task("t.note", path=str(notes), line=str(pool.last_id + 1)) for _ in range(40)
        ]
        child = pool.hand(*tasks)
        end = monotonic() + spin * 5e-5
        while monotonic() < end:
            pass
        taken |= {task.task_id for task in pool.children.take_back(child)}
        handed |= {task.task_id for task in tasks}
        pool.ready()
    ran = [int(line) for line in notes.read_text().split()]
    assert len(ran) == len(set(ran))
    assert set(ran) == handed - taken == set(pool.ended)
    assert ran and taken


def test_a_result_does_not_wait_for_the_long_task_behind_it(pool):
    quick, long = pool.task("t.echo", value=1), pool.task("t.waits")
    pool.hand(quick, long)
    pool.until(lambda: quick.task_id in pool.ended)
    pool.begun(long)


def test_a_kill_from_outside_is_a_death_and_no_crash(pool):
    for number in (signal.SIGKILL, signal.SIGTERM):
        task = pool.task("t.waits")
        os.kill(pool.start_of(task).pid, number)
        pool.until(lambda task=task: task.task_id in pool.ended)
        ended = pool.ended[task.task_id]
        assert (ended.outcome, ended.error) == ("died", f"killed by {number.name} from outside")


def test_an_interrupt_from_the_terminal_does_not_reach_the_task(pool):
    task = pool.task("t.waits", seconds=0.3)
    os.killpg(pool.start_of(task).pid, signal.SIGINT)
    pool.until(lambda: task.task_id in pool.ended)
    assert pool.ended[task.task_id].outcome == "done"


def test_a_megabyte_of_output_blocks_nobody_and_its_end_is_kept(pool):
    child = pool.ready()
    assert pool.one("t.prints").result == '"printed"'
    pool.until(lambda: child.output_tail.endswith(b" 1023\n"))
    assert len(child.output_tail) == 64 * 1024


def test_progress_is_thinned_and_the_last_one_comes_before_the_end(pool):
    task = pool.task("t.progress", steps=500)
    pool.run(task)
    assert len(pool.progress) < 50
    assert pool.progress[-1] == Progress(task.task_id, task.fence, 1.0, "step 500")


def test_warnings_of_a_child_reach_the_log_of_its_worker_and_not_the_job(pool, caplog):
    pool.run(pool.task("t.warns"))
    [record] = caplog.records
    assert (record.levelname, record.getMessage()) == ("WARNING", "fetch.refused")
    assert record.fields == {"host": "wiki", "addresses": "10.0.0.5"}
    assert pool.progress == []


def test_the_last_progress_comes_while_the_task_goes_on(pool):
    task = pool.task("t.progress", steps=3, then=60)
    pool.hand(task)
    pool.until(lambda: pool.progress and pool.progress[-1].message == "step 3")
    assert task.task_id not in pool.ended


def test_a_child_is_replaced_after_so_many_tasks(make_pool):
    pool = make_pool(max_tasks=5)
    child = pool.ready()
    pool.run(*(pool.task("t.nothing") for _ in range(4)))
    assert pool.ready() is child
    pool.one("t.nothing")
    assert pool.ready() is not child
    pool.until(lambda: is_gone(child.pid))
    assert pool.children.alive == 1


def test_a_child_that_keeps_too_much_memory_is_replaced(make_pool):
    pool = make_pool(max_rss=1)
    first = pool.children._children[0]
    pool.until(lambda: first.is_reaped)
    assert is_gone(first.pid)


def test_a_program_left_behind_ends_with_its_child(make_pool, tmp_path):
    pool = make_pool(max_tasks=1)
    program = int(pool.one("t.starts_program", path=str(tmp_path / "pids")).result)
    pool.until(lambda: is_gone(program))


@pytest.mark.parametrize("kind", ["t.lingering_fork", "t.forks_and_returns_twice"])
def test_a_fork_of_a_handler_does_not_speak_for_the_child(pool, kind):
    child = pool.ready()
    assert pool.one(kind).result != '"fork"'
    assert pool.one("t.echo", value=1).result == "1"
    assert pool.ready() is child


def test_a_killed_task_takes_the_programs_it_started_with_it(pool, tmp_path):
    pids = tmp_path / "pids"
    task = pool.task("t.starts_program", path=str(pids), stay=True)
    pool.hand(task)
    pool.until(lambda: pids.exists() and " " in pids.read_text())
    pool.children.revoke(task.task_id, task.fence)
    pool.until(lambda: task.task_id in pool.ended)
    pool.until(lambda: all(is_gone(int(pid)) for pid in pids.read_text().split()))


WORKER = """
    import selectors, sys
    from pathlib import Path
    from time import monotonic
    from quire.model.outcomes import Lease
    from quire.runtime.child.pool import ChildPool

    handlers, scratch = sys.argv[1:]
    selector = selectors.DefaultSelector()
    children = ChildPool(concurrency=2, plugins=[handlers], selector=selector,
                         scratch=Path(scratch), max_tasks=0, max_rss=0)
    children.start()
    payloads = ['{{"path": "%s/pids", "stay": true}}' % scratch, "{{}}"]
    kinds = ["t.starts_program", "{second}"]
    while True:
        for child in children.idle():
            if kinds:
                children.assign(child, [Lease(len(kinds), 1, 1, kinds.pop(), payloads.pop(),
                                              1, 1, 0, "default", 5, 0.0, 0.0)])
                print(child.pid, flush=True)
        selector.select(0.1)
        children.serve(monotonic())
"""


@pytest.mark.parametrize("second", ["t.waits", pytest.param("t.holds_gil", marks=LINUX_ONLY)])
def test_children_and_their_programs_end_when_the_worker_is_killed(tmp_path, second):
    script = textwrap.dedent(WORKER.format(second=second))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    worker = subprocess.Popen(
        [sys.executable, "-c", script, HANDLERS, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    with worker:
        try:
            assert worker.stdout is not None
            pids = [int(worker.stdout.readline()) for _ in range(2)]
            written = tmp_path / "pids"
            wait_until(lambda: written.exists() and " " in written.read_text())
            pids += map(int, written.read_text().split())
            assert not any(map(is_gone, pids))
        finally:
            worker.kill()
    wait_until(lambda: all(map(is_gone, pids)))


def wait_until(is_true: Callable[[], object]) -> None:
    end = monotonic() + DEADLINE
    with selectors.DefaultSelector() as nothing:
        while not is_true():
            assert monotonic() < end
            nothing.select(0.02)


def test_a_plugin_that_fails_to_load_is_reported_and_tried_again_more_slowly(make_pool, tmp_path):
    plugin = tmp_path / "broken.py"
    plugin.write_text("raise RuntimeError('no model file')")
    began = monotonic()
    pool = make_pool(plugins=[str(plugin)], concurrency=2)
    pool.until(lambda: len(pool.children.start_errors) >= 5)
    assert monotonic() - began > 0.3
    assert "no model file" in pool.children.start_errors[0]
    assert pool.children.idle() == []
    plugin.write_text("")
    pool.until(lambda: len(pool.children.idle()) == 2)


def test_draining_lets_running_tasks_end_and_replaces_no_child(make_pool):
    pool = make_pool(concurrency=2)
    pool.until(lambda: len(pool.children.idle()) == 2)
    task = pool.task("t.waits", seconds=0.3)
    pool.start_of(task)
    pool.children.drain()
    pool.until(lambda: pool.children.alive == 0)
    assert pool.ended[task.task_id].outcome == "done"
    assert pool.children.next_deadline(monotonic()) is None


def test_killing_all_says_what_ran_and_what_had_not_begun(pool):
    head, behind = pool.task("t.waits"), pool.task("t.nothing")
    child = pool.hand(head, behind)
    pool.begun(head)
    ended = pool.children.kill_all()
    assert [(each.task_id, each.outcome) for each in ended] == [
        (head.task_id, "revoked"),
        (behind.task_id, "unstarted"),
    ]
    assert is_gone(child.pid)
    assert pool.children.alive == 0


def test_a_batch_goes_to_an_idle_child_only(pool):
    child = pool.start_of(pool.task("t.waits"))
    with pytest.raises(ValueError, match="busy"):
        pool.children.assign(child, [pool.task("t.nothing")])


def test_an_idle_child_is_light(pool):
    child = pool.ready()
    assert psutil.Process(child.pid).memory_info().rss < 25_000_000
    loaded = set(json.loads(pool.one("t.modules").result))
    assert not loaded & {"sqlalchemy", "typer", "rich", "psutil", "asyncio", "psycopg"}


def test_a_child_has_the_environment_of_its_worker_and_a_group_of_its_own(pool):
    ended = pool.one("t.environment")
    assert json.loads(ended.result) == [os.environ.get("PYTHONPATH"), "", True]


def test_a_child_that_hangs_while_it_starts_is_killed_and_replaced(
    make_pool: Callable[..., Pool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    hangs = tmp_path / "hangs.py"
    hangs.write_text("import threading\n\nthreading.Event().wait()\n")
    monkeypatch.setattr("quire.runtime.child.pool.START_SECONDS", 0.3)
    held = make_pool(plugins=[str(hangs)])
    held.until(lambda: held.children.failed_starts >= 2)
    assert "it was not ready within 0.3 s" in held.children.start_errors[0]
    assert not held.children.idle()
