"""The state of a task is written here and nowhere else.

A move takes its sources and its target from `TASK_MOVES`. `transition` makes one move of some
tasks; a `Transition` collects several moves of one transaction and writes what follows from them
once: the counters and states of jobs, the history of runs, events, the fate of documents
(`on_ended`), and the tasks and jobs that waited for those that ended.

A move of the lease holder names the fence in its WHERE clause: a zombie's write matches no row.
Any other move of a running task raises the fence in the same statement.

Lock order (docs/adr/0031): owners; running tasks, which belong to the holder of their lease; what a
handler writes, documents among it; jobs, by id; and under the lock of their job all other tasks.
The state of a task changes only under the locks of the task and of its job. Whoever would have to
lock against this order does not wait: it skips the row, or gives the transaction up.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.outcomes import Key, Settlement
from quire.model.records import EndedTask
from quire.model.states import TASK_FINAL, TASK_MOVES, Reason, TaskState
from quire.store.db import bulk, dialect
from quire.store.db.engine import on_ended
from quire.store.db.schema.queue import attempts, has_state, is_state, owners, tasks
from quire.store.queue import dependencies, events, job_transition, order
from quire.store.queue.counters import Deltas, is_over

t = tasks.c
RUNNING, BLOCKED = TaskState.RUNNING, TaskState.BLOCKED
_FINAL = frozenset(state.value for state in TASK_FINAL)
_UNSUCCESSFUL = (TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)
#: Columns that a move may set for each task, by their type.
_COLUMNS = {
    "fence": "int",
    "error": "text",
    "result": "text",
    "reason": "text",
    "due_at": "float",
    "priority": "int",
    "fair_tag": "float",
    "ready_at": "float",
    "lock_tries": "int",
}
#: Why a task waits after a run that did not end it; others are given by the caller.
_REASONS = {"retry": Reason.BACKOFF, "reap_later": Reason.BACKOFF, "stop": Reason.STOPPED}
_RETURNED = (
    t.id, t.job_id, t.fence, t.attempt, t.cost, t.parent_id, t.begin_at, t.has_successors,
    t.document_id, t.generation, t.from_page, t.error,
)  # fmt: skip
#: Columns of the history of runs: one row per attempt, written when the run ends.
_HISTORY = (
    "task_id", "fence", "attempt", "began_at", "finished_at", "duration", "outcome", "error",
    "traceback", "peak_rss", "worker_id",
)  # fmt: skip
#: Events are named `task.MOVE`, except for these.
_EVENTS = {"give_up": "task.lose", "lock_out": "task.fail"}


def transition(
    conn: sa.Connection,
    rows: Sequence[Sequence[Any]],
    move: str,
    *,
    source: TaskState,
    now: Instant,
    columns: Sequence[str] = (),
    **values: Any,
) -> list[int]:
    """Make one move of tasks that are in `source`; returns those that were.

    A row is a task's id and its own values of `columns`; `values` are the same for all of them.
    """
    one = Transition(conn, now)
    moved = one.apply(rows, move, source=source, columns=columns, **values)
    one.conclude()
    return moved


def claim(
    conn: sa.Connection,
    ids: Sequence[int],
    begun: Mapping[int, int],
    worker_id: str,
    *,
    now: Instant,
    ttl: float,
) -> None:
    """Lease ready tasks to a worker; `begun` counts them by job. All of their rows are locked."""
    counting, counted = job_transition.start(conn, begun, worker_id)
    given = {
        "ids": dialect.encode_ids(conn, ids),
        "set_worker_id": worker_id,
        "set_expires_at": now.lease + ttl,
        "wall": now.wall,
        **counted,
    }
    claiming = _statement(conn, "claim", TaskState.READY)
    dialect.execute_both(conn, claiming, counting, given)


def release(conn: sa.Connection, ids: Sequence[int], *, now: Instant) -> int:
    """Make blocked tasks ready, or write the next reason that blocks them; returns how many are.

    Tasks whose job cannot be locked in order stay as they are: the sweep finds them.
    """
    if not ids:
        return 0
    ids = _lock_jobs_of(conn, ids)
    dialect.lock_rows(conn, tasks, ids)
    ready, waiting = order.placed(conn, ids, now=now)
    one = Transition(conn, now)
    aside = {"fair_tag": 0.0, "ready_at": None}
    one.apply(waiting, "wait", source=BLOCKED, columns=("reason", "due_at", "priority"), **aside)
    one.apply(ready, "release", source=BLOCKED, columns=("priority", "fair_tag", "ready_at"))
    one.conclude()
    return len(ready)


def release_next_jobs(conn: sa.Connection, owner_ids: Collection[int], *, now: Instant) -> int:
    """Release what waited for another job of the same owners to end."""
    if not owner_ids:
        return 0
    return release(conn, order.next_in_turn(conn, owner_ids), now=now)


def satisfy_late(conn: sa.Connection, *, now: Instant) -> None:
    """Satisfy what `satisfy_jobs` had to leave, because the successor's job was locked."""
    states = job_transition.lock_states(conn, dependencies.late_jobs(conn))
    over = {job_id: state for job_id, state in states.items() if state in dependencies.OVER}
    satisfy_jobs(conn, over, now=now)


