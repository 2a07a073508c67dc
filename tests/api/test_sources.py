"""What users of the API may ingest: uploads, the public web, and what the operator granted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from quire.control import sources as verbs
from quire.errors import NotFound, SourceRefused
from quire.model.payloads import MAX_PATTERN, MAX_PATTERNS
from quire.web import server
from tests import signing
from tests.api.house import PLAIN, House
from tests.servers import FileServer

SECRET = "the launch code is swordfish"


def ingest(client: TestClient, *sources: str, **more: Any) -> Any:
    payload = {"sources": list(sources), "settings": PLAIN, **more}
    return client.post("/api/jobs", json={"kind": "ingest", "payload": payload})


def accepted(answer: Any) -> int:
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def grant(house: House, place: str | Path, tenant: str = "default") -> None:
    from dataclasses import replace

    caller = replace(house.shelf.app.caller, tenant=tenant, user="operator")
    verbs.allow(caller, str(place))


def share(house: House) -> Path:
    """A folder beside the home, with a document."""
    folder = house.folder / "share"
    folder.mkdir(exist_ok=True)
    (folder / "memo.txt").write_text("The tide turns at noon.")
    return folder


def dashboard(house: House) -> str:
    """The page of tenants, as who operates the installation sees it."""
    with signing.by_token(
        server.create(house.shelf.app), "instance-admin", user="operator"
    ) as client:
        return str(client.get("/tenants").text)


def texts(house: House) -> str:
    """Everything that search could show."""
    return str(house.shelf.index())


def secrets(house: House) -> list[str]:
    """Paths of the review's first finding, as this house has them."""
    home = house.folder / "home"
    home.mkdir(exist_ok=True)
    (home / "quire.toml").write_text("embed_api_key = 'sk-toml-secret'")
    house.upload("memo.txt", SECRET.encode(), house.foreigner)
    (house.folder / "link").symlink_to("/etc")
    paths = [
        "/etc/passwd", "/etc/shadow", "/proc/self/environ", f"{home}/quire.toml",
        f"{home}/blobs", f"{home}/quire.db", str(home), "/", str(house.folder / "link"),
    ]  # fmt: skip
    return [
        *paths, "file:///etc/passwd", "FILE:///etc/passwd", "file:/etc/passwd", "~", "~root",
        "etc", "../etc/passwd", "/etc/../etc/passwd", "/etc/pass*", "s3://prodblobs",
        "S3://prodblobs/q", "gs://b", "az://b/k", "gdrive:1AbCdEfGhIjKlMnOp",
        "https://drive.google.com/file/d/1AbCdEfGhIjKlMnOp/view", "notes:all", "",
    ]  # fmt: skip


def test_nothing_on_the_server_can_be_ingested_without_a_grant(each_house: House):
    house = each_house
    for role in ("member", "admin"):
        client = getattr(house, role)
        for source in secrets(house) if role == "member" else ["/etc/passwd", "s3://prodblobs"]:
            answer = ingest(client, source)
            assert answer.status_code in (403, 422), (source, answer.text)
            assert "root:x" not in answer.text
    assert [job["kind"] for job in house.admin.get("/api/jobs").json()["items"]] == []
    assert house.shelf.drain() == []


def test_a_job_stored_without_the_check_is_refused_by_the_worker(each_house: House):
    """As one of an older version, whose API did not ask."""
    house = each_house
    from dataclasses import replace

    from quire.control import jobs
    from quire.model.records import Submission

    caller = replace(house.shelf.app.caller, origin="api")
    for source in ("/etc/hostname", str(house.folder / "home" / "quire.db"), "~", "s3://prodblobs"):
        payload = {"sources": [source], "settings": PLAIN}
        [job_id] = jobs.submit(caller, [Submission("ingest", payload)], is_own=True)
        house.shelf.drain()
        job = house.shelf.job(job_id)
        assert job.state == "failed", source
        assert "granted" in job.error or "absolute path" in job.error, job.error
    assert house.shelf.rows("documents") == []


