"""What `make test` leaves to `make test-all`, and what proves the same in `make test`.

`make test` runs everything a change could break in under 15 minutes on two cores. Left out are
further variants of what another test already proves. Nothing that `docs/guarantees.md` names is
left out; a test in `tests/docs` checks that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

GUARANTEES = Path(__file__).parents[1] / "docs" / "guarantees.md"


class Later(NamedTuple):
    """Leave out a test's variants; `kept` is a part of the ids of those that stay."""

    test: str
    proved_by: str
    kept: str | None = None


LATER = (
    Later("test_a_page_is_sound_in_every_look", "the same pages in the light scheme", "-light"),
    Later("test_axe_finds_nothing", "the same pages in the light scheme", "light"),
    Later(
        "test_random_kills_over_a_mixed_folder_leave_the_index_of_a_calm_run",
        "test_pipeline: kills of children and a worker in every column",
    ),
    Later(
        "test_a_child_killed_while_it_reads_what_was_changed_leaves_the_index_of_a_calm_run",
        "the kills at each stage of small and split documents",
    ),
    Later(
        "test_documents_are_read_by_hosts_that_share_a_bucket_only_though_one_is_cut_off",
        "test_hosts: a worker that is cut off; integration/blobs/test_ingest: files in a bucket",
    ),
    Later(
        "test_a_page_that_takes_all_time_or_memory_is_quarantined_too",
        "test_oom: quarantine for memory; tests/runtime/test_pool: limits of time and memory",
    ),
    Later("test_a_document_of_bad_pages_only_is_failed_and_the_rest_goes_on",
          "store/documents/test_poison_pages: a document without a readable page is failed"),
    Later("test_a_bad_page_in_a_changed_document_costs_one_page",
          "test_poison: a page that kills its process"),
    Later("test_two_bad_pages_of_a_small_document_cost_two_pages",
          "test_poison: a page that kills its process"),
    Later("test_a_standby_that_lagged_behind_forgets_the_last_moments_and_the_rest_is_sound",
          "test_failover: a synchronous standby loses nothing"),
    Later("test_the_lost_server_comes_back_as_a_standby_and_takes_over_again",
          "test_failover: a synchronous standby loses nothing"),
    Later("test_a_worker_whose_child_stopped_inside_a_transaction_keeps_its_other_leases",
          "test_zombies: a child that stops inside its write transaction commits nothing"),
    Later("test_a_worker_that_stops_while_its_child_writes_commits_nothing_when_it_wakes",
          "test_zombies: a worker that slept past its lease writes nothing"),
    Later("test_documents_that_were_being_read_become_searchable_on_postgresql",
          "test_transfer: the jobs of a killed worker complete on PostgreSQL"),
    Later("test_a_table_of_a_million_rows_is_split_into_ranges_that_are_read_one_by_one",
          "unit/parse/test_sizes: a workbook of a million rows"),
    Later("test_everything_that_quire_up_started_leaves_when_it_is_too_old",
          "test_versions: a worker that is too old gives its tasks back"),
    Later("test_a_black_hole_before_rabbitmq_is_told_and_workers_claim_without_it",
          "test_broker_faults: a black hole before Redis"),
    Later("test_a_slow_rabbitmq_slows_and_stops_nothing", "test_broker_faults: a slow Redis"),
    Later("test_messages_held_beyond_the_consumer_timeout_lose_and_double_nothing",
          "tests/celery/test_deaths: a worker stopped past lease and visibility"),
    Later("test_a_worker_of_the_schema_s_own_quire_stays_while_an_older_one_leaves",
          "test_versions: a worker that is too old gives its tasks back"),
)  # fmt: skip


def is_later(name: str, node_id: str) -> bool:
    """Tell whether `make test` leaves out this variant of a test."""
    return any(
        each.test == name and (each.kept is None or each.kept not in node_id) for each in LATER
    )


def guaranteed() -> frozenset[str]:
    """Return the tests that docs/guarantees.md names: they run on both databases in every run."""
    return frozenset(re.findall(r"\[`(test_\w+)`\]", GUARANTEES.read_text()))


def unknown(known: Iterable[str]) -> list[str]:
    """List the tests named here that do not exist."""
    return sorted({each.test for each in LATER} - set(known))
