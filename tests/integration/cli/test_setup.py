"""The command itself: help, versions, settings, migrations, doctor, and how it fails."""

from __future__ import annotations

import os
import subprocess
import sys

import psycopg
import pytest

from quire.store.db import migrate

pytest_plugins = ["tests.integration.cli.cli_command"]

COMMANDS = [
    "up", "api", "worker", "scheduler", "ingest", "search", "documents", "document", "corpus",
    "submit", "status", "jobs", "job", "logs", "pause", "unpause", "owner", "user", "token",
    "tenant", "source", "secret", "migrate", "transfer", "doctor", "health", "deploy", "settings",
    "demo", "version",
]  # fmt: skip
GROUPS = {
    "user": ["add", "list", "role", "disable", "link", "sessions", "sign-out"],
    "token": ["create", "list", "revoke"],
    "secret": ["key", "show", "rotate"],
    "jobs": ["stop", "resume", "cancel", "retry", "delete"],
    "job": ["show", "stop", "resume", "cancel", "retry", "priority", "delete", "explain"],
    "document": [
        "show",
        "pages",
        "save",
        "reindex",
        "delete",
        "explain",
        "read",
        "tokens",
    ],
    "corpus": ["create", "list", "show", "set", "delete"],
    "owner": ["list", "set"],
    "tenant": ["list", "show", "set"],
    "worker": ["drain"],
    "deploy": ["compose", "systemd"],
}
HEAVY = ("sqlalchemy", "rich", "psutil", "psycopg", "pydantic")


def test_help_lists_every_command_in_the_order_people_need(quire):
    lines = quire("--help").out.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines if line.strip()] == COMMANDS
    assert all(line.endswith(".") and not line.endswith("...") for line in lines if line)


def test_the_default_priority_is_that_of_a_submission():
    from quire.cli import options
    from quire.model import records

    assert options.DEFAULT_PRIORITY == records.DEFAULT_PRIORITY


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(quire, command):
    for arguments in [(command,), *((command, each) for each in GROUPS.get(command, ()))]:
        ended = quire(*arguments, "--help")
        assert ended.code == 0
        assert "{" not in ended.out and "<" not in ended.out  # arguments read QUERY..., not {QUERY}
        for line in ended.out.partition("Options:\n")[2].partition("\n\n")[0].splitlines():
            if line.startswith("  -"):
                assert len(line.split("  ")) > 2 or len(line.strip()) > 20, line


