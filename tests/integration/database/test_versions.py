"""Two versions at once: the older Quire goes on where it may, and leaves politely where not."""

from __future__ import annotations

import pytest

from quire.errors import SchemaAhead
from quire.store.db import migrate
from tests.integration.database.versions import PATIENCE, Later, older
from tests.integration.processes import Site
from tests.waiting import until

#: Several programs start one after the other.
pytestmark = pytest.mark.timeout(900)
LAST = migrate.versions()[-1]
ADDITIVE = "ALTER TABLE jobs ADD COLUMN later_note TEXT"
BREAKING = "ALTER TABLE jobs RENAME COLUMN account TO account_of_later"


@pytest.fixture
def later(site: Site) -> Later:
    return Later(site)


def test_an_older_worker_works_on_while_and_after_an_additive_migration_is_made(
    site: Site, later: Later
):
    later.adds(ADDITIVE, oldest=LAST)
    worker = site.worker()
    [running, waiting] = site.submit_many("i.gated", [{"tag": "a"}, {"tag": "b"}])
    site.until_traced("began", "a", within=PATIENCE)
    site.until_traced("began", "b", within=PATIENCE)
    assert later.migrate() == [LAST + 1]
    site.open_gate()
    assert site.until_over([running, waiting]) == {"completed": 2}
    assert older(site, "status").returncode == 0
    again = site.worker()
    beside = later.worker()
    assert site.until_over(site.submit_many("i.effect", [{"tag": "c"}] * 30)) == {"completed": 30}
    for each in (worker, again, beside):
        assert each.popen.poll() is None
        assert not each.logs("worker.outdated")
        assert each.leave() == 0
    site.assert_healthy()


def test_a_worker_that_is_too_old_gives_its_tasks_back_and_a_later_one_takes_them(
    site: Site, later: Later
):
    later.adds("CREATE TABLE of_later (id INTEGER)", oldest=None)
    worker = site.worker(stop_grace=1)
    jobs = site.submit_many("i.gated", [{"tag": str(n)} for n in range(6)])
    site.until_traced("began", "0", within=PATIENCE)
    assert later.migrate() == [LAST + 1]
    # The migration waited for it.
    assert worker.popen.wait(PATIENCE) == SchemaAhead.exit_code == 78
    assert worker.logs("worker.outdated", f"a Quire release with migration {LAST + 1}")
    assert worker.logs("worker.stopped")
    assert not worker.logs("Traceback")
    assert {row.state for row in site.rows("tasks")} == {"ready"}
    assert {row.attempt for row in site.rows("tasks")} == {0}
    taker = later.worker()
    site.open_gate()
    assert site.until_over(jobs) == {"completed": 6}
    assert site.effects() == [str(n) for n in range(6)]
    assert taker.leave() == 0


def test_an_older_quire_is_refused_at_its_start_with_a_code_of_its_own(site: Site, later: Later):
    later.adds("CREATE TABLE of_later (id INTEGER)", oldest=None)
    assert later.migrate() == [LAST + 1]
    for command in ("worker", "status"):
        ended = older(site, command)
        assert ended.returncode == SchemaAhead.exit_code, (command, ended.stderr)
        [line] = ended.stderr.strip().splitlines()
        assert line.startswith(f"database: schema version {LAST + 1} needs")
        assert "Upgrade Quire" in line


def test_everything_that_quire_up_started_leaves_when_it_is_too_old(site: Site, later: Later):
    later.adds("CREATE TABLE of_later (id INTEGER)", oldest=None)
    up = site.start("up", "--no-api")
    until(lambda: up.logs("worker.started"), within=PATIENCE, what=lambda: up.log)
    assert later.migrate() == [LAST + 1]
    assert up.popen.wait(PATIENCE) == SchemaAhead.exit_code
    assert up.logs("down")
    assert not up.logs("Traceback")


def test_a_migration_that_workers_do_not_make_room_for_changes_nothing(site: Site, later: Later):
    later.adds(BREAKING, oldest=None)
    worker = site.worker(heartbeat_interval=3.5)
    job = site.submit("i.gated", tag="a")
    site.until_traced("began", "a", within=PATIENCE)
    refused = later.command("migrate", "--wait", "0")
    assert refused.returncode == 2
    assert "Nothing was changed; drain them" in refused.stderr
    with site.app.db.read() as conn:
        assert migrate.version(conn) == LAST
        assert migrate.count_missing(conn) == 0  # the announcement was taken back
    site.open_gate()
    assert site.until_over(job) == {"completed": 1}
    assert worker.popen.poll() is None


def test_a_worker_of_the_schema_s_own_quire_stays_while_an_older_one_leaves(
    site: Site, later: Later
):
    middle = later.adds(ADDITIVE, oldest=LAST)
    assert later.migrate() == [middle]
    old, young = site.worker(stop_grace=1), later.worker()
    later.adds("CREATE TABLE of_later (id INTEGER)", oldest=middle)
    assert later.migrate() == [middle + 1]
    assert old.popen.wait(PATIENCE) == SchemaAhead.exit_code
    assert site.until_over(site.submit("i.effect", tag="a")) == {"completed": 1}
    assert young.popen.poll() is None
    assert not young.logs("worker.outdated")


def test_a_later_quire_is_refused_before_the_migration_and_names_it(site: Site, later: Later):
    later.adds(ADDITIVE, oldest=LAST)
    ended = later.command("status")
    assert ended.returncode == 2
    assert "Run `quire migrate` first" in ended.stderr
