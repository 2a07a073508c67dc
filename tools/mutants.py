"""Removes one guard at a time from a copy of the code, and runs the tests that must notice.

`make mutants` runs the whole list; `python tools/mutants.py claim gc` runs those whose name begins
with one of the words. A mutant that no test notices is a guard that nobody would miss: write a
test, or say in docs/guarantees.md why the guard only orders locks. The tests must pass on the code
as it is, else their failures would prove nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
#: A mutant that makes its test hang is noticed too.
SECONDS = 90
Q, D, W = "quire/store/queue/", "quire/store/documents/", "quire/runtime/worker/"
_FILES = {
    "claim": "tests/store/queue/test_claim.py",
    "concurrency": "tests/store/queue/test_concurrency.py",
    "dependencies": "tests/store/queue/test_dependencies.py",
    "exclusive": "tests/store/queue/test_exclusive.py",
    "guards": "tests/store/queue/test_guards.py",
    "job_actions": "tests/store/queue/test_job_actions.py",
    "large_jobs": "tests/store/queue/test_large_jobs.py",
    "lease": "tests/store/queue/test_lease.py",
    "lock_order": "tests/store/queue/test_lock_order.py",
    "plain_submit": "tests/store/queue/test_plain_submit.py",
    "plain_turn": "tests/store/queue/test_plain_turn.py",
    "retention": "tests/store/queue/test_retention.py",
    "submit": "tests/store/queue/test_submit.py",
    "tail": "tests/store/queue/test_tail.py",
    "worker_turn": "tests/store/queue/test_worker_turn.py",
    "zombies": "tests/store/queue/test_zombies.py",
    "group_commit": "tests/store/db/test_group_commit.py",
    "admission": "tests/store/documents/test_admission.py",
    "gc": "tests/store/documents/test_gc.py",
    "generations": "tests/store/documents/test_generations.py",
    "documents": "tests/store/documents/test_guards.py",
    "poison": "tests/store/documents/test_poison_pages.py",
    "hnsw": "tests/store/search/test_hnsw.py",
    "liveness": "tests/unit/test_liveness.py",
    "failover": "tests/integration/database/test_failover.py",
    "network": "tests/integration/database/test_network.py",
}


class Mutant(NamedTuple):
    """One guard that is removed, and the tests of which at least one must fail then."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def nodes(self) -> list[str]:
        """The tests as pytest names them; `file::test` has the short name of the file."""
        return [f"{_FILES[test.split('::')[0]]}::{test.split('::')[1]}" for test in self.tests]