def satisfy_jobs(conn: sa.Connection, ended: Mapping[int, str], *, now: Instant) -> None:
    """Release or cancel what waits for jobs that ended, given the state each ended in."""
    free, cancelled = dependencies.satisfy(conn, "job", ended, now=now)
    release(conn, free, now=now)
    rows = sorted(cancelled.items())
    transition(conn, rows, "cascade", source=BLOCKED, now=now, columns=("error",))


class Transition:
    """Moves of one transaction. `apply` and `end` write states, `conclude` what follows."""

    def __init__(self, conn: sa.Connection, now: Instant, *, are_active: bool = False) -> None:
        self.deltas = Deltas()
        self._conn = conn
        self._now = now
        #: The caller has locked the jobs and knows that all of them are active.
        self._are_active = are_active
        self._may_end_jobs = False
        self._runs: list[tuple[Any, ...]] = []
        self._events: list[events.Event] = []
        self._ended: list[EndedTask] = []
        self._awaited: dict[int, str | None] = {}

    def apply(
        self,
        rows: Sequence[Sequence[Any]],
        move: str,
        *,
        source: TaskState,
        columns: Sequence[str] = (),
        **values: Any,
    ) -> list[int]:
        """Move tasks that no worker holds, as `transition` does."""
        if not rows:
            return []
        given = {f"set_{name}": value for name, value in values.items()}
        found = self._execute(move, source, tuple(columns), tuple(values), rows, given)
        target = TASK_MOVES[move].target
        if target != source:
            is_told = "error" in columns or "error" in values
            for row in found:
                self._count(row, move, source, target, is_told)
        return [task_id for task_id, *_ in found]

    def _count(self, row: Any, move: str, source: str, target: str, is_told: bool) -> None:
        delta = self.deltas[row.job_id]
        delta.move(source, target)
        was_over = is_over(source, row.parent_id, row.document_id)
        if is_over(target, row.parent_id, row.document_id) != was_over:
            delta.cost_done += -row.cost if was_over else row.cost
        if target not in _FINAL:
            return
        self._note_end(row, move, target)
        if is_told:
            self._tell(row.job_id, row.id, move, {"error": row.error})
            if target in _UNSUCCESSFUL:
                delta.error = row.error

    def end(self, settlements: Sequence[Settlement]) -> set[Key]:
        """End runs of tasks: a statement for those of one shape; returns (task, fence) of these."""
        shapes: dict[tuple[Any, ...], list[Settlement]] = {}
        for one in settlements:
            shape = one.move, one.refund_attempt, one.crashed, one.error is None, one.result is None
            shapes.setdefault(shape, []).append(one)
        done: set[Key] = set()
        for (move, refund_attempt, crashed, no_error, no_result), some in sorted(shapes.items()):
            is_told = not (no_error and no_result)
            done.update(self._end(move, some, is_told, int(refund_attempt), int(crashed)))
        return done

    def _end(
        self, move: str, some: Sequence[Settlement], is_told: bool, given_back: int, crashed: int
    ) -> list[Key]:
        _, target, is_fenced, _ = TASK_MOVES[move]
        is_final, wall = target in _FINAL, self._now.wall
        columns: tuple[str, ...] = ("fence",)
        if is_told and (is_fenced or is_final):
            columns += ("error", "result")
        if _REASONS.get(move) == Reason.BACKOFF:
            columns += ("due_at",)
        rows = [
            [e.task_id, e.fence, *((e.error, e.result) if "error" in columns else ()),
             *([wall + (e.due_in or 0.0)] if "due_at" in columns else ())]
            for e in some
        ]  # fmt: skip
        given = {"given_back": given_back, "crashed": crashed}
        found = self._execute(move, RUNNING, columns, (), rows, given)
        self._count_runs(found, some, move, given_back)
        raised = 0 if is_fenced else 1  # by whoever ended the lease of another
        return [(task_id, fence - raised) for task_id, _, fence, *_ in found]

    def _count_runs(
        self, found: Sequence[Any], settlements: Sequence[Settlement], move: str, given_back: int
    ) -> None:
        """Collect what the ends of runs change: counters, history, events, documents."""
        _, target, is_fenced, _ = TASK_MOVES[move]
        is_final, wall = target in _FINAL, self._now.wall
        self._may_end_jobs = self._may_end_jobs or is_final
        by_run = {(e.task_id, e.fence): e for e in settlements}
        for row in found:
            # Unpacked by position: this loop runs for every task there is, inside the transaction.
            (task_id, job_id, fence, attempt, cost, parent_id, begin_at, has_successors,
             document_id, *_) = row  # fmt: skip
            run = by_run[task_id, fence if is_fenced else fence - 1]
            delta = self.deltas[job_id]
            delta.move(RUNNING, target)
            if is_over(target, parent_id, document_id):
                # The cost of a range that was split lives on in its halves.
                delta.cost_done += 0.0 if move == "split" else cost
            if run.error is not None:
                self._tell_of_run(job_id, attempt, move, run)
            if run.result is not None and parent_id is None:
                delta.result = run.result
            if is_final and (has_successors or document_id is not None):
                self._note_end(row, move, target, run)
            self._runs.append(
                (task_id, run.fence, attempt + given_back, run.began_at or begin_at, wall,
                 run.duration if is_fenced else wall - begin_at, run.outcome, run.error,
                 run.traceback, run.peak_rss, run.worker_id)
            )  # fmt: skip
            if move == "retry":
                delta.retry_count += 1

    def touch(self, job_ids: Iterable[int]) -> None:
        """Let jobs end that have no open task left."""
        for job_id in job_ids:
            self.deltas[job_id].move(None, None)
            self._may_end_jobs = True

    def conclude(self) -> None:
        """Write everything that follows from the moves, and cancel what waited in vain."""
        doomed = self._conclude()
        # Edges form no cycle and each is satisfied once, so this ends.
        while doomed:
            chained = Transition(self._conn, self._now)
            failed = sorted((i, why) for i, why in doomed.items() if why is not None)
            chained.apply(failed, "cascade", source=BLOCKED, columns=("error",))
            with_job = sorted((i,) for i, why in doomed.items() if why is None)
            chained.apply(with_job, "cancel", source=BLOCKED)
            doomed = chained._conclude()

    def _conclude(self) -> dict[int, str | None]:
        """Write what follows from the moves so far; returns tasks to cancel, with the reason."""
        if not self.deltas:
            return {}
        conn, now = self._conn, self._now
        ids = sorted(self.deltas)
        inactive = set() if self._are_active else job_transition.lock_inactive(conn, ids)
        for job_id in inactive:  # was stopped or cancelled, and says why
            self.deltas[job_id].error = None
        bulk.bulk_insert(conn, attempts, _HISTORY, self._runs)
        if self._ended:
            on_ended(conn).tasks_ended(conn, self._ended, now=now)
        events.record(conn, self._events, now=now)
        touched = job_transition.update_counters(conn, self.deltas, now=now, are_locked=True)
        ended = []
        if self._may_end_jobs:
            ended = [job for job in touched if job.ended and job.id not in inactive]
        return self._follow(ended)

    def _follow(self, ended: Sequence[job_transition.Touched]) -> dict[int, str | None]:
        """Record jobs that ended and release what waited; returns tasks to cancel."""
        if not ended and not self._awaited:
            return {}
        conn, now = self._conn, self._now
        told = [
            events.Event(j.id, f"job.{j.state}", None, {"error": j.error} if j.error else None)
            for j in ended
        ]
        events.record(conn, told, now=now)
        awaited_jobs = {job.id: job.state for job in ended if job.has_successors}
        after_tasks, doomed = dependencies.satisfy(conn, "task", self._awaited, now=now)
        after_jobs, also_doomed = dependencies.satisfy(conn, "job", awaited_jobs, now=now)
        doomed |= also_doomed
        free = {*after_tasks, *after_jobs} - set(doomed)
        release(conn, sorted(free), now=now)
        release_next_jobs(conn, {j.owner_id for j in ended if j.exclusive_key}, now=now)
        return doomed

    def _execute(
        self,
        move: str,
        source: TaskState,
        columns: tuple[str, ...],
        shared: tuple[str, ...],
        rows: Sequence[Sequence[Any]],
        values: Mapping[str, Any],
    ) -> Sequence[Any]:
        statement = _statement(self._conn, move, source, columns, shared)
        given = dict(values)
        if TASK_MOVES[move].target in _FINAL:
            given["wall"] = self._now.wall
        if columns:
            given["moved"] = dialect.encode_rows(rows)
        else:
            given["ids"] = dialect.encode_ids(self._conn, [task_id for task_id, *_ in rows])
        return self._conn.execute(statement, given).all()

    def _note_end(self, row: Any, move: str, state: str, run: Settlement | None = None) -> None:
        self._may_end_jobs = True
        if row.has_successors:
            # Successors of a task that is cancelled with its job are cancelled with it too.
            self._awaited[row.id] = None if move == "cancel" else state
        if row.document_id is not None:
            about = row.document_id, row.generation, row.from_page, row.error
            spent = (run.outcome, run.duration, run.peak_rss) if run else ()
            self._ended.append(EndedTask(row.id, move, state, *about, *spent))

    def _tell(self, job_id: int, task_id: int, move: str, detail: dict[str, Any]) -> None:
        # Cancelled tasks are told by the event of their job, or of what they waited for.
        if move not in ("cancel", "cascade"):
            name = _EVENTS.get(move, f"task.{move}")
            self._events.append(events.Event(job_id, name, task_id, detail))

    def _tell_of_run(self, job_id: int, attempt: int, move: str, run: Settlement) -> None:
        """Record a run that did not succeed; a success is told by the end of its job."""
        _, target, is_fenced, _ = TASK_MOVES[move]
        if is_fenced or target in _UNSUCCESSFUL:
            self.deltas[job_id].error = run.error
        detail: dict[str, Any] = {"error": run.error}
        if run.outcome == "died" and not is_fenced:
            detail = {"worker": run.worker_id, "state": target}
            self._events.append(events.Event(job_id, "task.died", run.task_id, detail))
            return
        if is_fenced:
            detail = {"outcome": run.outcome, **detail, "attempt": attempt}
        if run.due_in:
            detail["again_in"] = round(run.due_in, 1)
        self._tell(job_id, run.task_id, move, detail)


