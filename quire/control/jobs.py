"""The verbs on jobs: submit, stop, resume, cancel, retry, reprioritise, delete, pause a kind."""

import functools
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from quire import format
from quire.clock import Instant
from quire.control import queries, secrets, sources, submission_checks, tenants
from quire.control.caller import Caller, verb
from quire.control.refusals import noted
from quire.errors import Conflict, Forbidden, NotFound, TooMany, UnknownKind, UserBusy
from quire.model import payloads
from quire.model.records import LOCAL, KindRow, Owner, Submission
from quire.model.states import Reason
from quire.store import Connection
from quire.store.db import dialect, plain_submit
from quire.store.documents import reindex
from quire.store.queue import job_actions, job_transition, kinds, owners, release, transition
from quire.store.queue import submit as storing
from quire.store.reports import jobs as reports

#: Jobs per transaction of bulk actions.
PAGE = 200


@noted("job.submit")
def submit(
    caller: Caller,
    submissions: Sequence[Submission],
    *,
    key: str | None = None,
    by_person: bool = True,
    before: Callable[[Any], Collection[int]] = lambda conn: (),
    then: Callable[[Any, list[int], Instant], None] | None = None,
    is_own: bool = False,
) -> list[int]:
    """Create jobs, all or none; returns their ids. The same key creates them only once.

    What `then` writes is committed with them. `before` locks the documents that it needs, and
    returns the jobs: documents come before jobs in the lock order. `is_own`: the payloads were
    made by Quire, for an upload or to index a document again.
    """
    if not submissions:
        return []
    submissions = submissions if is_own else _within_corpus(caller, submissions)
    are_alike = submission_checks.are_alike(submissions)
    encoded = _checked(caller, submissions, key, is_own=is_own, are_alike=are_alike)
    encoded, sealer = secrets.sealed(caller, submissions, encoded)
    key, body = _identified(caller, submissions, encoded, key)
    made_before = _known_past_the_limit(caller, len(submissions), key, body)
    plain = None
    if then is None and sealer is None and are_alike:
        plain = _plain(caller, submissions[0], encoded, key, body, by_person)
    if (made := made_before or _submit_plain(caller, plain)) is not None:
        return made

    def act(conn: Connection, now: Instant) -> list[int]:
        owner = owners.lock_or_create(conn, caller.tenant, caller.user)
        if (made := storing.find_by_key(conn, owner.id, key, body)) is not None:
            return made
        rows = _kinds_for(caller, conn, {submission.kind for submission in submissions})
        _require_offered(caller, rows.values(), submissions)
        checked = [
            storing.CheckedSubmission(w, p, rows[w.kind])
            for w, p in zip(submissions, encoded, strict=True)
        ]
        named = {i for w in submissions for i in w.after if isinstance(i, int)}
        policy = _policy(caller, owner) if by_person else "all"
        active = storing.active_jobs(conn, owner.id) if policy in ("queue", "replace") else ()
        job_transition.lock_all(conn, {*before(conn), *named, *active})
        exclusive, behind = _apply_policy(caller, conn, owner, by_person)
        ids = storing.insert(
            conn, owner, checked,
            exclusive_key=exclusive, is_behind=behind, origin=caller.origin, now=now,
        )  # fmt: skip
        if by_person and _policy(caller, owner) == "replace":
            _replace(conn, owner, ids, now)
        if then is not None:
            then(conn, ids, now)
        secrets.store(conn, sealer, submissions, now)
        storing.store_key(conn, owner.id, key, body, ids, now=now)
        dialect.notify(conn)
        return ids

    # The key makes a retry safe even if the COMMIT succeeded but its reply was lost.
    ids = caller.db.write(act, is_idempotent=True)
    caller.ring()
    return ids


def _known_past_the_limit(
    caller: Caller, count: int, key: str | None, body_hash: str
) -> list[int] | None:
    """Refuse jobs past the limit of the tenant, but return those that this key made before."""
    try:
        tenants.require_jobs(caller, count)
    except TooMany:

        def act(conn: Connection, now: Instant) -> list[int] | None:
            owner = owners.lock_or_create(conn, caller.tenant, caller.user)
            return storing.find_by_key(conn, owner.id, key, body_hash)

        if (made := caller.db.write(act)) is None:
            raise
        return made
    return None