INTERNAL: list[tuple[str, dict[str, Any]]] = [
    ("ingest.document", {"document": 1, "digest": "0" * 64, "size": 1}),
    ("ingest.range", {"document": 1}),
    ("ingest.swap", {"document": 1}),
    ("noop", {}),
    ("wait", {"seconds": 1e9}),
    ("errand.private", {}),
]


def test_internal_kinds_are_not_for_users_of_the_api(each_house: House):
    for client in (each_house.member, each_house.admin, each_house.foreigner):
        for kind, payload in INTERNAL:
            answer = client.post("/api/jobs", json={"kind": kind, "payload": payload})
            assert answer.status_code == 403, answer.text
            assert repr(kind) in answer.json()["detail"]
    assert each_house.shelf.rows("jobs") == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "sources"),
    ({"sources": "/x"}, "sources must be a list"),
    ({"sources": []}, "sources must be a list"),
    ({"sources": [1]}, "sources must be a list"),
    ({"sources": [["https://example.com"]]}, "sources must be a list"),
    ({"sources": ["https://example.com/" + "x" * 5000]}, "sources must be"),
    ({"sources": ["https://example.com"] * 1001}, "sources must be"),
    ({"sources": ["https://example.com"], "document": 1}, "unknown field 'document'"),
    ({"sources": ["https://example.com"], "uploads": []}, "unknown field 'uploads'"),
    ({"sources": ["https://example.com"], "force": 1}, "force must be"),
    ({"sources": ["https://example.com"], "corpus": 7}, "corpus must be"),
    ({"sources": ["https://example.com"], "settings": []}, "settings must be"),
    ({"sources": ["https://example.com"], "settings": {"colour": 1}}, "'colour'"),
    ({"sources": ["https://example.com"], "options": {"limits": 1}}, "'limits'"),
    ({"sources": ["https://example.com"], "options": {"include": "*.pdf"}}, "include must be"),
    (
        {"sources": ["https://a.com"], "options": {"include": ["*"] * (MAX_PATTERNS + 1)}},
        "include must be",
    ),
    (
        {"sources": ["https://a.com"], "options": {"exclude": ["*" * (MAX_PATTERN + 1)]}},
        "exclude must be",
    ),
]


def test_a_payload_that_the_kind_does_not_take_is_refused(house: House):
    for payload, named in WRONG:
        answer = house.member.post("/api/jobs", json={"kind": "ingest", "payload": payload})
        assert answer.status_code == 422, (payload, answer.text)
        assert named in answer.json()["detail"]
    assert house.shelf.rows("jobs") == []


def test_a_grant_opens_a_folder_to_its_tenant_alone(each_house: House):
    house = each_house
    folder = share(house)
    (house.folder / "shared").mkdir()  # begins with the same letters
    (house.folder / "shared" / "other.txt").write_text(SECRET)
    grant(house, folder)
    job_id = accepted(ingest(house.member, str(folder)))
    accepted(ingest(house.admin, f"file://{folder}/memo.txt"))
    house.shelf.drain()
    assert house.shelf.job(job_id).state == "completed"
    assert "The tide turns" in texts(house)
    for client, source in [
        (house.foreigner, folder), (house.member, house.folder / "shared"),
        (house.member, house.folder), (house.member, f"{folder}/../shared/other.txt"),
    ]:  # fmt: skip
        assert ingest(client, str(source)).status_code in (403, 422), source
    assert SECRET not in texts(house)


def test_links_do_not_lead_out_of_a_granted_folder(each_house: House):
    house = each_house
    folder = share(house)
    outside = house.folder / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    (folder / "report.txt").symlink_to(outside / "secret.txt")
    (folder / "more").symlink_to(outside)
    (folder / "home").symlink_to(house.folder / "home")
    grant(house, folder)
    job_id = accepted(ingest(house.member, str(folder)))
    for name in ("report.txt", "more", "more/secret.txt", "home", "home/quire.db"):
        assert ingest(house.member, str(folder / name)).status_code == 403, name
    refused = ingest(house.member, str(folder), options={"follow_links": True})
    assert refused.status_code == 403
    house.shelf.drain()
    assert house.shelf.job(job_id).state == "completed"
    assert [row.name for row in house.shelf.rows("documents")] == ["memo.txt"]
    assert SECRET not in texts(house)