@dialect.statement
def _statement(
    conn: sa.Connection,
    move: str,
    source: TaskState,
    columns: tuple[str, ...] = (),
    shared: tuple[str, ...] = (),
) -> Any:
    """Build the UPDATE of a move: its WHERE clause and its target come from `TASK_MOVES`."""
    sources, target, *_ = TASK_MOVES[move]
    if source not in sources or (source == RUNNING) != ("fence" in columns):
        raise AssertionError(f"task: {move!r} does not lead from {source!r} by these columns")
    values = {"state": target, **effects(move, source)}
    if columns:
        row = dialect.json_rows(conn, "moved", {"id": "int", **{c: _COLUMNS[c] for c in columns}})
        where = [t.id == row.c.id, *([t.fence == row.c.fence] if "fence" in columns else ())]
        values |= {name: row.c[name] for name in columns if name != "fence"}
    else:
        # A list, not a table: PostgreSQL would guess its size and may walk the whole index.
        where = [dialect.id_in(conn, t.id, "ids")]
    values |= {name: sa.bindparam(f"set_{name}", type_=t[name].type) for name in shared}
    statement = sa.update(tasks).where(*where, is_state(t.state, source)).values(**values)
    return statement if move == "claim" else statement.returning(*_RETURNED)


def moving(move: str, source: TaskState, at: Any, **values: Any) -> sa.Update:
    """Build an UPDATE that makes one move at the time `at`; the caller says of which tasks."""
    changed = effects(move, source, at) | values
    is_now = has_state(t.state, source)
    return sa.update(tasks).where(is_now).values(state=TASK_MOVES[move].target, **changed)