def _mutant(name: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(name, file, old, new, tests)


MUTANTS = [
    # Leases and fences
    _mutant(
        "settle.fence", Q + "transition.py", "t.fence == row.c.fence", "t.fence > -1",
        "lease::test_settling_twice_changes_nothing", "zombies::test_a_zombie_is_refused",
    ),
    _mutant(
        "settle.hold.fence", Q + "settle.py", 't.fence == sa.bindparam("held")', "t.fence > -1",
        "lease::test_a_fenced_write_holds_the_task_or_is_refused",
    ),
    _mutant(
        "settle.hold.stopped", Q + "settle.py",
        "    if job_transition.lock_inactive(conn, [held.job_id]):\n", "    if False:\n",
        "lock_order::test_a_write_of_a_running_task_is_refused_after_a_stop",
    ),
    _mutant(
        "settle.stopped", Q + "settle.py",
        "stopped = job_transition.lock_inactive(conn, sorted({e.job_id for e in settlements}))",
        "stopped: set[int] = set()",
        "guards::test_a_stray_of_a_stopped_job_cannot_settle",
    ),
    _mutant(
        "settle.renew.fence", Q + "settle.py",
        "t.id == h.c.id, t.fence == h.c.fence, is_state", "t.id == h.c.id, is_state",
        "zombies::test_a_zombie_is_refused",
    ),
    _mutant(
        "settle.renew.waits", Q + "settle.py",
        "free = dialect.try_lock_rows(conn, tasks, [task_id for task_id, _ in held])",
        "free = {i for i, _ in held}; dialect.lock_rows(conn, tasks, list(free))",
        "guards::test_a_renewal_does_not_wait_for_a_locked_task",
    ),
    _mutant(
        "transition.raise_fence", Q + "transition.py",
        '{"fence": t.fence + 1}', '{"fence": t.fence}',
        "lease::test_reaping_gives_the_task_back_with_the_next_fence",
        "job_actions::test_cancelling_a_running_job_ends_its_lease_for_good",
    ),
    _mutant(
        "transition.source", Q + "transition.py",
        "sa.update(tasks).where(*where, is_state(t.state, source))",
        "sa.update(tasks).where(*where)",
        "guards::test_a_move_changes_no_task_that_has_left_its_source",
    ),
    _mutant(
        "settle.reap.clock", Q + "settle.py",
        "expired = t.expires_at < now.lease", "expired = t.expires_at < now.wall",
        "lease::test_renewing_extends_the_lease",
    ),
    _mutant(
        "settle.reap.stopped", Q + "settle.py",
        "stopped = job_transition.lock_inactive(conn, sorted({row.job_id for row in rows}))",
        "stopped: set[int] = set()",
        "lease::test_a_dead_workers_task_of_a_stopped_job_stays_stopped",
    ),
    _mutant(
        "settle.revoke.at_most_once", Q + "settle.py",
        'move = "give_up" if is_lost else "stop"', 'move = "stop"',
        "job_actions::test_stopping_what_must_not_run_twice_gives_it_up_as_lost",
    ),
    _mutant(
        "progress.fence", Q + "progress.py",
        "t.fence == p.c.fence", "t.fence > -1",
        "zombies::test_a_zombie_is_refused",
    ),
    # Commits without a reply
    _mutant(
        "outcome_of.nolock", Q + "commit_recovery.py",
        "    dialect.lock_rows(conn, tasks, [task_id])\n", "",
        "concurrency::test_after_a_lost_commit_reply_the_judge_waits_for_a_commit_under_way",
    ),
    _mutant(
        "recorded.nolock", Q + "commit_recovery.py",
        "    dialect.lock_rows(conn, tasks, ids)\n", "",
        "guards::test_what_is_recorded_is_asked_after_a_commit_under_way",
    ),
    _mutant(
        "recorded.never", Q + "commit_recovery.py",
        "if there.get(one.key) == (one.worker_id, one.outcome)", "if False",
        "guards::test_a_run_counts_as_recorded_only_as_it_was_settled",
    ),
    _mutant(
        "recorded.any_outcome", Q + "commit_recovery.py",
        "if there.get(one.key) == (one.worker_id, one.outcome)", "if one.key in there",
        "guards::test_a_run_counts_as_recorded_only_as_it_was_settled",
    ),
    _mutant(
        "confirm_commit.always_raise", Q + "fenced.py",
        "if commit_recovery.outcome_of(conn, task_id, fence) not in _OWN_ENDS:", "if True:",
        "guards::test_a_lost_connection_is_forgiven_only_if_the_commit_has_happened",
    ),
    _mutant(
        "confirm_commit.never_raise", Q + "fenced.py",
        "if commit_recovery.outcome_of(conn, task_id, fence) not in _OWN_ENDS:", "if False:",
        "guards::test_a_lost_connection_is_forgiven_only_if_the_commit_has_happened",
    ),
    _mutant(
        "step.second_look", Q + "fenced.py",
        "        if is_done:  # by an earlier call", "        if False:  # by an earlier call",
        "guards::test_a_step_that_was_stored_meanwhile_is_not_stored_again",
    ),
    _mutant(
        "write.require_active", Q + "fenced.py",
        "        result = act(transaction)\n        settle.require_active(conn, row)\n",
        "        result = act(transaction)\n",
        "lock_order::test_a_write_of_a_running_task_is_refused_after_a_stop",
    ),
    _mutant(
        "worker.doubt", W + "loop.py",
        'self.is_in_doubt, self.due["heartbeat"] = True, 0.0',
        'self.is_in_doubt, self.due["heartbeat"] = False, 0.0',
        "network::test_a_commit_that_is_cut_is_made_once_whoever_made_it",
    ),
    _mutant(
        "worker.strays", W + "loop.py",
        "                self._return([row])\n", "                pass\n",
        "network::test_a_commit_that_is_cut_is_made_once_whoever_made_it",
    ),
    # Verbs on jobs
    _mutant(
        "halt.revoke", Q + "job_actions.py",
        "    settle.revoke(conn, [(row.id, row.fence) for row in rows], now=now)\n", "",
        "guards::test_a_stop_ends_leases_in_its_own_transaction",
    ),
    _mutant(
        "halt.waits", Q + "job_actions.py",
        "free.with_for_update(skip_locked=True, key_share=True)",
        "free.with_for_update(key_share=True)",
        "lock_order::test_a_stop_does_not_wait_for_a_handler_whose_writes_are_then_refused",
    ),
    _mutant(
        "sweep_halted.nolock", Q + "job_actions.py",
        "    job_transition.lock_all(conn, {row.job_id for row in found})\n", "",
        "lock_order::test_a_job_that_runs_again_during_the_sweep_of_its_halt_runs",
    ),
    _mutant(
        "revoke_strays.none", Q + "job_actions.py",
        "return settle.revoke(conn, [(r.id, r.fence) for r in rows], now=now)", "return []",
        "guards::test_a_sweep_ends_the_lease_of_a_stray",
    ),
    _mutant(
        "revive.at_most_once", Q + "job_actions.py",
        'again = sa.not_(is_once) if revival == "resume" else sa.true()', "again = sa.true()",
        "job_actions::test_resuming_does_not_run_again_what_must_not_run_twice",
    ),
    _mutant(
        "revive.doomed", Q + "job_actions.py",
        "again = sa.and_(waits_for(*TASK_OPEN), sa.not_(doomed))",
        "again = sa.or_(waits_for(*TASK_OPEN), doomed)",
        "large_jobs::test_what_waits_for_a_task_that_is_not_run_again_stays_cancelled",
    ),
    _mutant(
        "revive.before_release", Q + "order.py",
        "if row.job_state not in JOB_ACTIVE or row.revives is not None:",
        "if row.job_state not in JOB_ACTIVE:",
        "large_jobs::test_no_task_is_released_before_all_are_revived",
    ),
    _mutant(
        "revive.not_over", Q + "job_transition.py",
        "sa.not_(is_open), sa.not_(j.is_reviving))", "sa.not_(is_open))",
        "large_jobs::test_a_job_does_not_end_while_it_is_being_revived",
    ),
    _mutant(
        "reopen", Q + "dependencies.py",
        "still_open = sa.exists().where(before.c.id == e.before_task_id, is_open)",
        "still_open = sa.false()",
        "large_jobs::test_a_job_that_runs_again_also_runs_what_its_failure_cancelled",
    ),
    _mutant(
        "delete.state", Q + "job_actions.py",
        "j.id.in_(sorted(job_ids)), is_state(j.state, *JOB_DELETABLE)", "j.id.in_(sorted(job_ids))",
        "job_actions::test_a_verb_is_allowed_in_just_the_states_that_the_chart_says",
    ),
    _mutant(
        "delete.nolock", Q + "job_actions.py",
        "    job_transition.lock_all(conn, job_ids)\n    gone = ", "    gone = ",
        "guards::test_a_deletion_that_waits_for_a_resume_deletes_nothing",
    ),
    _mutant(
        "retention.awaited", Q + "retention.py", "old, sa.not_(awaited), ", "old, ",
        "retention::test_a_job_that_another_waits_for_is_not_deleted_before_that_one_ran",
    ),
    _mutant(
        "retention.deleted", Q + "retention.py", ", sa.not_(owners.IS_DELETED)", "",
        "retention::test_a_job_that_is_being_deleted_is_not_deleted_again",
    ),
    _mutant(
        "sweep.finish_actions", W + "sweep.py", "    finish_actions(db)\n", "",
        "guards::test_a_sweep_finishes_resumes_and_releases_what_waited_for_a_worker",
    ),
    _mutant(
        "sweep.release_blocked", W + "sweep.py",
        "    db.write(lambda conn, now: release.release_overlooked(conn, known, now=now))\n", "",
        "guards::test_a_sweep_finishes_resumes_and_releases_what_waited_for_a_worker",
    ),
    # Claims
    _mutant(
        "claim.jobs.nolock", Q + "claim.py",
        "free.with_for_update(key_share=True, skip_locked=True).cte", "free.cte",
        "concurrency::test_a_claim_that_waits_for_a_stop_takes_nothing",
    ),
    _mutant(
        "claim.head.nolock", Q + "claim.py",
        "head.with_for_update(skip_locked=True, of=tasks).cte", "head.cte",
        "concurrency::test_a_claim_leaves_a_task_that_another_transaction_holds",
    ),
    _mutant(
        "claim.cap.nolock", Q + "claim.py",
        "locked = dialect.try_lock_rows(conn, owners, [owner_id for owner_id, _ in limits.capped])",
        "locked = {owner_id for owner_id, _ in limits.capped}",
        "guards::test_two_claims_at_once_keep_a_cap",
    ),
    _mutant(
        "claim.cap.queue", Q + "release.py",
        "tasks.c.owner_id == owner_id, tasks.c.queue == queue)", "tasks.c.owner_id == owner_id)",
        "claim::test_a_task_in_a_queue_that_nobody_serves_does_not_use_up_a_cap",
    ),
    _mutant(
        "claim.exclusive.batch", Q + "claim.py",
        "        locked.add(row.exclusive_key)\n", "",
        "exclusive::test_of_two_ready_tasks_with_one_key_one_runs_and_one_waits",
    ),
    _mutant(
        "claim.exclusive.running", Q + "claim.py",
        "return set(conn.scalars(_running(conn), wanted))", "return set()",
        "exclusive::test_a_key_that_a_running_task_has_keeps_later_claims_off",
    ),
    _mutant(
        "claim.alone", Q + "claim.py",
        "            if alone <= 0:\n                continue\n", "",
        "guards::test_a_task_that_crashed_is_claimed_alone",
    ),
    _mutant(
        "exclusive.conflict", "quire/store/db/engine.py",
        'broken in ("uq_jobs_exclusive", "uq_tasks_exclusive", ', "broken in (",
        "exclusive::test_two_claimers_at_the_same_instant_never_run_one_key_twice",
    ),
    _mutant(
        "exclusive.behind_running", Q + "order.py",
        "        job.c.state != JobState.RUNNING,", "        sa.true(),",
        "guards::test_a_running_job_does_not_wait_for_one_that_waits_for_it",
    ),
    # Plain turns
    _mutant(
        "plain.fence", Q + "plain_turn.py", "*(t.id == run.c.id, t.fence == run.c.fence),",
        "t.id == run.c.id,",
        "plain_turn::test_a_zombie_does_not_end_the_run_of_the_new_holder",
    ),
    _mutant(
        "plain.stopped", Q + "plain_turn.py", "return bool(touched == counted)", "return True",
        "plain_turn::test_a_stop_that_commits_while_the_turn_waits_is_obeyed",
    ),
    _mutant(
        "plain.active", Q + "plain_turn.py", "counting.where(*is_plain).cte", "counting.cte",
        "plain_turn::test_a_stop_that_commits_while_the_turn_waits_is_obeyed",
    ),
    _mutant(
        "plain.head.nolock", Q + "plain_turn.py",
        "claim.HEAD.with_for_update(skip_locked=True, of=tasks).cte", "claim.HEAD.cte",
        "plain_turn::test_a_locked_task_is_not_waited_for",
    ),
    _mutant(
        "plain.jobs.nolock", Q + "plain_turn.py",
        "        .with_for_update(key_share=True, skip_locked=True)\n", "",
        "plain_turn::test_a_locked_job_is_not_waited_for",
    ),
    _mutant(
        "plain.end.state", Q + "transition.py",
        "sa.update(tasks).where(is_now).values", "sa.update(tasks).values",
        "plain_turn::test_a_run_that_has_ended_is_not_ended_again",
    ),
    _mutant(
        "plain.end.task_successors", Q + "plain_turn.py",
        "*(sa.not_(t.has_successors), t.document_id.is_(None)),", "t.document_id.is_(None),",
        "plain_turn::test_the_end_of_a_task_that_another_task_waits_for_is_left",
    ),
    _mutant(
        "plain.end.document", Q + "plain_turn.py",
        "*(sa.not_(t.has_successors), t.document_id.is_(None)),", "sa.not_(t.has_successors),",
        "plain_turn::test_the_end_of_a_task_that_works_on_a_document_is_left",
    ),
    _mutant(
        "plain.end.key", Q + "plain_turn.py",
        "j.exclusive_key.is_(None), sa.not_(j.has_successors),", "sa.not_(j.has_successors),",
        "plain_turn::test_the_end_of_a_job_that_the_next_one_of_its_user_waits_for_is_left",
    ),
    _mutant(
        "plain.end.successors", Q + "plain_turn.py",
        "j.exclusive_key.is_(None), sa.not_(j.has_successors),", "j.exclusive_key.is_(None),",
        "plain_turn::test_runs_that_others_wait_for_or_whose_lease_is_lost_are_not_ended",
    ),
    _mutant(
        "plain.end.failures", Q + "plain_turn.py",
        "        j.tasks_failed + j.tasks_lost + j.tasks_cancelled == 0,\n", "",
        "plain_turn::test_the_end_of_a_job_in_which_a_task_failed_is_left",
    ),
    _mutant(
        "plain.end.walk", Q + "plain_turn.py",
        "has_state(j.state, *JOB_ACTIVE)", "is_state(j.state, *JOB_ACTIVE)",
        "plain_turn::test_each_row_is_found_by_an_index_however_small_the_tables_were",
    ),
    _mutant(
        "plain.end.order", Q + "plain_turn.py",
        "        .order_by(e.job_id)\n", "",
        "worker_turn::test_a_turn_locks_its_jobs_in_the_order_of_their_ids",
    ),
    _mutant(
        "plain.claim.active", Q + "plain_turn.py",
        '*(is_state(f["state"], *JOB_ACTIVE), f.exclusive_key.is_(None)),',
        "f.exclusive_key.is_(None),",
        "plain_turn::test_what_is_not_plain_is_left_to_the_general_claim",
    ),
    _mutant(
        "plain.claim.job_key", Q + "plain_turn.py",
        '*(is_state(f["state"], *JOB_ACTIVE), f.exclusive_key.is_(None)),',
        'is_state(f["state"], *JOB_ACTIVE),',
        "plain_turn::test_what_is_not_plain_is_left_to_the_general_claim",
    ),
    _mutant(
        "plain.claim.known", Q + "plain_turn.py",
        "*(h.kind == sa.any_(known), sa.not_(is_paused)),", "sa.not_(is_paused),",
        "plain_turn::test_what_is_not_plain_is_left_to_the_general_claim",
    ),
    _mutant(
        "plain.claim.paused", Q + "plain_turn.py",
        "*(h.kind == sa.any_(known), sa.not_(is_paused)),", "h.kind == sa.any_(known),",
        "plain_turn::test_a_paused_kind_is_left_to_the_general_claim",
    ),
    _mutant(
        "plain.claim.crashed", Q + "plain_turn.py",
        "*(h.crashes == 0, sa.not_(h.at_most_once)),", "sa.not_(h.at_most_once),",
        "plain_turn::test_what_is_not_plain_is_left_to_the_general_claim",
    ),
    _mutant(
        "plain.claim.once", Q + "plain_turn.py",
        "*(h.crashes == 0, sa.not_(h.at_most_once)),", "h.crashes == 0,",
        "plain_turn::test_what_is_not_plain_is_left_to_the_general_claim",
    ),
    _mutant(
        "plain.claim.key", Q + "plain_turn.py",
        "        *(sa.or_(h.exclusive_key.is_(None), sa.not_(is_held)),),\n", "",
        "plain_turn::test_a_held_exclusive_key_is_left_to_the_general_claim",
    ),
    _mutant(
        "plain.claim.cap", Q + "plain_turn.py",
        "            sa.not_(is_capped),\n", "",
        "plain_turn::test_what_is_not_plain_is_left_to_the_general_claim",
    ),
    _mutant(
        "plain.due", W + "loop.py",
        "if is_task_due or self.was_contended or any(", "if self.was_contended or any(",
        "worker_turn::test_what_is_due_is_released_although_other_tasks_are_ready",
    ),
    _mutant(
        "plain.kept", W + "loop.py",
        "        if self.last_child.is_kept:\n            return None\n        return plain",
        "        return plain",
        "worker_turn::test_the_last_child_is_kept_for_another_tenant",
    ),
    _mutant(
        "plain.doubt", W + "loop.py",
        "        if turn.has_failed:\n            self._doubt()\n", "",
        "worker_turn::test_a_turn_that_is_cut_at_any_step_is_made_once",
    ),
    _mutant(
        "plain.held", W + "loop.py",
        "        finally:\n            # Also where",
        "        except ZeroDivisionError:\n            raise\n        else:\n            # Also",
        "worker_turn::test_what_was_claimed_is_held_if_the_rest_of_the_turn_fails",
    ),
    _mutant(
        "calls.not_replicated", "quire/store/db/postgres.py",
        "        conn.is_replicated = False\n", "        pass\n",
        "failover::test_a_submission_that_no_standby_has_stored_is_not_confirmed",
        "failover::test_a_commit_whose_wait_for_the_standby_is_cancelled_is_not_confirmed",
    ),
    _mutant(
        "calls.nul", "quire/store/db/direct_calls.py",
        'if any(b"\\0" in each for each in given if each):', "if False:",
        "plain_submit::test_a_kind_that_cannot_be_a_name_is_refused_and_not_cut",
    ),
    _mutant(
        "submit.kind", "quire/control/submission_checks.py",
        '    _storable("kind", submission.kind)\n', "",
        "plain_submit::test_a_kind_that_cannot_be_a_name_is_refused_and_not_cut",
    ),
    _mutant(
        "calls.forgotten", "quire/store/db/direct_calls.py",
        '_FORGOTTEN = ("26000", "42P05")', "_FORGOTTEN = ()",
        "worker_turn::test_sessions_that_forgot_their_statements_are_replaced",
    ),
    _mutant(
        "calls.most", "quire/store/db/direct_calls.py",
        "for _ in range(MOST):", "for _ in range(99):",
        "plain_submit::test_calls_share_a_few_connections",
    ),
    # Releases and dependencies
    _mutant(
        "release.nolock", Q + "transition.py",
        "    dialect.lock_rows(conn, tasks, ids)\n    ready, waiting", "    ready, waiting",
        "guards::test_a_release_sees_what_the_holder_of_the_row_has_written",
    ),
    _mutant(
        "release.owners.nolock", Q + "transition.py",
        "        dialect.lock_rows(conn, owners, list({row.owner_id for row in rows}))\n",
        "        pass\n",
        "guards::test_two_releases_at_once_give_an_owner_two_places",
    ),
    _mutant(
        "edges.satisfied_once", Q + "dependencies.py",
        ', "over"), edges.c.satisfied_at.is_(None), *also)', ', "over"), *also)',
        "dependencies::test_a_predecessor_that_ends_twice_counts_once",
    ),
    _mutant(
        "submit.predecessors.nolock", "quire/control/jobs.py", "*named, *active})", "*active})",
        "concurrency::test_a_job_to_wait_for_that_is_deleted_meanwhile_does_not_exist",
    ),
    _mutant(
        "split.edges", D + "poison_pages.py",
        "values(waits=t.waits + len(half_ids))", "values(waits=t.waits + 1)",
        "poison::test_a_split_keeps_cost_and_progress_and_its_successor_waits_for_the_halves",
    ),
    _mutant(
        "split.cost", Q + "transition.py",
        'delta.cost_done += 0.0 if move == "split" else cost', "delta.cost_done += cost",
        "poison::test_a_split_keeps_cost_and_progress_and_its_successor_waits_for_the_halves",
    ),
    _mutant(
        "lock_order", "quire/store/db/dialect.py",
        "        .order_by(table.c.id)\n        .with_for_update(key_share=True, skip",
        "        .with_for_update(key_share=True, skip",
        "guards::test_rows_are_locked_in_the_order_of_their_ids",
    ),
    # Submission and owners
    _mutant(
        "owners.nolock", Q + "owners.py",
        "_LOCKED = _OWNER.with_for_update(key_share=True)", "_LOCKED = _OWNER",
        "guards::test_a_submit_that_decides_by_policy_waits_for_the_one_before",
    ),
    _mutant(
        "submit.body", Q + "submit.py", "if row.body_hash != body_hash:", "if False:",
        "submit::test_the_same_key_with_another_body_is_refused",
    ),
    _mutant(
        "submit.active.nolock", "quire/control/jobs.py",
        "        job_transition.lock_all(conn, {*before(conn), *named, *active})\n",
        "        before(conn)\n",
        "concurrency::test_a_job_queued_while_the_one_before_it_ends_is_not_left_behind",
    ),
    _mutant(
        "tail.settled", Q + "tail.py",
        "        query = query.where(e.xid < settled)\n", "        pass\n",
        "tail::test_transactions_that_commit_out_of_order_are_both_seen_once",
    ),
    _mutant(
        "liveness.namespace", W + "liveness.py",
        'return f"{boot_id()} {namespace}".strip()', "return boot_id()",
        "liveness::test_a_container_is_another_place",
    ),
    # Plain submissions and group commit
    _mutant(
        "plain.submit.waits", "quire/control/jobs.py",
        "if one.after or one.ref is not None or one.run_at is not None:",
        "if one.ref is not None:",
        "plain_submit::test_a_job_that_has_to_wait_is_left_to_the_general_path",
    ),
    _mutant(
        "plain.submit.policy", "quire/control/jobs.py",
        '    if by_person and caller.policy != "all":\n        return None\n', "",
        "plain_submit::test_a_job_that_has_to_wait_is_left_to_the_general_path",
    ),
    _mutant(
        "plain.submit.then", "quire/control/jobs.py",
        "if then is None and sealer is None and are_alike:", "if sealer is None and are_alike:",
        "plain_submit::test_what_belongs_to_a_job_is_written_with_it",
    ),
    _mutant(
        "plain.submit.alike", "quire/control/jobs.py",
        "if then is None and sealer is None and are_alike:", "if then is None and sealer is None:",
        "plain_submit::test_jobs_that_differ_keep_what_they_differ_in",
    ),
    _mutant(
        "plain.submit.bytes", "quire/store/db/plain_submit.py",
        "if sum(map(len, new.payloads)) > MOST_BYTES:", "if False:",
        "plain_submit::test_payloads_too_large_for_one_call_are_left_to_the_general_path",
    ),
    _mutant(
        "plain.submit.sqlite.policy", "quire/store/db/plain_submit.py",
        'held = new.by_person and policy not in (None, "all")', "held = False",
        "plain_submit::test_a_job_that_is_not_plain_is_left_to_the_general_path",
    ),
    _mutant(
        "plain.submit.sqlite.internal", "quire/store/db/plain_submit.py",
        "    held = held or bool(is_internal and new.origin != LOCAL)\n", "",
        "plain_submit::test_a_job_that_is_not_plain_is_left_to_the_general_path",
    ),
    _mutant(
        "plain.submit.sqlite.paused", "quire/store/db/plain_submit.py",
        "if held or paused_at is not None:", "if held:",
        "plain_submit::test_a_job_that_is_not_plain_is_left_to_the_general_path",
    ),
    _mutant(
        "plain.submit.sqlite.key", "quire/store/db/plain_submit.py",
        "        if not key.rowcount:\n            return None\n", "",
        "plain_submit::test_a_known_key_is_left_to_the_general_path",
    ),
    _mutant(
        "plain.submit.policy_there", "quire/store/db/migrations/m0020_submit_many.py",
        "(by_person AND owner.policy <> 'all')", "false",
        "plain_submit::test_a_job_that_is_not_plain_is_left_to_the_general_path",
    ),
    _mutant(
        "plain.submit.internal_there", "quire/store/db/migrations/m0020_submit_many.py",
        "(coalesce(about.is_internal, false) AND from_origin <> 'local')", "false",
        "plain_submit::test_a_job_that_is_not_plain_is_left_to_the_general_path",
    ),
    _mutant(
        "plain.submit.paused_there", "quire/store/db/migrations/m0020_submit_many.py",
        " OR about.paused_at IS NOT NULL", "",
        "plain_submit::test_a_job_that_is_not_plain_is_left_to_the_general_path",
    ),
    _mutant(
        "plain.submit.key_there", "quire/store/db/migrations/m0020_submit_many.py",
        "IF NOT FOUND THEN", "IF false THEN",
        "plain_submit::test_a_known_key_is_left_to_the_general_path",
    ),
    _mutant(
        "group.flush", "quire/store/db/group_commit.py",
        "        self._wait_for_disk(change.number)\n", "",
        "plain_submit::test_a_job_is_on_disk_when_submit_returns_and_others_may_write_before",
    ),
    _mutant(
        "group.lost", "quire/store/db/group_commit.py",
        "            if number in self._lost:", "            if False:",
        "plain_submit::test_a_disk_that_fails_is_told_and_later_flushes_are_left_to_sqlite",
    ),
    _mutant(
        "group.full", "quire/store/db/group_commit.py",
        'self._cursor.execute("PRAGMA synchronous = full")', "pass",
        "plain_submit::test_a_disk_that_fails_is_told_and_later_flushes_are_left_to_sqlite",
    ),
    _mutant(
        "group.alone", "quire/store/db/group_commit.py",
        "if has_lock and len(taken) > 1:", "if False:",
        "plain_submit::test_a_job_that_fails_does_not_fail_those_that_shared_its_transaction",
    ),
    _mutant(
        "group.told", "quire/store/db/group_commit.py",
        "            for change in taken:\n                change.error = error\n",
        "            taken[0].error = error\n",
        "group_commit::test_a_lock_that_is_not_got_is_told_to_every_thread",
    ),
    _mutant(
        "group.still_there", "quire/store/db/group_commit.py",
        "        sqlite.check_still_there(self._pooled, self._path)\n", "",
        "group_commit::test_a_file_put_in_the_place_of_ours_gets_the_job",
    ),
    _mutant(
        "group.note", "quire/store/db/group_commit.py",
        "note = sqlite.note_writer(self._path)", "note = None",
        "group_commit::test_who_waits_can_tell_which_process_has_the_write_lock",
    ),
    # Documents and generations
    _mutant(
        "generations.require.generation", D + "generations.py",
        "row.generation != generation or row.state", "row.state",
        "generations::test_a_commit_of_an_older_generation_is_refused",
    ),
    _mutant(
        "generations.require.state", D + "generations.py",
        " or row.state != DocumentState.INDEXING:", ":",
        "documents::test_a_generation_that_failed_writes_nothing_and_is_not_swapped_in",
    ),
    _mutant(
        "generations.require.nolock", D + "generations.py",
        "_LOCKED = _STATE.with_for_update()", "_LOCKED = _STATE",
        "generations::test_a_newer_generation_that_comes_first_makes_the_older_commit_fail",
    ),
    _mutant(
        "generations.swap.check", D + "generations.py",
        "    require_building(conn, document_id, generation)\n    found", "    found",
        "documents::test_an_older_generation_is_not_swapped_in",
    ),
    _mutant(
        "generations.start.generation", D + "generations.py",
        "    if row.generation != wanted:\n", "    if False:\n",
        "generations::test_a_task_of_an_older_generation_is_skipped_before_any_byte_is_fetched",
    ),
    _mutant(
        "generations.swap.range_error", D + "generations.py",
        "    elif reason is not None:", "    elif False:",
        "documents::test_rows_that_an_earlier_release_gave_to_a_task_of_their_own_are_missed",
    ),
    _mutant(
        "admission.nolock", D + "admission.py",
        "    take_turn(conn, request.owner.tenant)\n", "",
        "documents::test_a_listing_waits_for_another_one_of_its_tenant",
    ),
    _mutant(
        "admission.documents.nolock", D + "admission.py",
        "query.with_for_update(of=documents) if lock else query", "query",
        "documents::test_a_listing_waits_for_a_swap_before_it_decides",
    ),
    _mutant(
        "overtake.second_look", D + "reindex.py",
        "    dialect.lock_rows(conn, documents, [document_id])\n    return sorted(",
        "    return sorted(",
        "documents::test_an_overtaking_ends_a_task_that_was_added_meanwhile",
    ),
    _mutant(
        "failures.fail.generation", D + "failures.py",
        "(d.id == f.id, d.generation == f.generation)", "(d.id == f.id,)",
        "documents::test_the_failure_of_an_old_generation_leaves_the_newer_one_at_work",
    ),
    _mutant(
        "failures.drop.generation", D + "failures.py",
        "                d.generation == f.c.generation,\n                applies,\n",
        "                applies,\n",
        "documents::test_the_cancelling_of_an_old_generation_leaves_the_newer_one_at_work",
    ),
    # Garbage collection
    _mutant(
        "gc.sweep.recheck", D + "gc.py",
        "unused = [row for row in rows if not row.is_used]\n    if kind",
        "unused = list(rows)\n    if kind",
        "gc::test_a_marked_row_that_a_page_list_names_is_unmarked_at_the_sweep",
    ),
    _mutant(
        "gc.sweep.nolock", D + "gc.py",
        "        # Whoever has locked a row is about to use it.\n"
        "        .with_for_update(skip_locked=True)\n",
        "",
        "gc::test_a_row_that_a_writer_holds_is_left_alone",
    ),
    _mutant(
        "gc.contents.nolock", D + "gc.py",
        "        if not dialect.advisory_lock(conn, blob_lock(row.digest), wait=False):\n"
        "            continue\n",
        "",
        "gc::test_a_put_that_waits_for_the_collector_never_trusts_the_old_file",
        "gc::test_a_blob_that_another_tenant_is_about_to_put_is_left_alone",
    ),
    _mutant(
        "gc.contents.tenants", D + "gc.py",
        "        if not conn.scalar(sa.select(sa.exists().where(c.digest == row.digest))):\n"
        "            remove(row.digest)",
        "        remove(row.digest)",
        "gc::test_a_file_that_two_tenants_have_goes_with_the_last_of_them",
    ),
    _mutant(
        "gc.mark.used", D + "gc.py", "is_new, sa.not_(kind.is_used))", "is_new)",
        "documents::test_what_is_used_is_not_marked",
    ),
    _mutant(
        "gc.page_lists.ended", D + "gc.py",
        "is_state(g.state, *_ENDED), g.recipe", "g.recipe",
        "gc::test_nothing_that_is_live_or_being_built_is_ever_collected",
    ),
    _mutant(
        "gc.seen", D + "gc.py",
        "        _refers(d.seen, d.state != "
        "sa.literal_column(f\"'{DocumentState.SUCCESS.value}'\")),\n",
        "",
        "gc::test_thumbnails_and_files_that_wait_to_be_indexed_are_kept",
    ),
    _mutant(
        "pages.unmark", D + "pages.py",
        "    if any(condemned_at is not None for _, _, condemned_at in rows):\n",
        "    if False:\n",
        "gc::test_what_is_marked_is_not_reused_but_unmarked_when_it_is_stored_again",
    ),
    _mutant(
        "pages.nolock", D + "pages.py",
        "found.with_for_update(read=True, key_share=True, of=key.table)", "found",
        "documents::test_a_page_that_is_about_to_be_used_is_left_by_the_collector",
    ),
    _mutant(
        "pages.put_content.nolock", D + "pages.py",
        "    dialect.advisory_lock(conn, blob_lock(digest))\n", "",
        "gc::test_a_put_that_waits_for_the_collector_never_trusts_the_old_file",
    ),
    _mutant(
        "pages.put_content.unmark", D + "pages.py",
        '["tenant", "digest"], ["condemned_at"])', '["tenant", "digest"], [])',
        "documents::test_a_blob_that_is_put_again_is_no_longer_marked",
    ),
    _mutant(
        "pages.find.marked", D + "pages.py", ".where(p.condemned_at.is_(None))", "",
        "gc::test_what_is_marked_is_not_reused_but_unmarked_when_it_is_stored_again",
    ),
    _mutant(
        "pages.embedded.marked", D + "pages.py",
        ".where(c.condemned_at.is_(None), vector.is_not(None))", ".where(vector.is_not(None))",
        "gc::test_a_marked_chunk_counts_as_not_embedded",
    ),
    _mutant(
        "generation_pages.unmark", D + "generation_pages.py",
        'if marked := list(conn.scalars(_MARKED, {**mine, "tenant": tenant})):',
        "if marked := list[int]():",
        "documents::test_a_page_that_is_reused_is_no_longer_marked",
    ),
    _mutant(
        "hnsw.fresh", "quire/store/search/hnsw.py", "FOR UPDATE SKIP LOCKED", "FOR UPDATE",
        "hnsw::test_two_settlers_never_wait_for_each_other",
    ),
]  # fmt: skip


def mutate(mutant: Mutant, root: Path) -> str:
    """Remove the guard in the tree at `root`; returns the file's text before."""
    path = root / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name}: its text occurs {text.count(mutant.old)} times")
    path.write_text(text.replace(mutant.old, mutant.new))
    return text