def test_a_grant_of_everything_leaves_out_the_home_and_the_system(house: House):
    (house.folder / "home" / "secret.txt").write_text(SECRET)
    (house.folder / ".ssh").mkdir()
    (house.folder / ".ssh" / "id").write_text(SECRET)
    share(house)
    grant(house, "/")
    accepted(ingest(house.member, str(house.folder), options={"hidden": True}))
    for source in ("/proc/self", "/sys", "/dev", "/run", "/etc/shadow", house.folder / ".ssh",
                   house.folder / "home", house.folder / "home" / "secret.txt"):  # fmt: skip
        assert ingest(house.member, str(source)).status_code == 403, source
    house.shelf.drain()
    assert "memo.txt" in {row.name for row in house.shelf.rows("documents")}
    assert SECRET not in texts(house)


def test_a_revoked_grant_stops_the_worker_too(each_house: House):
    house = each_house
    folder = share(house)
    grant(house, folder)
    listed = accepted(ingest(house.member, str(folder)))
    house.shelf.step()  # the listing; the document is queued
    waiting = accepted(ingest(house.member, str(folder)))
    verbs.revoke(house.shelf.app.caller, str(folder))
    house.shelf.drain()
    assert "granted" in house.shelf.job(waiting).error
    assert "granted" in house.shelf.document("memo.txt").error
    assert house.shelf.job(listed).state == "failed"  # its one file did
    assert "The tide turns" not in texts(house)


def test_an_operator_ingests_as_before_but_never_the_home(each_house: House):
    shelf = each_house.shelf
    shelf.put("memo.txt", "The tide turns at noon.")
    job_id = shelf.ingest()
    assert shelf.job(job_id).origin == "local"
    assert shelf.job(job_id).state == "completed"
    refused = shelf.ingest(str(each_house.folder / "home"))
    assert "belongs to Quire itself" in shelf.job(refused).error
    both = shelf.ingest(str(each_house.folder))  # the home is inside
    assert shelf.job(both).state == "completed"
    uris = [row.uri for row in shelf.rows("documents")]
    assert not [uri for uri in uris if f"{each_house.folder}/home" in uri]


def test_a_member_cannot_have_fetched_again_what_only_the_operator_may_read(each_house: House):
    house = each_house
    place = house.shelf.put("broken.pdf", b"%PDF-1.4 broken")
    house.shelf.ingest()
    document = house.shelf.document("broken.pdf")
    assert document.state == "failed"
    place.unlink()
    place.symlink_to("/etc/hostname")
    answer = house.member.post(f"/api/documents/{document.id}/reindex", json={})
    assert answer.status_code == 201, answer.text
    house.shelf.drain()
    assert "granted" in house.shelf.document("broken.pdf").error


def test_some_places_cannot_be_granted(each_house: House):
    house = each_house
    caller = house.shelf.app.caller
    home = house.folder / "home"
    (house.folder / "alias").symlink_to(home)
    for place in (home, home / "blobs", house.folder / "alias", "/proc", "/proc/self", "/sys",
                  "/dev/shm", "/run/secrets", "/etc/shadow", "/users/ada/.ssh",
                  "/users/ada/.config/gcloud"):  # fmt: skip
        with pytest.raises(SourceRefused, match="cannot be granted"):
            verbs.allow(caller, str(place))
    assert verbs.list_grants(caller) == []


def test_grants_are_listed_and_audited(each_house: House):
    caller = each_house.shelf.app.caller
    assert "No grants" in dashboard(each_house)
    grant(each_house, "/srv/share/")
    grant(each_house, "/srv/share")
    grant(each_house, "S3://bucket/in/")
    grant(each_house, "https://wiki.internal/", "other")
    assert [each["place"] for each in verbs.list_grants(caller)] == ["/srv/share", "s3://bucket/in"]
    assert "host:wiki.internal" in dashboard(each_house)
    verbs.revoke(caller, "/srv/share")
    with pytest.raises(NotFound, match="granted: s3://bucket/in"):
        verbs.revoke(caller, "/srv/share")
    entries = each_house.admin.get("/api/audit").json()["items"]
    told = [(each["action"], each["subject"]) for each in entries if "source" in each["action"]]
    assert told == [
        ("source.revoke", "/srv/share"), ("source.allow", "s3://bucket/in"),
        ("source.allow", "/srv/share"),
    ]  # fmt: skip


