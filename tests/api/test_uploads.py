"""Uploads: raw and as forms, whole or cut off, empty, too large, twice, by real sockets."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path
from typing import Any

import pytest

from quire.api import upload_slots
from quire.api.routes import uploads
from tests.api.house import House
from tests.waiting import until


def send(house: House, content: Any, **params: Any) -> Any:
    headers = params.pop("headers", {})
    return house.member.post("/api/documents", params=params, content=content, headers=headers)


def blobs(house: House) -> set[str]:
    root = house.folder / "home" / "blobs"
    found = [path for path in root.rglob("*") if path.is_file() and path.parent.name != "parts"]
    return {path.parent.name + path.name for path in found}


def test_an_upload_becomes_a_document_of_an_ingest_job(each_house: House):
    house = each_house
    house.plain_corpus()
    answer = send(house, b"slate and wool", name="a.txt", corpus="plain")
    assert answer.status_code == 201
    made = answer.json()
    assert answer.headers["location"] == f"/api/jobs/{made['id']}"
    [document] = made["documents"]
    assert (document["name"], document["state"]) == ("a.txt", "queued")
    assert blobs(house) == {hashlib.sha256(b"slate and wool").hexdigest()}
    house.shelf.assert_healthy()
    house.shelf.drain()
    job = house.member.get(f"/api/jobs/{made['id']}").json()
    assert (job["kind"], job["state"], job["files"]) == ("ingest", "completed", {"success": 1})
    shown = house.member.get(f"/api/documents/{document['id']}").json()
    assert (shown["state"], shown["job_id"]) == ("success", made["id"])
    found = house.member.get("/api/search", params={"q": "wool", "mode": "text"}).json()["items"]
    assert [hit["document_id"] for hit in found] == [document["id"]]
    assert house.parts() == []


def test_a_form_brings_several_files(each_house: House):
    house = each_house
    house.plain_corpus()
    files = [("files", (f"{n}.txt", f"text {n}".encode())) for n in range(3)]
    files.append(("files", ("large.txt", b"barley " * 600_000)))
    answer = house.member.post("/api/documents", files=files, data={"corpus": "plain"})
    assert answer.status_code == 201, answer.text
    names = [each["name"] for each in answer.json()["documents"]]
    assert names == ["0.txt", "1.txt", "2.txt", "large.txt"]
    house.shelf.drain()
    listed = house.member.get(f"/api/jobs/{answer.json()['id']}/files").json()["items"]
    assert [each["state"] for each in listed] == ["success"] * 4
    large = house.member.get(f"/api/documents/{listed[3]['document_id']}/file")
    assert large.content == b"barley " * 600_000


def test_the_same_file_again_is_the_same_document_and_is_not_read_again(house: House):
    house.plain_corpus()
    first = send(house, b"slate", name="a.txt", corpus="plain").json()
    house.shelf.drain()
    again = send(house, b"slate", name="a.txt", corpus="plain").json()
    assert again["documents"] == [{**first["documents"][0], "state": "success"}]
    house.shelf.drain()
    job = house.member.get(f"/api/jobs/{again['id']}").json()
    assert (job["state"], job["files"]) == ("completed", {})
    renamed = send(house, b"slate", name="b.txt", corpus="plain").json()
    house.shelf.drain()
    assert renamed["documents"][0]["id"] != first["documents"][0]["id"]
    whole = house.member.get(f"/api/documents/{renamed['documents'][0]['id']}").json()
    assert whole["reused"]["whole"] is True


def test_a_key_makes_an_upload_only_once(house: House):
    key = {"Idempotency-Key": "u1"}
    first = send(house, b"slate", name="a.txt", headers=key)
    again = send(house, b"slate", name="a.txt", headers=key)
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert again.json()["documents"] == first.json()["documents"]
    assert send(house, b"other", name="a.txt", headers=key).status_code == 409
    assert len(house.member.get("/api/jobs").json()["items"]) == 1
    house.member.post("/api/jobs/bulk", json={"verb": "cancel"})


def test_an_upload_waits_where_its_owner_has_another_job_first(tmp_path: Path):
    house = House(tmp_path, user_policy="queue")
    house.plain_corpus()
    first = house.submit(house.member)
    made = send(house, b"slate", name="a.txt", corpus="plain").json()
    said = house.member.get(f"/api/jobs/{made['id']}/explain").json()
    assert said["code"] == "user_busy"
    house.shelf.drain()
    states = [house.member.get(f"/api/jobs/{n}").json()["state"] for n in (first, made["id"])]
    assert states == ["completed", "completed"]
    house.shelf.assert_healthy()
    house.close()


def test_a_stopped_upload_goes_on_and_a_cancelled_one_frees_its_document(house: House):
    house.plain_corpus()
    made = send(house, b"slate", name="a.txt", corpus="plain").json()
    place, document = f"/api/jobs/{made['id']}", f"/api/documents/{made['documents'][0]['id']}"
    assert house.member.post(f"{place}/stop").status_code == 200
    assert house.shelf.drain() == []
    house.member.post(f"{place}/resume")
    house.shelf.drain()
    assert house.member.get(document).json()["state"] == "success"
    other = send(house, b"wool", name="b.txt", corpus="plain").json()
    house.member.post(f"/api/jobs/{other['id']}/cancel")
    left = house.member.get(f"/api/documents/{other['documents'][0]['id']}").json()
    assert left["state"] == "not_indexed"


def test_what_is_not_a_file_is_refused_and_leaves_nothing(house: House):
    form = {"Content-Type": "multipart/form-data; boundary=edge"}
    disposition = b'--edge\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n'
    cases: list[tuple[bytes, dict[str, str], dict[str, str]]] = [
        (b"", {"name": "a.txt"}, {}),
        (b"x", {}, {}),
        (b"x", {"name": ""}, {}),
        (b"x", {"name": "a.txt", "corpus": "\x07"}, {}),
        (b"", {}, form),
        (b"--edge--\r\n", {}, form),
        (b"no form at all", {}, form),
        (disposition + b"\r\ncut in the mid", {}, form),
        (disposition + b"\r\n\r\n--edge--\r\n", {}, form),
        (b"--edge\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n--edge--\r\n", {}, form),
        (b"x", {}, {"Content-Type": "multipart/form-data"}),
        (disposition.replace(b"a.txt", b"") + b"\r\n\r\n--edge--\r\n", {}, form),
        (disposition.replace(b"files", b"nix") + b"\r\nx\r\n--edge--\r\n", {}, form),
    ]
    for content, params, headers in cases:
        answer = send(house, content, headers=headers, **params)
        assert answer.status_code == 422, (content[:60], answer.text)
        assert answer.json()["detail"]
    assert house.member.get("/api/documents").json()["items"] == []
    assert house.member.get("/api/jobs").json()["items"] == []
    assert (house.parts(), blobs(house)) == ([], set())


@pytest.mark.parametrize("is_told", [True, False])
def test_a_file_above_the_limit_is_refused_and_leaves_nothing(tmp_path: Path, is_told: bool):
    house = House(tmp_path, fetch_max_bytes=3_000_000)
    content: Any = b"x" * 3_000_001 if is_told else iter([b"x" * 1_000_000] * 4)
    answer = send(house, content, name="a.txt")
    assert answer.status_code == 413
    assert "QUIRE_FETCH_MAX_BYTES" in answer.text
    in_form = house.member.post("/api/documents", files=[("files", ("a", b"x" * 3_000_001))])
    assert in_form.status_code == 413
    assert (house.parts(), blobs(house)) == ([], set())
    assert send(house, b"x" * 3_000_000, name="a.txt").status_code == 201
    house.member.post("/api/jobs/bulk", json={"verb": "cancel"})
    house.close()


def _head(house: House, length: int, target: str, kind: str) -> bytes:
    return (
        f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        f"Authorization: {house.member.headers['authorization']}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


@pytest.mark.parametrize("kind", ["application/octet-stream", "multipart/form-data; boundary=e"])
def test_an_upload_that_is_cut_off_leaves_nothing(house: House, kind: str):
    begin = b'--e\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\n'
    with house.served() as port:
        with socket.create_connection(("127.0.0.1", port)) as sender:
            sender.sendall(_head(house, 50_000_000, "/api/documents?name=a.txt", kind))
            sender.sendall((begin if "form" in kind else b"") + b"x" * 5_000_000)
            until(house.has_part, what="no part")
        until(lambda: house.parts() == [], what=house.parts)
    assert house.member.get("/api/documents").json()["items"] == []
    assert house.member.get("/api/jobs").json()["items"] == []
    assert blobs(house) == set()


def test_an_upload_that_stands_still_is_given_up(house: House, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(uploads, "IDLE_SECONDS", 0.2)
    with house.served() as port, socket.create_connection(("127.0.0.1", port)) as sender:
        raw = "application/octet-stream"
        sender.sendall(_head(house, 50_000_000, "/api/documents?name=a.txt", raw) + b"x" * 10)
        sender.settimeout(30)
        assert b" 422 " in sender.recv(1000)
    until(lambda: house.parts() == [], what=house.parts)


def test_many_uploads_at_once_do_not_hold_up_other_requests(house: House):
    with house.served() as port:
        senders = []
        for _ in range(upload_slots.IN_ALL + 2):
            sender = socket.create_connection(("127.0.0.1", port))
            raw = "application/octet-stream"
            sender.sendall(_head(house, 1000, "/api/documents?name=a.txt", raw) + b"x")
            senders.append(sender)
        with socket.create_connection(("127.0.0.1", port)) as asking:
            asking.settimeout(30)
            asking.sendall(_head(house, 0, "/api/jobs", "x").replace(b"POST", b"GET"))
            assert b" 200 " in asking.recv(1000)
        for sender in senders:
            sender.close()
        until(lambda: house.parts() == [], what=house.parts)