def _checked(
    caller: Caller,
    submissions: Sequence[Submission],
    key: str | None,
    *,
    is_own: bool,
    are_alike: bool,
) -> list[str]:
    """Check a request; return its encoded payloads."""
    encoded = [
        submission_checks.payload(submission, caller.payload_limit) for submission in submissions
    ]
    submission_checks.submissions(submissions, alike=are_alike)
    submission_checks.key(key)
    for submission in () if is_own else submissions:
        _require_allowed(caller, submission)
    return encoded


def _within_corpus(caller: Caller, submissions: Sequence[Submission]) -> Sequence[Submission]:
    """Return submissions that ingest into the corpus that the caller is bound to, if to any."""
    if caller.corpus is None:
        return submissions
    if any(one.kind != "ingest" or one.after for one in submissions):
        raise Forbidden(
            f"token: is bound to the corpus {caller.corpus.name}, so it submits only `ingest`, and "
            "not after other jobs. Nothing was submitted."
        )
    return [
        replace(one, payload={**one.payload, "corpus": queries.corpus_for(caller, corpus)})
        for one in submissions
        for corpus in [one.payload.get("corpus")]
    ]


def _require_allowed(caller: Caller, one: Submission) -> None:
    """Refuse a payload that its kind does not take, and sources that the caller may not use."""
    by_api = caller.origin != LOCAL
    payloads.check_submitted(one.kind, one.payload, by_api=by_api)
    if by_api and one.kind == "ingest":
        sources.require_granted(caller, one.payload["sources"])


def _require_offered(
    caller: Caller, rows: Iterable[KindRow], submissions: Sequence[Submission]
) -> None:
    """Refuse kinds that a plugin does not offer to users of the API."""
    wanted = {one.kind for one in submissions}
    for row in rows if caller.origin != LOCAL else ():
        if row.is_internal and row.name in wanted:
            raise payloads.refused(row.name)


def _plain(
    caller: Caller,
    one: Submission,
    payloads: Sequence[str],
    key: str | None,
    body_hash: str,
    by_person: bool,
) -> plain_submit.PlainJobs | None:
    """Return jobs like `one` for the short path, or None if they wait for something."""
    if one.after or one.ref is not None or one.run_at is not None:
        return None
    if by_person and caller.policy != "all":
        return None
    return plain_submit.PlainJobs(
        caller.tenant, caller.user, one.kind, one.priority, one.cost, one.platform, one.account,
        one.max_attempts, key, body_hash, by_person, caller.origin, payloads,
    )  # fmt: skip


def _submit_plain(caller: Caller, new: plain_submit.PlainJobs | None) -> list[int] | None:
    """Submit jobs on the short path; None if they have to take the long one."""
    if new is None or (made := plain_submit.submit(caller.db, new)) is None:
        return None
    caller.ring()
    return made


def stop(caller: Caller, job_ids: Sequence[int], *, why: str | None = None) -> list[int]:
    """Stop jobs. Finished work is kept, and they can be resumed."""
    return _halt(caller, job_ids, "stop", why)


def cancel(caller: Caller, job_ids: Sequence[int], *, why: str | None = None) -> list[int]:
    """Cancel jobs permanently."""
    return _halt(caller, job_ids, "cancel", why)


def resume(caller: Caller, job_ids: Sequence[int]) -> list[int]:
    """Resume stopped or failed jobs: what is pending, what failed, and what waited for that."""
    return _revive(caller, job_ids, "resume")


def retry(
    caller: Caller,
    job_ids: Sequence[int],
    *,
    only_failed: bool = False,
    document_id: int | None = None,
) -> list[int]:
    """Run unsuccessful tasks again with new attempts; all, only failed ones, or one file."""
    revival = "retry_failed" if only_failed else "retry"
    return _revive(caller, job_ids, revival, document_id=document_id)


def reprioritise(caller: Caller, job_ids: Sequence[int], priority: int) -> list[int]:
    """Change the priority of jobs, 1 (highest) to 10 (lowest)."""
    submission_checks.priority(priority)

    def act(conn: Connection, now: Instant) -> list[int]:
        _own(conn, caller, job_ids)
        changed = job_actions.reprioritise(conn, job_ids, priority, now=now)
        dialect.notify(conn)
        return changed

    changed = caller.db.write(act)

    def reorder(conn: Connection, now: Instant, after: int) -> int:
        dialect.notify(conn)
        return job_actions.reorder(conn, changed, after, now=now)

    last = 0
    while changed and (last := caller.db.write(functools.partial(reorder, after=last))):
        pass
    _finish(caller, changed)
    caller.ring()
    return changed