def test_the_bucket_of_stored_files_cannot_be_a_source(tmp_path: Path):
    house = House(tmp_path, blobs="s3://prodblobs/q")
    caller = house.shelf.app.caller
    for place in ("s3://prodblobs", "s3://prodblobs/q", "s3://prodblobs/elsewhere"):
        with pytest.raises(SourceRefused, match="bucket of stored files"):
            verbs.allow(caller, place)
        assert ingest(house.member, place).status_code == 403
    for place in ("s3://prodblobs", "s3://prodblobs/q/", "s3://prodblobs/q/ab"):
        job_id = house.shelf.ingest(place)
        assert "holds the stored files of Quire" in house.shelf.job(job_id).error
    house.close()


def test_a_folder_that_is_swapped_for_a_link_after_the_grant_is_not_left(house: House):
    """The grant names a folder; what stands there when the worker comes is judged again."""
    folder = share(house)
    inner = folder / "inner"
    inner.mkdir()
    (inner / "a.txt").write_text("barley")
    grant(house, folder)
    job_id = accepted(ingest(house.member, str(inner)))
    outside = house.folder / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text(SECRET)
    inner.rename(folder / "away")
    inner.symlink_to(outside)
    house.shelf.drain()
    assert "granted" in house.shelf.job(job_id).error
    assert SECRET not in texts(house)


def test_a_host_that_is_not_public_needs_a_grant_and_its_address_is_not_told(each_house: House):
    house = each_house
    with FileServer() as site:
        site.put("/memo.txt", b"The tide turns at noon.")
        port = site.port
        place = f"http://localhost:{port}/memo.txt"
        nowhere = f"http://nowhere.invalid:{port}/memo.txt"
        refused, missing = (accepted(ingest(house.member, each)) for each in (place, nowhere))
        house.shelf.drain()
        told = [str(house.shelf.job(each).error) for each in (refused, missing)]
        assert "127.0.0.1" not in str(told)
        assert "::1" not in str(told)
        alike = {each.replace("nowhere.invalid", "localhost") for each in told}
        assert len(alike) == 1  # nobody learns which of them exists
        assert site.asked == []
        assert house.shelf.rows("documents") == []
        grant(house, f"host:localhost:{port}", "other")
        still = accepted(ingest(house.member, place, force=True))
        house.shelf.drain()
        assert "there is no public host" in house.shelf.job(still).error
        assert site.asked == []
        grant(house, f"host:localhost:{port}")
        job_id = accepted(ingest(house.member, place, force=True))
        house.shelf.drain()
        assert house.shelf.job(job_id).state == "completed"
        assert "The tide turns" in texts(house)


def test_only_who_operates_it_is_told_where_the_home_is(house: House):
    assert house.operator.get("/api/status").json()["home"] == str(house.folder / "home")
    for client in (house.admin, house.member, house.viewer, house.foreigner):
        assert client.get("/api/status").json()["home"] is None
        assert str(house.folder) not in client.get("/api/status").text