def effects(move: str, source: TaskState, at: Any = None) -> dict[str, Any]:
    """Return what a move sets besides the state, unless the caller gives it.

    Its time is the parameter `wall`, or the expression `at`.
    """
    _, target, is_fenced, _ = TASK_MOVES[move]
    wall = sa.bindparam("wall", type_=sa.Double) if at is None else at
    values: dict[str, Any] = {}
    if BLOCKED in (source, target):
        values |= {"reason": _REASONS.get(move), "due_at": None}
    if target in _FINAL:
        values["finished_at"] = wall
    if source == RUNNING:
        values |= {
            "worker_id": None,
            "expires_at": None,
            "attempt": t.attempt - sa.bindparam("given_back", type_=sa.Integer),
            "crashes": t.crashes + sa.bindparam("crashed", type_=sa.Integer),
        }
        values |= {"error": None, "result": None} if is_fenced else {"fence": t.fence + 1}
    if move == "claim":
        values |= {
            "worker_id": sa.bindparam("set_worker_id", type_=sa.Text),
            "expires_at": sa.bindparam("set_expires_at", type_=sa.Double),
            "attempt": t.attempt + 1,
            "fence": t.fence + 1,
            "begin_at": wall,
            "progress": 0.0,
            "progress_at": wall,
        }
    if move == "revive":
        values |= {"attempt": 0, "crashes": 0, "error": None, "finished_at": None}
    return values


def _lock_jobs_of(conn: sa.Connection, ids: Sequence[int]) -> list[int]:
    """Lock the owners and the jobs of tasks; returns the tasks whose job it got."""
    if not dialect.has_row_locks(conn):
        return list(ids)
    wanted = sa.select(t.id, t.job_id, t.owner_id).where(dialect.id_in(conn, t.id, "ids"))
    rows = conn.execute(wanted, {"ids": dialect.encode_ids(conn, ids)}).all()
    if not job_transition.holds_jobs(conn):
        # Else without: two equal tags of an owner only cost a little fairness.
        dialect.lock_rows(conn, owners, list({row.owner_id for row in rows}))
    locked = job_transition.lock(conn, {row.job_id for row in rows})
    return [row.id for row in rows if row.job_id in locked]
