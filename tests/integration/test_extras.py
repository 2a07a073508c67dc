"""Settings that need a package which is not installed: one line says which, and nothing starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quire.errors import install_hint
from tests import blank
from tests.integration.processes import ROOT

#: The command as where some packages are not installed.
WITHOUT = """
import sys
gone = sys.argv.pop(1).split(",")

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in gone:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from quire.cli import main
main()
"""
POSTGRES = {"DATABASE_URL": "postgresql://quire@127.0.0.1:1/quire"}
REDIS = {**POSTGRES, "BROKER_URL": "redis://127.0.0.1:1/0"}
RABBIT = {**POSTGRES, "BROKER_URL": "amqp://127.0.0.1:1//"}
BUCKET = {"BLOBS": "s3://shelf/quire", "API_PORT": "0"}


def quire(
    home: Path, gone: str, settings: dict[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end without some packages."""
    own = {f"QUIRE_{name}": value for name, value in settings.items()}
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, gone, *words],
        env={**os.environ, **own, "QUIRE_HOME": str(home), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("command", ["worker", "doctor", "submit noop"])
def test_postgresql_without_its_driver(home: Path, command: str):
    ended = quire(home, "psycopg", POSTGRES, *command.split())
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "QUIRE_DATABASE_URL: PostgreSQL needs psycopg, which cannot be loaded (No module named "
        "'psycopg'). Install it with "
        f"`{install_hint('postgres')}`, or unset QUIRE_DATABASE_URL.\n"
    )


@pytest.mark.parametrize(
    ("command", "gone", "settings", "subject"),
    [
        ("worker", "celery,kombu", RABBIT, "Celery"),
        ("up", "celery,kombu", REDIS, "Celery"),
        ("scheduler", "redis", REDIS, "the Redis client of Celery"),
    ],
)
def test_a_broker_without_celery(
    home: Path, command: str, gone: str, settings: dict[str, str], subject: str
):
    ended = quire(home, gone, settings, command)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"QUIRE_BROKER_URL: {subject} is not installed. Install it with "
        f"`{install_hint('celery')}`, or unset QUIRE_BROKER_URL.\n"
    )


def test_a_machine_that_submits_needs_no_celery_and_the_doctor_misses_it(home: Path, pg_url: str):
    settings = {**REDIS, "DATABASE_URL": pg_url}
    assert quire(home, "celery,kombu,redis", settings, "submit", "noop").returncode == 0
    ended = quire(home, "celery,kombu,redis", settings, "doctor")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert install_hint("celery") in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["worker", "up", "doctor", "ingest"])
def test_a_bucket_without_its_client(home: Path, command: str):
    blank.put(home)
    (home / "a.txt").write_text("slate and wool")
    words = (command, str(home / "a.txt")) if command == "ingest" else (command,)
    ended = quire(home, "obstore", BUCKET, *words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "QUIRE_BLOBS: the client for buckets is not installed. Install it with "
        f"`{install_hint('s3')}`, or unset QUIRE_BLOBS to keep files in the home.\n"
    )
    assert quire(home, "obstore", BUCKET, "jobs", "--json").stdout.count('"id"') == 0


@pytest.mark.parametrize(
    ("source", "gone", "extra"),
    [
        ("s3://bucket/x", "obstore", "s3"),
        ("gdrive:0A1b2C3d4E5f6G7h8I9", "googleapiclient", "gdrive"),
    ],
)
def test_a_source_without_its_client_makes_no_job(home: Path, source: str, gone: str, extra: str):
    ended = quire(home, gone, {}, "ingest", source)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"source {source}: it needs a package that is not installed. Nothing was submitted. "
        f"Install it with `{install_hint(extra)}`.\n"
    )
    assert quire(home, gone, {}, "jobs", "--json").stdout.count('"id"') == 0
