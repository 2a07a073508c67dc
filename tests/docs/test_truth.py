"""The README and operations.md list what exists: what is built is there, the rest is not."""

from __future__ import annotations

import importlib.util
import re
import tomllib

import pytest

from tests.docs import markdown

#: What the README says is missing, and the package that will hold it.
PLANNED = {
    "corpus actions": "quire.actions",
    "schedules": "quire.store.schedules",
    "notifications": "quire.notifications",
}
#: Words of the README and operations.md, and what must exist for them: a package, an extra.
BUILT = {
    "Celery": ("quire.celery", "celery"),
    "Redis": ("quire.celery", "celery"),
    "RabbitMQ": ("quire.celery", "celery"),
    "PostgreSQL": ("quire.store.db.postgres", "postgres"),
    "S3": ("quire.fetch.blobs.bucket", "s3"),
    "Google Drive": ("quire.fetch.sources.gdrive", "gdrive"),
    "OCR": ("quire.parse.ocr", "ocr"),
}


def exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def not_built_yet() -> str:
    [sentence] = re.findall(r"^Not built yet: (.*?)\.\n", markdown.read("README.md"), re.M | re.S)
    return str(sentence)


def test_what_the_readme_calls_missing_is_missing():
    listed = re.sub(r"\([^)]*\)", "", not_built_yet())
    features = [name.strip() for name in re.split(r",| and ", listed) if name.strip()]
    assert features == list(PLANNED)
    assert [name for name, module in PLANNED.items() if exists(module)] == []


@pytest.mark.parametrize("document", ["README.md", "docs/operations.md"])
def test_what_a_document_offers_exists(document: str):
    text = markdown.read(document).replace(not_built_yet(), "")
    extras = tomllib.loads(markdown.read("pyproject.toml"))["project"]["optional-dependencies"]
    offered = [name for name in BUILT if name in text]
    assert [name for name in offered if not exists(BUILT[name][0])] == []
    assert [name for name in offered if BUILT[name][1] not in extras] == []
    assert [name for name in BUILT if name in not_built_yet()] == []


@pytest.mark.parametrize("document", ["README.md", "docs/operations.md"])
def test_what_people_look_for_first_is_named(document: str):
    text = markdown.read(document)
    assert [name for name in ("Celery", "PostgreSQL", "S3") if name not in text] == []


def test_operations_names_every_process_that_quire_up_starts():
    from quire.cli import run

    started = [name for name in ("api", "worker", "scheduler") if hasattr(run, name)]
    assert len(started) == 3
    text = markdown.section("docs/operations.md", "Start and stop")
    assert [name for name in started if f"`quire {name}`" not in text] == []


@pytest.mark.parametrize(
    ("title", "most"),
    [("One task, from claim to settlement", 12), ("One document, from listing to search", 20)],
)
def test_a_walk_through_the_code_names_modules_that_exist(title: str, most: int):
    rows = markdown.rows(markdown.section("docs/ARCHITECTURE.md", title))
    modules = [markdown.quoted(row[1])[0] for row in rows]
    assert [name for name in modules if not (markdown.ROOT / "quire" / name).is_file()] == []
    assert len(set(modules)) == len(modules) <= most