def test_help_loads_nothing_heavy():
    code = (
        "import sys; sys.argv = ['quire', '--help']\n"
        "from quire.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"loaded = [name for name in {HEAVY} if name in sys.modules]\n"
        "print(loaded, file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stderr == "[]\n"


def test_status_loads_only_what_it_shows(quire, home):
    quire("submit", "noop")
    code = (
        "import sys; sys.argv = ['quire', 'status']\n"
        "from quire.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = ['pydantic', 'sqlalchemy', 'quire.plugins', 'numpy']\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=home)
    assert "1 pending" in ended.stdout
    assert ended.stderr == "[]\n"


def test_version_is_printed_by_a_command_and_by_an_option(quire):
    import quire as package

    assert quire("version").out.startswith(f"quire {package.__version__} (Python ")
    assert quire("--version").out == quire("version").out
    assert set(quire("version", "--json").json) == {"quire", "python", "sqlite"}


READERS = [
    ("status",), ("jobs",), ("job", "show", "1"), ("job", "stop", "1"), ("logs", "1"), ("doctor",),
    ("owner", "list"), ("jobs", "stop", "--yes"), ("worker", "drain"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_reading_commands_never_make_a_home(quire, home, arguments):
    ended = quire(*arguments)
    assert ended.code != 0
    assert ended.err.startswith(f"home {home}: there is no Quire database here yet.")
    assert list(home.iterdir()) == []


def test_an_empty_home_says_how_to_begin(quire):
    assert "`quire ingest FOLDER`" in quire("status").err
    quire("migrate")
    assert "add some with: quire ingest FOLDER" in quire("status").out


def test_a_database_that_is_away_is_named_as_people_write_it(quire):
    quire("migrate")
    ended = quire("transfer", "postgresql://nobody@127.0.0.1:1/x")
    assert ended.code == 1
    assert ended.err.startswith("database postgresql://nobody@127.0.0.1:1/x: connection failed")
    assert "run a failed command again" in ended.err


def test_former_options_and_settings_are_named_with_what_replaced_them(quire, monkeypatch):
    ended = quire("migrate", "--to", "postgresql://x/y")
    assert (ended.code, ended.err.split(".")[0]) == (
        2, "--to was renamed: run `quire transfer URL` instead",
    )  # fmt: skip
    assert "quire transfer --blobs URL" in quire("migrate", "--blobs", "s3://x").err
    assert "no target" in quire("transfer").err
    assert "python -m benchmarks" in quire("bench", "queue").err
    quire("migrate")
    ended = quire("search", "x", "--mode", "fused")
    assert "mode 'fused' was renamed to 'hybrid'" in ended.err
    monkeypatch.setenv("QUIRE_API_RATE", "3")
    ended = quire("status")
    assert (ended.code, ended.err.strip()) == (
        2, "QUIRE_API_RATE was renamed to QUIRE_API_REQUESTS_PER_MINUTE. Set that instead.",
    )  # fmt: skip


def test_a_variable_that_is_no_setting_is_named_once(quire, monkeypatch):
    monkeypatch.setenv("QUIRE_CONCURENCY", "3")
    quire("migrate")
    ended = quire("status", "--json")
    assert ended.json["workers"] == []
    assert ended.err == (
        "QUIRE_CONCURENCY: no such setting; ignored. Did you mean QUIRE_CONCURRENCY?\n"
    )
    monkeypatch.setenv("QUIRE_PARENT_FD", "none")  # a supervisor has said it
    assert quire("status").err == ""


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["document", "10"], "quire document show 10"),
        (["job", "10", "--json"], "quire job show 10"),
        (["corpus", "my books"], "quire corpus show 'my books'"),
    ],
)
def test_who_forgets_the_verb_is_told_it(quire, arguments, meant):
    ended = quire(*arguments)
    assert ended.code == 2
    assert ended.err.endswith(f"Did you mean: {meant}\n")


def test_a_verb_that_is_written_wrongly_is_no_name(quire):
    for arguments in (["job", "shw", "10"], ["corpus", "crate", "x"]):
        ended = quire(*arguments)
        assert (ended.code, "No such command" in ended.err) == (2, True)


def test_a_refused_request_leaves_no_home_behind(quire, home):
    quire("submit", "noop", "--payload", "{bad")
    assert list(home.iterdir()) == []


def test_a_usage_error_names_the_help(quire):
    ended = quire("submit", "--bogus")
    assert ended.code == 2
    assert "quire submit --help" in ended.err


def test_migrate_says_what_it_did(quire, home):
    made = quire("migrate", "--json").json
    assert made["applied"] == migrate.versions()
    assert str(home) in made["database"]
    assert quire("migrate", "--json").json["applied"] == []
    assert "up to date" in quire("migrate").out


def test_a_database_server_without_the_schema_is_not_touched_before_migrate(
    quire, shared_postgres: psycopg.Connection, run_folder, monkeypatch
):
    from tests import postgres

    name = f"bare_{os.getpid()}"
    shared_postgres.execute(f"CREATE DATABASE {name}")
    try:
        url = postgres.Server(run_folder / "pg").url_of(name)
        monkeypatch.setenv("QUIRE_DATABASE_URL", url)
        for arguments in (("status",), ("submit", "noop"), ("jobs",)):
            ended = quire(*arguments)
            assert ended.code == 2
            assert "Run `quire migrate`" in ended.err
        assert "applied" in quire("migrate").out
        assert quire("submit", "noop", "--json").json == {"id": 1}
    finally:
        shared_postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_half_made_home_asks_for_migrate(quire, home):
    (home / "quire.db").touch()
    ended = quire("status")
    assert ended.code == 2
    assert "Run `quire migrate`" in ended.err


def test_a_database_that_cannot_be_reached_is_named_without_its_password(quire, monkeypatch):
    monkeypatch.setenv("QUIRE_DATABASE_URL", "postgresql://me:hidden@/x?host=/nonexistent")
    ended = quire("status")
    assert ended.code == 1
    assert "nonexistent" in ended.err
    assert "hidden" not in ended.err
    assert len(ended.err.splitlines()) == 1


def test_settings_tell_where_each_value_comes_from(quire, home, monkeypatch):
    (home / "quire.toml").write_text("poll_interval = 7.5\n")
    monkeypatch.setenv("QUIRE_CONCURRENCY", "3")
    monkeypatch.setenv("QUIRE_DATABASE_URL", "postgresql://me:hidden@db/x?sslpassword=concealed")
    items = {each["name"]: each for each in quire("settings", "--json").json["items"]}
    assert (items["QUIRE_CONCURRENCY"]["value"], items["QUIRE_CONCURRENCY"]["from"]) == (
        3,
        "environment",
    )
    assert (items["QUIRE_POLL_INTERVAL"]["value"], items["QUIRE_POLL_INTERVAL"]["from"]) == (
        7.5,
        "quire.toml",
    )
    assert items["QUIRE_LEASE_SECONDS"]["from"] == "default"
    assert all(each["sentence"].endswith(".") for each in items.values())
    shown = quire("settings").out + quire("settings", "--json").out
    assert "hidden" not in shown
    assert "concealed" not in shown


def test_a_bad_setting_is_refused_with_its_name(quire, monkeypatch):
    monkeypatch.setenv("QUIRE_CONCURRENCY", "many")
    ended = quire("status")
    assert ended.code == 2
    assert ended.err.startswith("QUIRE_CONCURRENCY:")


def test_doctor_finds_nothing_in_a_sound_database(quire_on_each):
    quire_on_each("submit", "noop", "--count", 2)
    assert quire_on_each("doctor").code == 0
    found = quire_on_each("doctor", "--json").json
    assert found["healthy"] is True
    assert found["violations"] == []
    assert quire_on_each("doctor").out == f"All {found['checked']} invariants hold.\n"


def test_doctor_names_what_is_wrong_and_exits_with_1(quire_on_each):
    from quire.app import App

    quire_on_each("submit", "noop")
    app = App()
    with app.db.begin() as conn:
        conn.exec_driver_sql("UPDATE jobs SET tasks_ready = 7")
    app.close()
    ended = quire_on_each("doctor")
    assert ended.code == 1
    assert "violated in" in ended.out
    assert quire_on_each("doctor", "--json").json["violations"]


def test_a_reader_that_goes_away_is_no_error(quire, start):
    quire("submit", "noop", "--count", 200)
    with start("jobs", "--limit", "1000", "--json") as process:
        process.stdout.close()
        assert process.wait() in (0, 141)
        assert process.stderr.read() == ""
        process.stdout = None


def test_completion_can_be_shown(quire, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert "--install-completion" in quire("--help").out
