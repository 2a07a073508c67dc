"""The doctor finds each kind of damage to documents, and mends what can be derived anew."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from quire.control import doctor
from quire.control.search import search
from quire.store.db import document_entries
from quire.store.db.engine import Database
from quire.store.doctor.document_invariants import INVARIANTS, wrong_slice_texts
from tests.store.doctor.test_doctor import Damage, damage, unguarded
from tests.store.library import HOUR, Library, Original, filled
from tests.store.shelf import Shelf
from tests.store.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def original(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Original]:
    blanks = request.getfixturevalue("pg_copies") if request.param == "postgres" else None
    with filled(tmp_path_factory.mktemp("library"), blanks) as made:
        yield made


@pytest.fixture
def library(original: Original, tmp_path: Path) -> Iterator[Library]:
    with original.copied(tmp_path) as library:
        yield library


LIVE = "(SELECT id FROM documents WHERE uri = 'live.txt')"
QUEUED = "(SELECT id FROM documents WHERE state = 'queued')"
INDEXING = "(SELECT id FROM documents WHERE state = 'indexing')"
FAILED = "(SELECT id FROM documents WHERE state = 'failed')"
RETIRED = "(SELECT id FROM documents WHERE uri = 'retired.txt')"
REPLACED = "(SELECT id FROM documents WHERE uri = 'replaced.txt')"
PAGE = "(SELECT id FROM pages WHERE text = 'four')"
LONG = "(SELECT page_id FROM slices WHERE ordinal = 2)"
CHUNK = "(SELECT id FROM chunks WHERE text = 'four')"
OTHER_PAGE = "(SELECT id FROM pages WHERE tenant = 'other')"
OTHER_CHUNK = "(SELECT id FROM chunks WHERE tenant = 'other')"
OTHER_OWNER = "(SELECT id FROM owners WHERE tenant = 'other')"


def of(document: str, column: str = "document_id") -> str:
    return f"WHERE {column} = {document}"


WORDS = {
    "sqlite": f"DELETE FROM chunk_words WHERE rowid = {CHUNK}",
    "postgres": f"UPDATE chunks SET words = NULL WHERE id = {CHUNK}",
}
SHORT = {
    "sqlite": f"UPDATE vectors SET vector = x'00000000' WHERE chunk_id = {CHUNK}",
    "postgres": f"UPDATE vectors SET vector = '[1,2]' WHERE chunk_id = {CHUNK}",
}

DAMAGES = [
    damage("documents.constraints", f"UPDATE documents SET state = 'lost' WHERE id = {FAILED}"),
    damage("documents.constraints",
           f"UPDATE documents SET live_generation = 9 WHERE id = {LIVE}", also="documents.live"),
    damage("generations.constraints",
           f"UPDATE generations SET state = 'old' {of(REPLACED)} AND generation = 1"),
    damage("documents.owner_id", f"UPDATE documents SET owner_id = 99 WHERE id = {LIVE}"),
    damage("corpus_documents.corpus_id",
           f"UPDATE corpus_documents SET corpus_id = 99 {of(LIVE)}"),
    damage("corpus_documents.document_id",
           f"UPDATE corpus_documents SET document_id = 99 {of(LIVE)}"),
    damage("generations.document_id",
           f"UPDATE generations SET document_id = 99 {of(REPLACED)} AND generation = 1",
           f"DELETE FROM leaves {of(REPLACED)} AND generation = 1"),
    damage("generations.cut_id",
           f"UPDATE generations SET cut_id = 99 {of(REPLACED)} AND generation = 1"),
    damage("generations.model_id",
           f"UPDATE generations SET model_id = 99 {of(REPLACED)} AND generation = 1"),
    damage("leaves.page_id", f"UPDATE leaves SET page_id = 99 {of(INDEXING)}"),
    damage("slices.page_id", f"INSERT INTO slices SELECT 99, cut_id, 0, chunk_id, start, stop "
           f"FROM slices WHERE page_id = {PAGE}"),
    damage("slices.cut_id", f"INSERT INTO slices SELECT page_id, 99, 0, chunk_id, start, stop "
           f"FROM slices WHERE page_id = {PAGE}"),
    damage("slices.chunk_id", f"INSERT INTO slices SELECT {PAGE}, "
           "(SELECT max(id) + 1 FROM cuts), 0, 999, 0, 4",
           "INSERT INTO cuts (id, key, settings) SELECT max(id) + 1, 'x', '{}' FROM cuts"),
    damage("vectors.model_id",
           f"INSERT INTO vectors SELECT 99, chunk_id, vector FROM vectors {of(CHUNK, 'chunk_id')}"),
    damage("vectors.chunk_id", "INSERT INTO vectors SELECT model_id, 999, vector FROM vectors "
           f"{of(CHUNK, 'chunk_id')}"),
    damage("documents.parent_id", f"UPDATE documents SET parent_id = 99 WHERE id = {FAILED}"),
    damage("generations.job_id",
           f"UPDATE generations SET job_id = 99 {of(REPLACED)} AND generation = 1"),
    damage("tasks.document_id", "UPDATE tasks SET document_id = 99, generation = 1 "
           f"{of(QUEUED)}"),
    damage("documents.tenant", f"UPDATE documents SET owner_id = {OTHER_OWNER} WHERE id = {LIVE}"),
    damage("generations.tenant",
           f"UPDATE generations SET tenant = 'other', digest = NULL {of(FAILED)}"),
    damage("leaves.tenant", f"UPDATE leaves SET page_id = {OTHER_PAGE} {of(INDEXING)}"),
    damage("slices.tenant", f"UPDATE slices SET chunk_id = {OTHER_CHUNK} "
           f"WHERE page_id = {LONG} AND ordinal = 0"),
    damage("corpus_documents.tenant", "UPDATE corpus_documents SET corpus_id = "
           f"(SELECT id FROM corpora WHERE tenant = 'other') {of(LIVE)}"),
    damage("documents.newest", f"UPDATE documents SET generation = 5 WHERE id = {LIVE}"),
    damage("documents.newest",
           f"UPDATE generations SET generation = 7 {of(FAILED)} AND generation = 1"),
    damage("documents.live", f"UPDATE generations SET state = 'live', pages = 1, chunks = 1 "
           f"{of(REPLACED)} AND generation = 1"),
    damage("documents.live", f"UPDATE generations SET state = 'replaced' {of(LIVE)}"),
    damage("documents.live",
           f"UPDATE documents SET live_generation = NULL, state = 'failed' WHERE id = {LIVE}"),
    damage("documents.state", f"UPDATE documents SET state = 'not_indexed' WHERE id = {LIVE}"),
    damage("documents.state", f"UPDATE documents SET state = 'success' WHERE id = {FAILED}"),
    damage("documents.state", f"UPDATE documents SET state = 'indexing' WHERE id = {LIVE}"),
    damage("documents.locked",
           f"UPDATE documents SET queued_at = 5 WHERE id = {QUEUED}",
           f"UPDATE tasks SET document_id = NULL {of(QUEUED)}"),
    damage("documents.locked",
           f"UPDATE documents SET processing_started_at = 5 WHERE id = {INDEXING}",
           f"UPDATE tasks SET generation = 9 {of(INDEXING)}"),
    damage("documents.summary", f"UPDATE documents SET pages = 3 WHERE id = {LIVE}"),
    damage("documents.summary", f"UPDATE documents SET chunks = NULL WHERE id = {LIVE}"),
    damage("documents.summary", f"UPDATE documents SET page_errors = 1 WHERE id = {LIVE}"),
    damage("documents.summary", f"UPDATE documents SET digest = 'x' WHERE id = {LIVE}"),
    damage("documents.summary", f"UPDATE documents SET media_type = NULL WHERE id = {LIVE}"),
    damage("documents.thumbnail", f"UPDATE documents SET thumbnail = 'x' WHERE id = {LIVE}"),
    damage("generations.building", f"UPDATE generations SET state = 'building' {of(FAILED)}"),
    damage("generations.building",
           f"UPDATE generations SET state = 'building' {of(REPLACED)} AND generation = 1"),
    damage("generations.counts", f"UPDATE generations SET pages = 7 {of(LIVE)}",
           f"UPDATE documents SET pages = 7 WHERE id = {LIVE}"),
    damage("generations.counts", f"UPDATE generations SET page_errors = 1 {of(LIVE)}",
           f"UPDATE documents SET page_errors = 1 WHERE id = {LIVE}"),
    damage("generations.counts", f"DELETE FROM slices WHERE page_id = {PAGE}"),
    damage("generations.counts", f"DELETE FROM leaves {of(LIVE)} AND number = 2"),
    damage("generations.digest",
           "DELETE FROM contents WHERE digest = "
           f"(SELECT digest FROM documents WHERE id = {LIVE})"),
    damage("leaves.filled", f"UPDATE leaves SET page_id = NULL {of(LIVE)} AND number = 2",
           also="generations.counts"),
    damage("leaves.generation", f"INSERT INTO leaves SELECT {RETIRED}, 1, 1, key, page_id, NULL "
           f"FROM leaves {of(LIVE)} AND number = 1"),
    damage("leaves.generation", f"INSERT INTO leaves SELECT {LIVE}, 9, 1, key, page_id, NULL "
           f"FROM leaves {of(LIVE)} AND number = 1"),
    damage("slices.order", f"DELETE FROM slices WHERE page_id = {LONG} AND ordinal = 1",
           also="generations.counts"),
    damage("slices.order", f"DELETE FROM slices WHERE page_id = {LONG} AND ordinal = 0",
           also="generations.counts"),
    damage("slices.text", f"UPDATE slices SET stop = 999 WHERE page_id = {PAGE}"),
    damage("slices.text", f"UPDATE slices SET start = -1 WHERE page_id = {PAGE}"),
    damage("slices.text", f"UPDATE slices SET stop = 0 WHERE page_id = {PAGE}"),
    damage("slices.text", f"UPDATE slices SET start = 1 WHERE page_id = {PAGE}"),
    damage("slices.text", f"UPDATE pages SET text = 'Four' WHERE id = {PAGE}"),
    damage("chunks.words", "WORDS"),
    damage("documents.words", f"DELETE FROM document_words {of(LIVE)}"),
    damage("documents.words", f"UPDATE document_words SET generation = 9 {of(LIVE)}"),
    damage("document_words.document", "INSERT INTO document_words (document_id, generation, "
           "tenant, name, length) VALUES (999, 1, 'default', '', 0)"),
    damage("pages.heads", f"UPDATE pages SET heads = NULL WHERE id = {PAGE}"),
    damage("chunks.vectors", f"DELETE FROM vectors {of(CHUNK, 'chunk_id')}"),
    damage("vectors.dimensions", "SHORT"),
]  # fmt: skip


def break_it(library: Library, harm: Damage) -> None:
    backend = "postgres" if library.stage.is_postgres else "sqlite"
    own = {"WORDS": WORDS[backend], "SHORT": SHORT[backend]}
    with unguarded(library.db) as conn:
        # It guards the dimensions of its model.
        conn.exec_driver_sql("DROP INDEX IF EXISTS ix_vectors_model_1")
        for statement in harm.statements:
            assert conn.exec_driver_sql(own.get(statement, statement)).rowcount, statement


def names(library: Library) -> set[str]:
    return {violation.name for violation in doctor.examine(library.db).violations}


def test_documents_in_every_state_break_nothing(library: Library):
    report = doctor.examine(library.db, blobs=library.shelf.blobs, deep=True)
    assert (report.violations, report.checked) == ([], len(doctor.ALL) + 3)
    states = {row.state for row in library.stage.rows("documents")}
    assert states == {"queued", "indexing", "success", "failed"}


@pytest.mark.parametrize("harm", DAMAGES, ids=lambda harm: harm.name)
def test_each_damage_is_found_and_named(library: Library, harm: Damage):
    break_it(library, harm)
    found = {v.name: v for v in doctor.examine(library.db).violations}
    assert set(found) == {harm.name, *harm.also}
    assert found[harm.name].count == len(found[harm.name].examples) > 0
    assert found[harm.name].sentence.endswith(".")


def test_every_invariant_has_a_damage_that_proves_it():
    known = [invariant.name for invariant in INVARIANTS]
    assert {harm.name for harm in DAMAGES} | {"documents.next_id"} == set(known)
    assert len({each.name for each in doctor.ALL}) == len(doctor.ALL)


def test_ids_of_documents_that_may_be_given_again_are_found(library: Library):
    behind = "SELECT setval('documents_id_seq', 2)"
    if not library.stage.is_postgres:
        behind = "DROP TRIGGER documents_last_id"
    with library.db.begin() as conn:
        conn.exec_driver_sql(behind)
    assert names(library) == {"documents.next_id"}


def test_rows_with_several_keys_are_named_by_all_of_them(library: Library):
    with unguarded(library.db) as conn:
        conn.exec_driver_sql(f"UPDATE generations SET state = 'old' {of(RETIRED)}")
    found = {v.name: v.examples for v in doctor.examine(library.db).violations}
    assert found["generations.constraints"] == [
        "1.1 ck_generations_state", "1.2 ck_generations_state"
    ]  # fmt: skip


def test_a_document_that_only_waits_is_not_to_be_taken_over(library: Library):
    library.stage.clock.advance(30 * 24 * HOUR)
    assert doctor.examine(library.db, sweep_interval=1e9).is_healthy


def test_a_locked_document_is_let_pass_until_the_takeover(library: Library):
    with library.db.begin() as conn:
        conn.exec_driver_sql(f"UPDATE tasks SET document_id = NULL {of(QUEUED)}")
        conn.exec_driver_sql(f"UPDATE tasks SET document_id = NULL {of(INDEXING)}")
    library.stage.clock.advance(599)
    assert "documents.locked" not in names(library)
    library.stage.clock.advance(2)
    [found] = [v for v in doctor.examine(library.db).violations if v.name == "documents.locked"]
    assert (found.count, "--repair" in found.sentence) == (1, True)
    library.stage.clock.advance(2100)
    [found] = [v for v in doctor.examine(library.db).violations if v.name == "documents.locked"]
    assert found.count == 2


MENDED = {"documents.locked", "documents.summary", "generations.counts", "chunks.words"}


@pytest.mark.parametrize(
    "harm",
    [harm for harm in DAMAGES if harm.name in MENDED and not harm.also],
    ids=lambda harm: harm.name,
)
def test_what_can_be_derived_anew_is_mended(library: Library, harm: Damage):
    break_it(library, harm)
    mended = doctor.repair_derived(library.db, {})
    assert mended[harm.name] == 1
    assert doctor.examine(library.db).violations == []
    assert doctor.repair_derived(library.db, {}) == {}


def test_a_healthy_database_is_left_as_it_is(library: Library):
    assert doctor.repair_derived(library.db, {}) == {}


def test_a_document_that_is_taken_over_says_so_and_can_be_retried(library: Library):
    [harm, *_] = [harm for harm in DAMAGES if harm.name == "documents.locked"]
    break_it(library, harm)
    doctor.repair_derived(library.db, {})
    [row] = library.stage.rows("documents", uri="live.txt#1/inside.txt")
    assert row.state == "failed"
    assert row.error.startswith("taken over by doctor")
    assert library.shelf.queue("live.txt#1/inside.txt").generation == row.generation + 1


def test_words_that_were_indexed_again_are_found(library: Library):
    [harm] = [harm for harm in DAMAGES if harm.name == "chunks.words"]
    break_it(library, harm)
    doctor.repair_derived(library.db, {})
    query = "SELECT rowid FROM chunk_words WHERE chunk_words MATCH 'four'"
    if library.stage.is_postgres:
        query = "SELECT id FROM chunks WHERE words @@ to_tsquery('simple', 'four')"
    with library.db.read() as conn:
        found = conn.exec_driver_sql(query).scalars().all()
        assert found == conn.exec_driver_sql(f"SELECT {CHUNK}").scalars().all()


def test_fields_of_documents_from_before_a_migration_are_added(library: Library):
    """Without them a document is found by its chunks, and afterwards by its name as well."""
    [live] = library.stage.rows("documents", uri="live.txt")
    with unguarded(library.db) as conn:
        document_entries.delete(conn, [live.id])
        conn.exec_driver_sql("UPDATE pages SET heads = NULL")
    assert search(library.db, "default", "four", mode="text")["items"]
    repaired = doctor.repair_derived(library.db, {})
    assert repaired["documents.words"] >= 1
    assert repaired["pages.heads"] >= 1
    with library.db.read() as conn:
        assert live.id in document_entries.matching(conn, "default", ["=live"], 99)[0]
    assert not {"documents.words", "pages.heads"} & names(library)


def damaged_file(library: Library, content: bytes | None, *, deep: bool = False) -> list[object]:
    """Change the file of the live document; returns what the doctor says of blobs."""
    blobs = library.shelf.blobs
    assert blobs is not None
    [row] = library.stage.rows("documents", uri="live.txt")
    path = blobs.path(row.digest)
    path.chmod(0o644)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    report = doctor.examine(library.db, blobs=blobs, deep=deep)
    return [example for v in report.violations for example in v.examples if v.name == "blobs.files"]


@pytest.mark.parametrize("content", [None, b"shorter"])
def test_a_file_that_is_missing_or_of_another_size_is_found(
    library: Library, content: bytes | None
):
    [row] = library.stage.rows("documents", uri="live.txt")
    assert damaged_file(library, content) == [row.digest]


def test_other_bytes_of_the_same_size_are_found_by_a_deep_look(library: Library):
    changed = b"ONE\ntwo\nthree\ffour"
    assert damaged_file(library, changed) == []
    assert len(damaged_file(library, changed, deep=True)) == 1


def test_a_blob_that_nothing_uses_is_not_missed(library: Library):
    blobs = library.shelf.blobs
    assert blobs is not None
    blobs.delete(library.shelf.put_content(b"not taken yet"))
    assert doctor.examine(library.db, blobs=blobs).is_healthy


def test_the_slices_of_a_huge_page_are_compared_in_one_pass(db: Database):
    stage = Stage(db)
    lines = [f"{number:07} the same words wörtlich on every line" for number in range(20_000)]
    Shelf(stage).file("huge.txt", "\n".join(lines), model=None)
    began = time.perf_counter()
    with stage.db.read() as conn:
        assert list(wrong_slice_texts(conn)) == []
    # Counting the letters before each slice takes a minute.
    assert time.perf_counter() - began < 10
    with stage.db.begin() as conn:
        conn.execute(sa.text("UPDATE slices SET start = start + 1 WHERE ordinal % 5000 = 4999"))
    [found] = doctor.examine(stage.db).violations
    assert (found.name, found.count) == ("slices.text", 4)
    assert [str(each).rsplit(".")[-1] for each in found.examples] == [
        "4999", "9999", "14999", "19999",
    ]  # fmt: skip
