"""Sessions are ended at random while jobs are submitted, run, stopped and resumed on PostgreSQL."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import psycopg

from quire.clock import SystemClock
from quire.control import jobs as verbs
from quire.errors import Conflict, DatabaseUnavailable
from quire.model.records import Submission
from quire.runtime.worker.loop import Room, Worker
from quire.runtime.worker.sweep import sweep
from quire.settings import load
from quire.store import open_database
from tests.store.stage import KINDS, Stage, ending

SECONDS = 5.0
END = (
    "SELECT pg_{}_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = 'quire' ORDER BY random() LIMIT 1"
)


class Fire:
    """What goes on at the same time, each in a thread of its own, until the time is over."""

    def __init__(self, url: str, home: Path) -> None:
        self._url = url
        self._home = home
        self._end = time.monotonic() + SECONDS
        self._pause = threading.Event()
        self.submitted: set[int] = set()
        self.ended = 0

    def is_on(self) -> bool:
        return time.monotonic() < self._end

    def work(self, number: int) -> None:
        """Take a worker's turns; its children run nothing, and give some tasks back."""
        home = self._home / str(number)
        worker = Worker(load({}, home=home, database_url=self._url))
        worker.kinds = KINDS
        worker._room = lambda: Room(children=0, tasks=5, kept=0)  # type: ignore[method-assign]
        beat_at = 0.0
        while self.is_on() or worker.settlements:
            worker.should_claim = self.is_on()
            with suppress(DatabaseUnavailable):
                if worker.is_in_doubt or time.monotonic() > beat_at or not self.is_on():
                    worker._heartbeat()
                    beat_at = time.monotonic() + 1.0
                worker._write(now=time.monotonic())
                worker.is_in_doubt = False
                for lease in worker.backlog.take_all():
                    if random.random() < 0.05:
                        worker._return([lease])
                    else:
                        worker.settlements.append(ending(lease, worker_id=worker.id))
                if not self.is_on() and not worker.settlements:
                    worker._heartbeat()  # finds what a lost reply has claimed
                continue
            worker._doubt()
        worker.db.close()

    def submit(self, number: int) -> None:
        with closing(open_database(self._url)) as db:
            stage = Stage(db)
            db.clock = SystemClock()
            for count in range(1_000_000):
                if not self.is_on():
                    return
                wishes = [Submission("noop")] * random.choice((1, 1, 3))
                with suppress(DatabaseUnavailable):
                    made = verbs.submit(stage.caller(), wishes, key=f"{number} {count}")
                    self.submitted.update(made)

    def stop_and_resume(self) -> None:
        with closing(open_database(self._url)) as db:
            caller = Stage(db).caller()
            db.clock = SystemClock()
            while self.is_on():
                some = sorted(self.submitted.copy())[-3:]
                for verb in (verbs.stop, verbs.resume):
                    with suppress(DatabaseUnavailable, Conflict):
                        verb(caller, some)
                self._pause.wait(0.05)

    def end_sessions(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as admin:
            while self.is_on():
                self._pause.wait(random.uniform(0, 0.15))
                end = END.format(random.choice(("cancel", "terminate")))
                self.ended += len(admin.execute(end.encode()).fetchall())


def test_sessions_that_end_at_any_time_lose_and_double_nothing(pg_stage: Stage, home: Path):
    stage = pg_stage
    stage.clock.jump(time.time() - stage.clock.now().wall)
    stage.one()
    fire = Fire(stage.db.url, home)
    acts: list[Callable[[], None]] = [partial(fire.work, n) for n in range(2)]
    acts += [partial(fire.submit, n) for n in range(2)]
    acts += [fire.stop_and_resume, fire.end_sessions]
    with ThreadPoolExecutor(len(acts)) as pool:
        for each in [pool.submit(act) for act in acts]:
            each.result()
    sweep(stage.db, load({}, home=home), "w1", list(KINDS))
    while stage.run():
        pass
    assert fire.ended > 5
    rows = stage.rows("jobs")
    assert fire.submitted <= {row.id for row in rows}
    assert {row.state for row in rows} <= {"completed", "stopped"}
    done = Counter(row.task_id for row in stage.rows("attempts") if row.outcome == "done")
    completed = {row.id for row in rows if row.state == "completed"}
    assert done == {row.id: 1 for row in stage.rows("tasks") if row.job_id in completed}
    assert {row.crashes for row in stage.rows("tasks")} == {0}