def delete(caller: Caller, job_ids: Sequence[int]) -> list[int]:
    """Delete jobs that have ended, with their history."""

    def act(conn: Connection, now: Instant) -> list[int]:
        _own(conn, caller, job_ids)
        return job_actions.delete(conn, job_ids, now=now)

    gone = caller.db.write(act)
    if gone:
        _repeat(caller, lambda conn, now: job_actions.collect(conn, now=now))
    return gone


@verb
def pause(caller: Caller, conn: Connection, now: Instant, kind: str) -> bool:
    """Stop claiming tasks of a kind until `unpause`; running ones finish."""
    _kinds_for(caller, conn, {kind})
    return kinds.pause(conn, kind, now.wall)


def unpause(caller: Caller, kind: str) -> bool:
    """Let tasks of a kind be claimed again."""

    def act(conn: Connection, now: Instant) -> bool:
        _kinds_for(caller, conn, {kind})
        return kinds.pause(conn, kind, None)

    changed = caller.db.write(act)
    release_blocked(caller, Reason.PAUSED, kinds_in=[kind])
    return changed


def release_blocked(caller: Caller, reason: Reason, *, kinds_in: Sequence[str] = ()) -> None:
    """Release the tasks that a reason has blocked, in batches."""

    def act(conn: Connection, now: Instant) -> int:
        ids = release.blocked_for(conn, reason, kinds_in=kinds_in)
        transition.release(conn, ids, now=now)
        dialect.notify(conn)
        return len(ids)

    _repeat(caller, act)
    caller.ring()


VERBS: dict[str, Callable[..., list[int]]] = {
    "stop": stop, "cancel": cancel, "resume": resume, "retry": retry, "delete": delete,
    "reprioritise": reprioritise,
}  # fmt: skip


def in_bulk(
    caller: Caller,
    verb: str,
    *,
    options: Mapping[str, Any] | None = None,
    **filters: Any,
) -> int:
    """Apply a verb to every job that matches and allows it, in batches; returns how many."""
    act = VERBS[verb]
    # Bounded by the last job of now: jobs that are created meanwhile must not prolong the loop.
    with caller.db.read() as conn:
        last = reports.last_job_id(conn)
    done, after = 0, 0
    while True:
        with caller.db.read() as conn:
            ids = reports.ids_of_jobs(
                conn, caller.tenant, after_id=after, limit=PAGE, allowing=verb, **filters
            )
        ids = [i for i in ids if i <= last]
        if not ids:
            return done
        done += len(act(caller, ids, **(options or {})))
        after = ids[-1]


def one(caller: Caller, verb: str, job_id: int, **options: Any) -> None:
    """Apply a verb to one job, or raise Conflict if its state does not allow it."""
    found = queries.job(caller, job_id)
    if not VERBS[verb](caller, [job_id], **options):
        raise Conflict(_refusal(verb, job_id, found))


def _refusal(verb: str, job_id: int, found: dict[str, Any]) -> str:
    can = ", ".join(found["allowed"]) or "nothing"
    state = format.job_state(found)
    if verb == "delete":
        return (
            f"job {job_id}: it is {state}, and only a job that has ended can be deleted. "
            f"Stop it first: quire job stop {job_id}"
        )
    if verb == "reprioritise":
        return f"job {job_id}: it is {state}, so its priority has no effect."
    return f"job {job_id}: it is {state}; cannot {verb} it. Possible now: {can}."


def _halt(caller: Caller, job_ids: Sequence[int], verb: str, why: str | None) -> list[int]:
    def act(conn: Connection, now: Instant) -> list[int]:
        _own(conn, caller, job_ids)
        changed = job_actions.halt(conn, job_ids, verb, why, by=caller.user, now=now)
        dialect.notify(conn)
        return changed

    changed = caller.db.write(act)
    caller.ring()
    if changed:
        caller.db.write(lambda conn, now: job_actions.revoke_strays(conn, now=now))
        _repeat(caller, lambda conn, now: job_actions.sweep_halted(conn, changed, now=now))
        caller.ring()
    return changed


def _revive(
    caller: Caller,
    job_ids: Sequence[int],
    revival: str,
    *,
    document_id: int | None = None,
) -> list[int]:
    def act(conn: Connection, now: Instant) -> list[int]:
        _own(conn, caller, job_ids)
        whose = owners.of_jobs(conn, job_ids, lock=True)
        if document_id is None:
            changed = job_actions.revive(conn, job_ids, revival, now=now)
        else:
            _require_failure(conn, job_ids, revival, document_id)
            changed = job_actions.revive_document(conn, job_ids, revival, document_id, now=now)
        for owner in whose:
            active = storing.active_jobs(conn, owner.id)
            mine = [i for i in changed if i in set(active)]
            if mine and _policy(caller, owner) == "replace":
                _replace(conn, owner, mine, now)
            if mine and _policy(caller, owner) == "reject":
                _refuse_second(owner, [i for i in active if i != mine[0]])
        return changed

    changed = caller.db.write(act)
    _finish(caller, changed)
    caller.ring()
    return changed