def test_passwords_and_signatures_in_addresses_are_fetched_with_and_shown_to_nobody(
    each_house: House,
):
    """Finding 16 of the security review: a viewer read both in the job and in the document."""
    house = each_house
    with FileServer() as site:
        site.put("/memo.txt", b"The tide turns at noon.")
        grant(house, f"host:localhost:{site.port}")
        good = f"http://user:s3cr3tpw@localhost:{site.port}/memo.txt?sig=SECRETSIG"
        bad = f"http://user:s3cr3tpw@localhost:{site.port}/gone.txt?sig=SECRETSIG"
        ids = [accepted(ingest(house.member, each)) for each in (good, bad)]
        house.shelf.drain()
        assert site.asked[0].query == {"sig": "SECRETSIG"}
        assert "authorization" in site.asked[0].headers
    [document] = house.viewer.get("/api/documents").json()["items"]
    pages = ["/api/jobs", "/api/documents", f"/api/documents/{document['id']}"]
    pages += [f"/api/documents/{document['id']}/explain"]
    pages += [
        f"/api/jobs/{each}{part}" for each in ids for part in ("", "/explain", "/events", "/tasks")
    ]
    for page in pages:
        shown = house.viewer.get(page)
        assert shown.status_code == 200, page
        assert "s3cr3tpw" not in shown.text and "SECRETSIG" not in shown.text, (page, shown.text)
    assert "user:***@localhost" in house.viewer.get(f"/api/jobs/{ids[0]}").text


def refusals(house: House, client: TestClient | None = None) -> list[dict[str, Any]]:
    entries = (client or house.admin).get("/api/audit", params={"limit": 200}).json()["items"]
    return [each for each in entries if each["action"].endswith(".refused")]


def test_refused_sources_kinds_and_grants_are_in_the_audit(each_house: House):
    house = each_house
    tried = f"s3://x:{SECRET.split()[-1]}@bucket/a?sig={SECRET.split()[-1]}"
    assert ingest(house.member, "/etc/passwd").status_code == 403
    assert ingest(house.member, f"plugin:{tried}").status_code == 403
    house.member.post("/api/jobs", json={"kind": "noop", "payload": {}})
    house.member.post("/api/jobs", json={"kind": "errand.private", "payload": {}})
    with pytest.raises(SourceRefused):
        verbs.allow(house.shelf.app.caller, "/proc")
    made = house.admin.post("/api/users", json={"name": "eve", "role": "instance-admin"})
    assert made.status_code == 403
    found = refusals(house)
    assert [(each["action"], each["subject"]) for each in reversed(found)] == [
        ("job.submit.refused", "source /etc/passwd"),
        ("job.submit.refused", "source plugin:s3://x:***@bucket/a?sig=***"),
        ("job.submit.refused", "job kind 'noop'"),
        ("job.submit.refused", "job kind 'errand.private'"),
        ("source.allow.refused", "/proc"),
        ("user.create.refused", found[0]["subject"]),
    ]
    assert {each["address"] for each in found if each["user"] == "member"} == {"testclient"}
    assert "swordfish" not in str(found)
    assert refusals(house, house.foreigner) == []
    page = dashboard_audit(house)
    assert "job.submit.refused" in page and "/etc/passwd" in page


def dashboard_audit(house: House) -> str:
    with signing.by_token(server.create(house.shelf.app), "admin", user="auditor") as client:
        return str(client.get("/audit").text)


def test_what_the_worker_refuses_is_in_the_audit(each_house: House):
    house = each_house
    folder = share(house)
    grant(house, folder)
    job_id = accepted(ingest(house.member, str(folder)))
    verbs.revoke(house.shelf.app.caller, str(folder))
    house.shelf.drain()
    [entry] = refusals(house)
    assert (entry["action"], entry["user"]) == ("source.refused", "member")
    assert entry["subject"] == f"source {folder}"
    assert f"job {job_id}" in entry["detail"]["reason"]


def test_a_flood_of_refusals_does_not_fill_the_audit_nor_hide_others(each_house: House):
    from quire.store.access.audit import MOST_OF_USER

    house = each_house
    for _ in range(MOST_OF_USER + 5):
        assert ingest(house.member, "/etc/passwd").status_code == 403
    assert len(refusals(house)) == MOST_OF_USER
    assert "not recorded" in refusals(house)[0]["detail"]["more"]
    assert ingest(house.admin, "/etc/passwd").status_code == 403
    assert len(refusals(house)) == MOST_OF_USER + 1
    house.shelf.clock.advance(3601)
    if house.shelf.db.is_embedded:  # the clock of PostgreSQL is its own
        assert ingest(house.member, "/etc/passwd").status_code == 403
        assert len(refusals(house)) == MOST_OF_USER + 2