def run(nodes: Sequence[str], root: Path) -> subprocess.CompletedProcess[str]:
    """Run tests in the tree at `root`."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0"]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONPYCACHEPREFIX": f"{root}/.pyc"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    limit = f"--timeout={SECONDS}"
    return subprocess.run(
        [*command, limit, *nodes], cwd=root, env=environment, capture_output=True, text=True
    )


def judge(mutant: Mutant, root: Path) -> tuple[bool, str]:
    """Return whether a test notices that the guard is missing, and what pytest says."""
    text = mutate(mutant, root)
    try:
        done = run(mutant.nodes, root)
    finally:
        (root / mutant.file).write_text(text)
    lines = done.stdout.strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR "))]
    return bool(failed), (failed or lines or [done.stderr.strip()])[-1]


def pass_without_mutant(mutants: Sequence[Mutant], root: Path) -> bool:
    """Tell whether the tests of these mutants pass on the code as it is, and print if not."""
    done = run(sorted({node for mutant in mutants for node in mutant.nodes}), root)
    if done.returncode:
        print(done.stdout, done.stderr, "These tests fail without any mutant.", sep="\n")
    return done.returncode == 0


def copy(folder: Path) -> Path:
    """Copy the tree that git knows, with changes that are not committed."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    for name in listed:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def main() -> int:
    """Run the mutants that are asked for; returns 1 if any survived, 2 if a test is red already."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of names; all if none")
    parser.add_argument("--workers", type=int, default=2)
    wanted = parser.parse_args()
    chosen = [m for m in MUTANTS if not wanted.names or m.name.startswith(tuple(wanted.names))]
    survivors: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        lanes: Queue[Path] = Queue()
        copies = [copy(Path(folder) / str(number)) for number in range(wanted.workers)]
        if not pass_without_mutant(chosen, copies[0]):
            return 2
        for each in copies:
            lanes.put(each)

        def one(mutant: Mutant) -> tuple[Mutant, bool, str, float]:
            lane, began = lanes.get(), time.monotonic()
            try:
                return mutant, *judge(mutant, lane), time.monotonic() - began
            finally:
                lanes.put(lane)

        with ThreadPoolExecutor(wanted.workers) as pool:
            for mutant, is_noticed, said, seconds in pool.map(one, chosen):
                verdict = "noticed " if is_noticed else "SURVIVED"
                print(f"{verdict} {mutant.name} ({seconds:.0f} s): {said[:160]}", flush=True)
                survivors += [] if is_noticed else [mutant.name]
    print(f"{len(chosen)} mutants, {len(survivors)} survived: {', '.join(survivors) or 'none'}")
    return min(len(survivors), 1)


if __name__ == "__main__":
    sys.exit(main())
