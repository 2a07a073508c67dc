"""Passwords and signatures of source URLs: fetched with, stored sealed, shown to nobody."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quire import Item, log, secret_key, source
from quire.app import App
from quire.control import doctor, ingest, jobs, queries, secrets
from quire.errors import BadInput, SecretUnavailable
from quire.model.records import Submission
from quire.store.access import secrets as stored
from quire.store.db.schema import access as access_tables
from quire.store.db.schema.queue import metadata
from tests.api.house import PLAIN, House
from tests.api.test_sources import accepted, grant
from tests.api.test_sources import ingest as ask
from tests.servers import FileServer
from tests.shelf import SECRET_KEY

PASSWORD, SIGNATURE = "s3cr3t-pw", "S1GN4TURE"
PLANTED = (PASSWORD, SIGNATURE)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What this process logs, from debug on."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(log._Json())
    logger = logging.getLogger("quire")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel("DEBUG")
    yield out
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.fixture
def site(each_house: House) -> Iterator[FileServer]:
    with FileServer() as server:
        server.put("/memo.txt", b"The tide turns at noon.")
        grant(each_house, f"host:localhost:{server.port}")
        yield server


def url(site: FileServer, path: str = "/memo.txt", sig: str = SIGNATURE) -> str:
    return f"http://ann:{PASSWORD}@localhost:{site.port}{path}?part=1&sig={sig}"


def everything(app: App) -> str:
    """All rows of all tables, and all bytes of the home."""
    with app.db.read() as conn:
        rows = [
            str(tuple(bytes(v) if isinstance(v, memoryview) else v for v in row))
            for table in metadata.sorted_tables
            for row in conn.execute(sa.select(table))
        ]
    home = app.settings.home
    files = [each.read_bytes().decode("latin-1") for each in home.rglob("*") if each.is_file()]
    return "\n".join([*rows, *files])


def assert_nowhere(text: str) -> None:
    for each in PLANTED:
        assert each not in text, text[max(text.index(each) - 200, 0) : text.index(each) + 80]


def pages_of(house: House) -> list[str]:
    """What every reader of the tenant can ask for."""
    found = []
    jobs_ = [each["id"] for each in house.admin.get("/api/jobs").json()["items"]]
    documents = [each["id"] for each in house.admin.get("/api/documents").json()["items"]]
    found += ["/api/jobs", "/api/documents", "/api/status", "/metrics", "/api/audit"]
    found += [f"/api/jobs/{i}{part}" for i in jobs_
              for part in ("", "/explain", "/events", "/tasks", "/files")]  # fmt: skip
    found += [f"/api/documents/{i}{part}" for i in documents for part in ("", "/explain")]
    return found


def test_a_secret_of_a_source_is_stored_and_told_nowhere(
    each_house: House, site: FileServer, lines: io.StringIO
):
    house = each_house
    good, gone = url(site), url(site, "/gone.txt")
    nowhere = f"http://ann:{PASSWORD}@nowhere.invalid/a.pdf?sig={SIGNATURE}"
    errand = house.submit(house.member, payload={"from": good, "note": f"see {gone} now"})
    ids = [accepted(ask(house.member, each)) for each in (good, gone, nowhere)]
    refused = ask(house.member, f"s3://x:{PASSWORD}@bucket?sig={SIGNATURE}")
    assert refused.status_code in (403, 422)
    assert_nowhere(refused.text)
    house.shelf.drain()
    assert site.asked[0].query == {"part": "1", "sig": SIGNATURE}
    assert "authorization" in site.asked[0].headers
    assert [house.shelf.job(each).state for each in (errand, *ids)] == [
        "completed", "completed", "failed", "failed"
    ]  # fmt: skip
    assert_nowhere(everything(house.shelf.app))
    assert_nowhere(lines.getvalue())
    for page in pages_of(house):
        assert_nowhere(house.admin.get(page).text)
    shown = house.viewer.get(f"/api/jobs/{ids[0]}").text
    assert "ann:***@localhost" in shown and "part=1&sig=***" in shown


def test_a_secret_cannot_be_guessed_by_the_filter_of_lists(each_house: House, site: FileServer):
    house = each_house
    accepted(ask(house.member, url(site)))
    house.shelf.drain()
    caller = house.shelf.app.caller
    for guess in (f"ann:{PASSWORD[0]}", PASSWORD[:3], f"sig={SIGNATURE[0]}", SIGNATURE[:3]):
        assert queries.jobs(caller, text=guess)["items"] == [], guess
        assert queries.documents(caller, text=guess)["items"] == [], guess
    assert queries.jobs(caller, text="memo.txt")["items"]


def test_a_plugin_gets_the_url_as_it_was_submitted(each_house: House):
    house = each_house
    got: list[Any] = []
    from quire import Context, job

    @job("keeps")
    def keeps(ctx: Context, **payload: Any) -> None:
        got.append(payload)
        raise ValueError(f"no answer from {payload['from']}")

    from quire.model.contracts import MARK

    house.shelf.app.registry.put(getattr(keeps, MARK))
    payload = {"from": f"https://h/a?token={PASSWORD}", "list": [f"x https://u:{PASSWORD}@h/ y"]}
    job_id = house.shelf.app.submit("keeps", **payload)
    house.shelf.drain()
    assert got[0] == payload
    assert "token=***" in house.shelf.job(job_id).error
    assert_nowhere(everything(house.shelf.app))


def test_the_same_file_with_a_new_signature_is_the_same_document(
    each_house: House, site: FileServer
):
    house = each_house
    for signature in (SIGNATURE, f"{SIGNATURE}-2"):
        accepted(ask(house.member, url(site, sig=signature)))
        house.shelf.drain()
    assert site.asked[-1].query["sig"] == f"{SIGNATURE}-2"
    [document] = house.shelf.rows("documents")
    assert document.state == "success"
    assert document.uri.endswith("/memo.txt?part=1&sig=***")


def test_files_that_differ_in_a_key_stay_two_documents(each_house: House, site: FileServer):
    """`key` may be a password, or the name of a file."""
    house = each_house
    at = f"http://localhost:{site.port}/memo.txt?key="
    accepted(ask(house.member, f"{at}first", f"{at}second"))
    house.shelf.drain()
    assert len(house.shelf.rows("documents")) == 2
    assert "key=first" not in everything(house.shelf.app)


def test_a_retried_job_is_fetched_with_its_own_secret(each_house: House, site: FileServer):
    house = each_house
    job_id = accepted(ask(house.member, url(site, "/late.txt")))
    house.shelf.drain()
    assert house.shelf.job(job_id).state == "failed"
    site.put("/late.txt", b"Barley.")
    site.asked.clear()
    assert house.member.post(f"/api/jobs/{job_id}/retry").status_code == 200
    house.shelf.drain()
    assert house.shelf.job(job_id).state == "completed"
    assert site.asked[0].query["sig"] == SIGNATURE
    [document] = house.shelf.rows("documents")
    answer = house.member.post(f"/api/documents/{document.id}/reindex", json={})
    assert answer.status_code == 201, answer.text
    house.shelf.drain()
    assert house.shelf.document("late.txt").state == "success"


def test_an_idempotency_key_knows_its_request_by_secrets_too(each_house: House, site: FileServer):
    house = each_house

    def send(sig: str) -> Any:
        body = {"kind": "ingest", "payload": {"sources": [url(site, sig=sig)], "settings": PLAIN}}
        return house.member.post("/api/jobs", json=body, headers={"Idempotency-Key": "k1"})

    first, again, other = send(SIGNATURE), send(SIGNATURE), send("other")
    assert first.json()["id"] == again.json()["id"]
    assert other.status_code == 409


def test_a_url_that_was_copied_from_a_page_is_refused(each_house: House, site: FileServer):
    """Nobody fetches with the secret of another user, or with one of another corpus."""
    house = each_house
    job_id = accepted(ask(house.member, url(site)))
    shown = house.viewer.get(f"/api/jobs/{job_id}").json()["payload"]["sources"][0]
    with house.shelf.db.read() as conn:
        tag = conn.execute(sa.select(access_tables.secrets.c.tag)).scalars().first()
    for each in (shown, shown.replace("***", f"***{tag}"), f"https://h/a?token=***{tag}"):
        answer = ask(house.member, each)
        assert answer.status_code == 422, each
        assert "hidden, not given" in answer.json()["detail"]
        assert "write it in place of ***" in answer.json()["remedy"]


def test_a_mark_of_another_tenant_opens_nothing(each_house: House, site: FileServer):
    house = each_house
    grant(house, f"host:localhost:{site.port}", "other")
    accepted(ask(house.member, url(site)))
    [payload] = [row.payload for row in house.shelf.rows("jobs")]
    import json

    caller = replace(house.shelf.app.caller, tenant="other")
    stolen = json.loads(payload)["sources"][0]
    # Past the check at submit, as who writes to the database could.
    request = {"sources": ["https://h/a"], "settings": PLAIN}
    [job_id] = jobs.submit(caller, [Submission("ingest", request)])
    with house.shelf.db.begin() as conn:
        conn.execute(
            sa.text("UPDATE jobs SET payload = :p WHERE id = :i"),
            {"p": json.dumps({**request, "sources": [stolen]}), "i": job_id},
        )
    site.asked.clear()
    house.shelf.drain()
    assert "no longer stored" in house.shelf.job(job_id).error
    assert [each for each in site.asked if "authorization" in each.headers] != []  # its owner's
    rows = access_tables.secrets
    with house.shelf.db.begin() as conn:  # nor does a row that was copied
        for row in conn.execute(sa.select(rows).where(rows.c.tenant == "default")).all():
            conn.execute(sa.insert(rows).values({**row._mapping, "tenant": "other"}))
    jobs.retry(caller, [job_id])
    house.shelf.drain()
    assert "changed in the database" in house.shelf.job(job_id).error


def test_a_preview_knows_documents_by_their_url_without_secrets(
    each_house: House, site: FileServer
):
    house = each_house
    accepted(ask(house.member, url(site)))
    house.shelf.drain()
    app = house.shelf.app
    own = {**app.settings.for_children, "fetch_allow_private_addresses": True}
    request = ingest.check_request([url(site, sig="another")], own, settings=PLAIN)
    [item] = ingest.preview(app.caller, own, request)
    assert (item.verdict, item.document_id) == ("same", house.shelf.rows("documents")[0].id)
    assert_nowhere(item.uri)


@source("vault")
class Vault:
    """Files whose URIs hold a secret, listed one a page."""

    asked: list[str] = []  # noqa: RUF012

    def items(self, at: str) -> Iterator[Item]:
        for name in ("a", "b"):
            yield Item(f"vault://h/{name}.txt?token={PASSWORD}", f"{name}.txt", version="1")

    def read(self, item: Item, start: int) -> Iterator[bytes]:
        self.asked.append(item.uri)
        if "b.txt" in item.uri:
            raise PermissionError(f"not for {item.uri}")
        yield b"The tide turns."


def test_a_source_of_a_plugin_lists_and_reads_by_its_own_uris(
    each_house: House, lines: io.StringIO
):
    house = each_house
    from quire import plugins
    from quire.model.contracts import MARK

    house.shelf.app.registry.put(getattr(Vault, MARK))
    plugins.equip(house.shelf.app.registry)
    Vault.asked.clear()
    house.shelf.ingest(f"vault://ann:{PASSWORD}@h/")
    assert sorted(set(Vault.asked)) == [f"vault://h/{n}.txt?token={PASSWORD}" for n in "ab"]
    assert house.shelf.document("a.txt").state == "success"
    assert house.shelf.document("b.txt").state == "failed"
    assert_nowhere(everything(house.shelf.app))
    assert_nowhere(lines.getvalue())
    house.shelf.ingest(f"vault://ann:{PASSWORD}@h/")
    assert len(house.shelf.rows("documents")) == 2


def test_without_the_key_a_job_fails_with_that_reason_and_succeeds_with_it(
    each_house: House, site: FileServer, tmp_path: Path
):
    house = each_house
    shelf = house.shelf
    job_id = accepted(ask(house.member, url(site)))
    right = shelf.app.settings
    ring = secret_key.load(right.for_children)
    wrong = secret_key.new_key()
    shelf.app.settings = replace(right, secret_key=wrong)
    shelf.drain()
    error = shelf.job(job_id).error
    assert shelf.job(job_id).state == "failed"
    assert ring.first.id in error and "QUIRE_SECRET_KEY" in error and wrong not in error
    # Nor is anything sealed with the wrong one.
    caller = replace(shelf.app.caller, settings=shelf.app.settings.for_children)
    with pytest.raises(SecretUnavailable, match=ring.first.id):
        jobs.submit(caller, [Submission("ingest", {"sources": [url(site, sig="new")]})])
    shelf.app.settings = right
    assert house.member.post(f"/api/jobs/{job_id}/retry").status_code == 200
    shelf.drain()
    assert shelf.job(job_id).state == "completed"


def test_postgresql_needs_a_key_that_all_machines_share(pg_url: str, tmp_path: Path):
    house = House(tmp_path, pg_url, secret_key="")
    answer = ask(house.member, f"https://h/a?sig={SIGNATURE}")
    assert answer.status_code == 503
    assert "QUIRE_SECRET_KEY" in answer.json()["remedy"]
    assert house.shelf.rows("jobs") == []
    assert accepted(ask(house.member, "https://h/a"))
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / secret_key.FILE).write_text(SECRET_KEY)  # that of a transferred home
    assert accepted(ask(house.member, f"https://h/a?sig={SIGNATURE}"))
    house.close()


def test_a_key_is_replaced_while_its_secrets_stay(each_house: House, site: FileServer):
    house = each_house
    shelf, caller = house.shelf, house.shelf.app.caller
    job_id = accepted(ask(house.member, url(site)))
    before = secrets.shown(caller)
    if shelf.db.is_embedded:
        done = secrets.rotate(caller)
        settings = caller.settings
    else:
        new = secret_key.new_key()
        both = replace(shelf.app.settings, secret_key=f"{new},{SECRET_KEY}")
        done = secrets.rotate(replace(caller, settings=both.for_children))
        shelf.app.settings = replace(both, secret_key=new)
        settings = shelf.app.settings.for_children
    assert done["sealed"] == 3 and [done["key"]] != before["keys"]  # and the key of the marks
    assert secrets.shown(replace(caller, settings=settings))["sealed"] == {done["key"]: 2}
    shelf.drain()
    assert shelf.job(job_id).state == "completed"
    entries = house.admin.get("/api/audit").json()["items"]
    assert "secret.rotate" in {each["action"] for each in entries}


def test_a_lost_key_is_given_up_and_what_it_sealed_is_gone(each_house: House, site: FileServer):
    house = each_house
    shelf = house.shelf
    job_id = accepted(ask(house.member, url(site)))
    shelf.app.settings = replace(shelf.app.settings, secret_key=secret_key.new_key())
    caller = replace(shelf.app.caller, settings=shelf.app.settings.for_children)
    with pytest.raises(SecretUnavailable, match="sealed with the key"):
        secrets.rotate(caller)
    assert secrets.rotate(caller, forget=True)["forgotten"] == 3
    shelf.drain()
    assert "no longer stored" in shelf.job(job_id).error
    [again] = jobs.submit(
        replace(caller, origin="api"),
        [Submission("ingest", {"sources": [url(site)], "settings": PLAIN})],
    )
    shelf.drain()
    assert shelf.job(again).state == "completed"


def test_a_secret_is_deleted_ninety_days_after_its_last_use(each_house: House, site: FileServer):
    house = each_house
    shelf = house.shelf
    accepted(ask(house.member, url(site)))
    shelf.drain()

    def prune(days: float) -> int:
        before = shelf.clock.now().wall + (days - stored.KEEP_DAYS) * stored.DAY
        return shelf.db.write(lambda conn, now: stored.prune(conn, before=before))

    assert prune(60) == 0
    with shelf.db.begin() as conn:
        tags = set(conn.scalars(sa.select(access_tables.secrets.c.tag)))
        used_at = shelf.db.now(conn).wall + 50 * stored.DAY
        stored.touch(conn, "default", tags, used_at=used_at)
    assert prune(100) == 0
    assert prune(200) == 2
    accepted(ask(house.member, url(site)))  # the key of the marks is still there


def test_doctor_seals_what_an_earlier_quire_stored_in_clear(each_house: House, site: FileServer):
    house = each_house
    shelf = house.shelf
    job_id = accepted(ask(house.member, url(site)))
    shelf.drain()
    document = shelf.rows("documents")[0]
    plain, other = url(site).replace(f"ann:{PASSWORD}@", ""), url(site, sig=f"{SIGNATURE}-old")
    clear = {"sources": [url(site)], "settings": PLAIN}
    import json

    with shelf.db.begin() as conn:

        def run(text: str, **values: Any) -> None:
            conn.execute(sa.text(text), values)

        run("DELETE FROM secrets")
        run("UPDATE jobs SET payload = :p, error = :e", p=json.dumps(clear), e=f"at {url(site)}")
        run("UPDATE tasks SET payload = :p", p=json.dumps({"source": url(site), "options": {},
            "item": {"uri": plain, "name": "memo.txt"}, "document": document.id}))  # fmt: skip
        run("UPDATE tasks SET payload = NULL WHERE document_id IS NULL")
        run("UPDATE documents SET uri = :u, source = :s", u=plain, s=url(site))
        run("UPDATE events SET detail = :d", d=json.dumps({"message": f"fetching {url(site)}"}))
        columns = [c.name for c in metadata.tables["documents"].c if c.name not in ("id", "uri")]
        listed = ", ".join(columns)
        run(f"INSERT INTO documents (id, uri, {listed}) SELECT 99, :u, {listed} FROM documents",
            u=other.replace(f"ann:{PASSWORD}@", ""))  # fmt: skip
        run("UPDATE documents SET generation = 0, live_generation = NULL, state = 'not_indexed' "
            "WHERE id = 99")  # fmt: skip
    assert "secrets.open" in {each.name for each in doctor.examine(shelf.db).violations}
    repaired = doctor.repair_derived(shelf.db, shelf.app.settings.for_children)
    assert repaired["secrets.open"] > 6
    assert "secrets.open" not in {each.name for each in doctor.examine(shelf.db).violations}
    assert "secrets.open" not in doctor.repair_derived(shelf.db, shelf.app.settings.for_children)
    assert_nowhere(everything(shelf.app))
    with shelf.db.begin() as conn:
        uris = [row.uri for row in shelf.rows("documents")]
        conn.execute(sa.text("DELETE FROM documents WHERE id = 99"))
    assert len({*uris}) == 2
    site.asked.clear()
    jobs.retry(shelf.app.caller, [job_id])
    accepted(ask(house.member, url(site)))
    shelf.drain()
    assert [row.id for row in shelf.rows("documents")] == [document.id]
    assert {each.query["sig"] for each in site.asked} == {SIGNATURE}


def test_the_key_of_a_home_is_for_its_user_only_and_not_a_source(house: House, tmp_path: Path):
    secrets.identity_of(house.shelf.app.caller)(f"https://h/a?sig={SIGNATURE}")
    path = house.folder / "home" / secret_key.FILE
    assert path.stat().st_mode & 0o777 == 0o600
    refused = house.shelf.ingest(str(path))
    assert "belongs to Quire itself" in house.shelf.job(refused).error
    assert secret_key.load(house.shelf.app.settings.for_children).first.bytes.hex() not in str(
        secret_key.load(house.shelf.app.settings.for_children)
    )


def test_a_key_that_is_none_is_refused_without_showing_it():
    for text in ("short", "c2hvcnQ=", f"{SECRET_KEY},x"):
        with pytest.raises(BadInput, match="32 bytes in base64") as refused:
            secret_key.parse(text, "QUIRE_SECRET_KEY")
        assert text not in str(refused.value)
    assert secret_key.parse(secret_key.new_key(), "here").first.id


@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_a_payload_nested_deeper_than_anything_that_looks_into_it_is_refused(
    house: House, brackets: str
):
    secret = '"https://user:hunter2@example.org/?sig=hunter2"'
    opening, closing = {"[]": ("[", "]"), "{}": ('{"a":', "}")}[brackets]
    for depth, expected in ((98, 201), (99, 201), (100, 422), (500, 422), (900, 422)):
        body = f'{{"kind":"errand","payload":{{"x":{opening * depth}{secret}{closing * depth}}}}}'
        headers = {"Content-Type": "application/json"}
        made = house.member.post("/api/jobs", content=body, headers=headers)
        assert made.status_code == expected, (depth, made.text)
        if expected == 201:
            shown = house.member.get(f"/api/jobs/{made.json()['id']}")
            assert (shown.status_code, "hunter2" in shown.text) == (200, False)
    listed = house.member.get("/api/jobs")
    assert (listed.status_code, len(listed.json()["items"])) == (200, 2)