def _finish(caller: Caller, job_ids: Sequence[int]) -> None:
    def act(conn: Connection, now: Instant) -> bool:
        has_more = job_actions.finish(conn, job_ids, now=now)
        dialect.notify(conn)
        return has_more

    if job_ids:
        _repeat(caller, act)


def _repeat(caller: Caller, act: Callable[[Connection, Instant], object]) -> None:
    """Repeat a short transaction until it has nothing left to do."""
    while caller.db.write(act):
        pass


def _require_failure(
    conn: Connection, job_ids: Sequence[int], revival: str, document_id: int
) -> None:
    if not reindex.ended_badly(conn, job_ids, document_id, job_actions.revived_states(revival)):
        raise Conflict(
            f"document {document_id}: it did not fail in job "
            f"{', '.join(map(str, job_ids))}, so there is nothing to retry. "
            f"`quire document show {document_id}` shows its state."
        )


def _own(conn: Connection, caller: Caller, job_ids: Sequence[int]) -> None:
    """Raise NotFound for jobs of other tenants, as if they did not exist."""
    found = set(owners.jobs_of_tenant(conn, caller.tenant, job_ids))
    if missing := [i for i in job_ids if i not in found]:
        raise NotFound(
            f"job {', '.join(map(str, missing[:5]))}: no such job. `quire jobs` lists them."
        )


def _policy(caller: Caller, owner: Owner) -> str:
    return owner.policy or caller.policy


def _apply_policy(
    caller: Caller, conn: Connection, owner: Owner, by_person: bool
) -> tuple[str | None, bool]:
    """Return the exclusive key of the new jobs, and whether another job runs first."""
    policy = _policy(caller, owner)
    if not by_person or policy in ("all", "replace"):
        return None, False
    active = storing.active_jobs(conn, owner.id)
    if policy == "reject":
        _refuse_second(owner, active)
        return None, False
    return f"user:{owner.id}", bool(active)


def _refuse_second(owner: Owner, active: Sequence[int]) -> None:
    if active:
        raise UserBusy(
            f"user {owner.user}: job {active[0]} is still active and the policy is `reject`. "
            f"Nothing was changed; stop it first: quire job stop {active[0]}"
        )


def _replace(conn: Connection, owner: Owner, ids: Sequence[int], now: Instant) -> None:
    others = [i for i in storing.active_jobs(conn, owner.id) if i not in set(ids)]
    if others and ids:
        job_actions.halt(conn, others, "stop", f"replaced by job {ids[0]}", now=now)


def _kinds_for(caller: Caller, conn: Connection, wanted: set[str]) -> dict[str, KindRow]:
    """Return the known kinds; those that only this process knows are announced first."""
    rows = kinds.by_name(conn)
    if new := wanted - set(rows):
        kinds.announce(conn, [kind for name, kind in caller.known().items() if name in new])
        rows = kinds.by_name(conn)
    for kind in sorted(wanted - set(rows)):
        names = ", ".join(sorted({*rows, *caller.known()})) or "none"
        raise UnknownKind(
            f"job kind {kind!r}: unknown. Known kinds: {names}. Nothing was submitted. "
            "Name its plugin with --plugin, or start a worker that has it."
        )
    return rows


def _identified(
    caller: Caller, submissions: Sequence[Submission], encoded: Sequence[str], key: str | None
) -> tuple[str | None, str]:
    """Return the idempotency key of a request and the hash of its body.

    On PostgreSQL every request gets one, for a reply to a COMMIT can be lost; one that nobody
    else can have needs no hash.
    """
    if key is None:
        return (None if caller.db.is_embedded else os.urandom(16).hex()), ""
    whole = [
        (w.kind, w.priority, w.run_at, tuple(w.after), w.after_failure, w.platform, w.account,
         w.ref, w.cost, w.max_attempts, p)
        for w, p in zip(submissions, encoded, strict=True)
    ]  # fmt: skip
    body = hashlib.blake2b(json.dumps(whole).encode(), digest_size=16).hexdigest()
    return key, body
