"""Documents by the API: lists, pages, pictures, original bytes; hostile names and other tenants."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import anyio
import httpx
import psutil
import pytest
from PIL import Image

from quire.api import page_renderer
from quire.api.page_renderer import DrawingQueue, PageRenderer
from quire.control import document_structure, documents
from quire.demo import samples
from quire.errors import TooLarge, Transient, Unreadable
from tests.api.house import House, sailing_book
from tests.waiting import until

PARTS = (
    "", "/explain", "/generations", "/pages", "/pages/1", "/pages/1/image", "/tokens", "/chunks",
    "/file", "/thumbnail",
)  # fmt: skip


def get(house: House, document_id: int, part: str = "", **params: Any) -> Any:
    answer = house.viewer.get(f"/api/documents/{document_id}{part}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_document_is_listed_shown_and_read(each_house: House):
    house = each_house
    document_id = house.upload("book.pdf", sailing_book())
    [line] = house.viewer.get("/api/documents").json()["items"]
    assert (line["id"], line["name"], line["pages"]) == (document_id, "book.pdf", 3)
    whole = get(house, document_id)
    assert (whole["state"], whole["corpora"], whole["page_errors"]) == ("success", ["plain"], [])
    assert [each["state"] for each in whole["generations"]] == ["live"]
    assert get(house, document_id, "/generations")["items"] == whole["generations"]
    assert get(house, document_id, "/explain")["code"] == "success"
    page = get(house, document_id, "/pages/2")
    assert page["text"] == "Copper and barley lie in the harbour."
    assert [word["text"] for word in page["words"]] == page["text"].split()
    assert all(0 <= word["x"] <= page["width"] for word in page["words"])
    assert house.viewer.get(f"/api/documents/{document_id}/pages/4").status_code == 404


def test_pages_and_chunks_are_paged(house: House):
    document_id = house.upload("book.pdf", sailing_book())
    for part, key in (("/pages", "page"), ("/chunks", "page")):
        met, cursor = [], None
        while True:
            params = {"limit": 2, **({"cursor": cursor} if cursor else {})}
            page = get(house, document_id, part, **params)
            met += [each[key] for each in page["items"]]
            if (cursor := page["next"]) is None:
                break
        assert met == [1, 2, 3], part
    bad = house.viewer.get(f"/api/documents/{document_id}/chunks", params={"cursor": "x"})
    assert bad.status_code == 422


def test_tokens_come_in_both_forms(house: House):
    document_id = house.upload("book.pdf", sailing_book())
    plain, compact = (get(house, document_id, "/tokens", version=n) for n in (1, 2))
    assert [len(each["tokens"]) for each in plain] == [len(each["t"]) for each in compact["p"]]
    refused = house.viewer.get(f"/api/documents/{document_id}/tokens", params={"version": 3})
    assert refused.status_code == 422


def test_filters_narrow_the_list_of_documents(house: House):
    book = house.upload("book.pdf", sailing_book())
    broken = house.upload("broken.pdf", sailing_book()[:300])
    for params, expected in [
        ({"state": "failed"}, [broken]),
        ({"state": "success"}, [book]),
        ({"corpus": "plain"}, [broken, book]),
        ({"name": "book.pdf"}, [book]),
        ({"source": "upload:"}, [broken, book]),
        ({"source": "elsewhere"}, []),
    ]:
        found = house.viewer.get("/api/documents", params=params).json()["items"]
        assert [each["id"] for each in found] == expected, params
    assert house.viewer.get("/api/documents", params={"corpus": "none"}).status_code == 404
    assert house.viewer.get("/api/documents", params={"state": "lost"}).status_code == 422


def test_a_page_is_drawn_as_wide_as_asked(house: House):
    document_id = house.upload("book.pdf", sailing_book())
    place = f"/api/documents/{document_id}/pages/1/image"
    answer = house.viewer.get(place, params={"width": 300})
    assert answer.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(answer.content)).width == 300
    tag = {"If-None-Match": answer.headers["etag"]}
    assert house.viewer.get(place, params={"width": 300}, headers=tag).status_code == 304
    assert house.viewer.get(place, params={"width": 301}, headers=tag).status_code == 200
    for wrong in (0, 15, 2401, 100_000):
        assert house.viewer.get(place, params={"width": wrong}).status_code == 422
    far = house.viewer.get(f"/api/documents/{document_id}/pages/9/image")
    assert far.status_code == 404


def test_a_picture_is_drawn_and_a_text_is_not(house: House):
    written = io.BytesIO()
    Image.new("RGB", (640, 480), "white").save(written, "PNG")
    picture = house.upload("photo.png", written.getvalue())
    answer = house.viewer.get(f"/api/documents/{picture}/pages/1/image", params={"width": 320})
    assert Image.open(io.BytesIO(answer.content)).size == (320, 240)
    small = house.viewer.get(f"/api/documents/{picture}/thumbnail")
    assert small.headers["content-type"] == "image/jpeg"
    text = house.upload("a.txt", b"slate")
    for part in ("/pages/1/image", "/thumbnail"):
        assert house.viewer.get(f"/api/documents/{text}{part}").status_code == 404


@pytest.fixture
def renderer() -> Iterator[PageRenderer]:
    renderer = PageRenderer()
    yield renderer
    renderer.close()


def test_a_page_that_takes_too_long_or_kills_its_drawer_leaves_the_next_one_alone(
    house: House, renderer: PageRenderer
):
    path = house.folder / "book.pdf"
    path.write_bytes(sailing_book())
    draw = functools.partial(renderer.draw, tenant="acme", scratch=house.folder / "scratch")
    renderer.seconds = 0.0
    with pytest.raises(Unreadable, match="longer than"):
        draw(path, "application/pdf", 1, 100)
    renderer.seconds = 60.0
    assert draw(path, "application/pdf", 1, 100).startswith(b"\x89PNG")
    box = renderer._sandbox
    assert box is not None
    os.kill(box.pid, signal.SIGSTOP)  # so that it is drawing when it is killed
    with ThreadPoolExecutor(1) as pool:
        drawn = pool.submit(draw, path, "application/pdf", 1, 100)
        until(lambda: box._is_busy)
        os.kill(box.pid, signal.SIGKILL)
        with pytest.raises(Unreadable, match="crashed"):
            drawn.result()
    assert draw(path, "application/pdf", 2, 100).startswith(b"\x89PNG")
    with pytest.raises(Unreadable, match="3 pages"):
        draw(path, "application/pdf", 9, 100)


def test_a_drawer_that_died_while_idle_is_replaced(house: House, renderer: PageRenderer):
    path = house.folder / "book.pdf"
    path.write_bytes(sailing_book())
    draw = functools.partial(renderer.draw, tenant="acme", scratch=house.folder / "scratch")
    assert draw(path, "application/pdf", 1, 100).startswith(b"\x89PNG")
    box = renderer._sandbox
    assert box is not None
    first = box.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(first))
    assert draw(path, "application/pdf", 1, 100).startswith(b"\x89PNG")
    assert box.pid != first


def test_an_image_too_large_to_be_shown_is_refused_and_a_large_one_is_reduced_first(house: House):
    for side, mode, status in ((7_000, "L", 422), (5_000, "LA", 200), (5_000, "P", 200)):
        written = io.BytesIO()
        Image.new(mode, (side, side)).save(written, "PNG")
        number = house.upload(f"{mode}{side}.png", written.getvalue())
        answer = house.viewer.get(f"/api/documents/{number}/pages/1/image", params={"width": 300})
        assert answer.status_code == status, answer.text
        if status == 200:
            assert Image.open(io.BytesIO(answer.content)).size == (300, 300)
        else:
            assert "40,000,000" in answer.text


def test_one_tenant_has_two_places_in_the_queue_of_pictures_and_all_have_five():
    async def run() -> None:
        queue = DrawingQueue()
        with contextlib.ExitStack() as stack:
            for tenant in ("acme", "acme", "globex", "globex"):
                stack.enter_context(queue.place(tenant))
            with pytest.raises(Transient) as refused, queue.place("acme"):
                pass
            assert refused.value.retry_after
            stack.enter_context(queue.place("initech"))
            with pytest.raises(Transient), queue.place("hooli"):
                pass
        with queue.place("acme"):
            pass

    anyio.run(run)


def test_requests_that_wait_for_a_picture_hold_up_no_other_route(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    document_id = house.upload("book.pdf", sailing_book())
    place = f"/api/documents/{document_id}/pages/1/image"
    assert house.viewer.get(place).status_code == 200
    sandbox = page_renderer.shared._sandbox
    assert sandbox is not None
    box = psutil.Process(sandbox.pid)
    monkeypatch.setattr(page_renderer.shared, "seconds", 60.0)
    headers = dict(house.viewer.headers)
    with house.served() as port, ThreadPoolExecutor(8) as crowd:
        http = functools.partial(httpx.get, headers=headers, timeout=90)
        url = f"http://127.0.0.1:{port}"
        box.suspend()  # in place of a slow page
        try:
            asked = [crowd.submit(http, f"{url}{place}?width={100 + n}") for n in range(8)]
            refused = [one.result() for one in itertools.islice(as_completed(asked, 60), 6)]
            assert {answer.status_code for answer in refused} == {503}
            assert all(answer.headers["retry-after"] for answer in refused)
            assert http(f"{url}/api/status").status_code == 200
        finally:
            box.resume()
        assert sorted(one.result().status_code for one in asked) == [200, 200, *[503] * 6]


def test_the_original_comes_back_whole_and_in_ranges(house: House):
    content = sailing_book()
    document_id = house.upload("book.pdf", content)
    place = f"/api/documents/{document_id}/file"
    whole = house.viewer.get(place)
    assert whole.content == content
    assert whole.headers["accept-ranges"] == "bytes"
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert whole.headers["content-security-policy"].startswith("sandbox;")
    tag = whole.headers["etag"]
    for span, expected in [("0-9", content[:10]), ("-5", content[-5:]), ("900-", content[900:])]:
        part = house.viewer.get(place, headers={"Range": f"bytes={span}", "If-Range": tag})
        assert (part.status_code, part.content) == (206, expected)
    stale = house.viewer.get(place, headers={"Range": "bytes=0-9", "If-Range": '"old"'})
    assert (stale.status_code, stale.content) == (200, content)
    beyond = house.viewer.get(place, headers={"Range": "bytes=999999-"})
    assert (beyond.status_code, beyond.json()["status"]) == (416, 416)
    assert beyond.headers["content-range"].endswith(f"/{len(content)}")
    wrong = house.viewer.get(place, headers={"Range": "pages=1"})
    assert (wrong.status_code, wrong.headers["content-type"]) == (400, "application/problem+json")
    assert "bytes=FIRST-LAST" in wrong.json()["remedy"]
    assert house.viewer.get(place, headers={"If-None-Match": tag}).status_code == 304


@pytest.mark.parametrize(
    ("name", "content", "shown"),
    [
        ("a.pdf", sailing_book(), "inline"),
        ("a.txt", b"<script>alert(1)</script>", "inline"),
        ("a.html", b"<html><script>alert(1)</script></html>", "attachment"),
        ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>", "inline"),
        ("a.docx", samples.docx(["slate"]), "attachment"),
    ],
)
def test_only_what_can_run_nothing_is_shown_in_a_browser(
    house: House, name: str, content: bytes, shown: str
):
    document_id = house.upload(name, content)
    answer = house.viewer.get(f"/api/documents/{document_id}/file")
    assert answer.headers["content-disposition"].startswith(shown + ";")
    kind = answer.headers["content-type"].partition(";")[0]
    assert kind in ("application/pdf", "text/plain", "application/octet-stream")
    saved = house.viewer.get(f"/api/documents/{document_id}/file", params={"download": True})
    assert saved.headers["content-disposition"].startswith("attachment;")


NAMES = {
    "../../etc/passwd": ".._.._etc_passwd",
    "..\\..\\boot.ini": ".._.._boot.ini",
    "/absolute.txt": "_absolute.txt",
    "..": "unnamed",
    "a\r\nSet-Cookie: x=1.txt": "a��Set-Cookie: x=1.txt",
    'quote".txt': 'quote".txt',
    "nul\0.txt": "nul�.txt",
    "<script>alert(1)</script>.txt": "<script>alert(1)<_script>.txt",
    "naïve – ü.txt": "naïve – ü.txt",
    "turn‮txt.exe": "turn�txt.exe",
    "x" * 300 + ".txt": "x" * 251 + ".txt",
    "; filename=evil.txt": "; filename=evil.txt",
}


def test_hostile_names_are_made_harmless(each_house: House):
    house = each_house
    for number, (name, stored) in enumerate(NAMES.items()):
        document_id = house.upload(name, f"slate {number}".encode())
        assert get(house, document_id)["name"] == stored
        answer = house.viewer.get(f"/api/documents/{document_id}/file")
        told = answer.headers["content-disposition"]
        assert told.isascii() and "\r" not in told and "set-cookie" not in answer.headers
        assert told.count(";") == 1, told
    assert not (house.folder.parent / "etc").exists()


def test_a_document_is_indexed_again_and_deleted(house: House):
    document_id = house.upload("a.txt", b"slate and wool")
    made = house.member.post(
        f"/api/documents/{document_id}/reindex", json={"settings": {"chunk_tokens": 100}}
    )
    assert made.status_code == 201
    busy = house.member.post(f"/api/documents/{document_id}/reindex")
    assert busy.status_code == 409
    assert house.member.delete(f"/api/documents/{document_id}").status_code == 409
    house.shelf.drain()
    assert get(house, document_id)["live_generation"] == 2
    wrong = {"settings": {"colour": 1}}
    refused = house.member.post(f"/api/documents/{document_id}/reindex", json=wrong)
    assert refused.status_code == 422
    assert house.member.delete(f"/api/documents/{document_id}").status_code == 204
    assert house.viewer.get(f"/api/documents/{document_id}").status_code == 404


def test_a_document_of_another_tenant_is_not_there(each_house: House):
    house = each_house
    theirs = house.upload("secret.pdf", sailing_book(), house.foreigner)
    assert house.admin.get("/api/documents").json()["items"] == []
    for part in PARTS:
        unknown = house.admin.get(f"/api/documents/999{part}")
        answer = house.admin.get(f"/api/documents/{theirs}{part}")
        assert (answer.status_code, unknown.status_code) == (404, 404), part
        assert answer.text.replace(f"document {theirs}", "N") == unknown.text.replace(
            "document 999", "N"
        )
    assert house.admin.delete(f"/api/documents/{theirs}").status_code == 404
    assert house.admin.post(f"/api/documents/{theirs}/reindex").status_code == 404
    found = house.admin.get("/api/search", params={"q": "harbour", "mode": "text"}).json()
    assert found["items"] == []
    aimed: dict[str, Any] = {"q": "harbour", "mode": "text", "document": theirs}
    assert house.admin.get("/api/search", params=aimed).json()["items"] == []
    assert house.admin.get("/api/corpora").json()["items"] == []
    assert house.admin.get("/api/corpora/plain").status_code == 404
    assert house.admin.patch("/api/corpora/plain", json={"settings": {}}).status_code in (404, 422)
    assert house.admin.delete("/api/corpora/plain").status_code == 404
    counts = house.admin.get("/api/status").json()["documents"]
    assert sum(counts.values()) == 0
    assert house.foreigner.get("/api/status").json()["documents"]["success"] == 1


def test_the_same_bytes_in_two_tenants_are_two_documents(house: House):
    mine = house.upload("a.txt", b"slate")
    theirs = house.upload("a.txt", b"slate", house.foreigner)
    assert mine != theirs
    assert house.foreigner.get(f"/api/documents/{theirs}").json()["reused"]["whole"] is False


STRUCTURE = ("/pages/1/blocks", "/outline", "/tables", "/markdown")


def test_the_structure_of_a_page_as_long_as_a_library_is_refused_and_its_text_is_there(
    house: House,
):
    text = b"a b c d e f g h i j k l m n o p\n"
    for size, expected in ((document_structure.MOST_CHARS, 200), (len(text) * 70_000, 413)):
        whole = (text * (size // len(text) + 1))[:size]
        document_id = house.upload(f"{size}.txt", whole)
        assert house.viewer.get(f"/api/documents/{document_id}/pages/1").status_code == 200
        for part in STRUCTURE if expected == 413 else STRUCTURE[:1]:
            answer = house.viewer.get(f"/api/documents/{document_id}{part}")
            assert answer.status_code == expected, answer.text[:500]
            assert expected == 200 or "2,000,000" in answer.json()["remedy"]


def test_a_table_of_millions_of_empty_cells_is_a_short_answer(house: House):
    rows = "<tr><td>x</td></tr>" * 1990
    cells = "<tr><td>a</td><td>b</td></tr><tr><td>c</td><td rowspan=1990 colspan=1990>d</td></tr>"
    page = f"<h1>T</h1><table>{cells}{rows}</table>" * 3
    document_id = house.upload("wide.html", page.encode())
    first = house.viewer.get(f"/api/documents/{document_id}/tables", params={"limit": 1})
    [table, *_] = first.json()["items"]
    assert (table["is_cut"], table["rows"] > len(table["grid"])) == (True, True)
    assert len(table["grid"]) * table["columns"] <= document_structure.MOST_CELLS
    for part in ("/pages/1/blocks", "/tables"):
        answer = house.viewer.get(f"/api/documents/{document_id}{part}")
        assert (answer.status_code, len(answer.content) < 1 << 20) == (200, True)


def test_an_answer_about_a_whole_document_has_an_end(house: House):
    document_id = house.upload("book.pdf", sailing_book())
    caller = house.shelf.app.caller
    words = sum(len(page["tokens"]) for page in documents.tokens(caller, document_id, 1))
    length = len(document_structure.as_markdown(caller, document_id))
    documents.tokens(caller, document_id, 1, most=words)
    document_structure.as_markdown(caller, document_id, most=length)
    with pytest.raises(TooLarge, match="more than"):
        documents.tokens(caller, document_id, 2, most=words - 1)
    with pytest.raises(TooLarge, match="more than"):
        document_structure.as_markdown(caller, document_id, most=length // 2)
