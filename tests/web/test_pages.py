"""Every page of the dashboard, empty and full, as each role, without JavaScript."""

from __future__ import annotations

import re
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from quire.control import access, jobs, synonyms
from quire.model.states import JOB_DELETABLE, JOB_MOVES, JobState
from quire.web import assets
from tests import postgres, reranking, signing
from tests.web.conftest import EVIL, Front
from tests.web.reading import HTML, Page

PLACES = ("/", "/jobs", "/documents", "/search", "/search?q=tide", "/workers", "/settings",
          "/tokens", "/users", "/jobs?state=failed", "/jobs?q=nothing", "/documents?q=nothing",
          "/documents?state=indexing", "/corpora", "/audit", "/audit?user=nobody")  # fmt: skip

CORPUS = f"/corpora/{quote(EVIL, safe='')}"


def full(known: dict[str, int]) -> list[str]:
    """The addresses of all pages that show something."""
    ones = [f"/jobs/{known[name]}" for name in ("ingest", "waiting", "stopped", "cancelled")]
    ones += [f"/documents/{known[name]}" for name in ("book", "broken", "evil")]
    ones += [f"/documents/{known['book']}?page=3&q=tide", f"/documents/{known['book']}?page=99"]
    views = ("structure", "text", "tables", "outline")
    ones += [f"/documents/{known[name]}?view={each}" for name in ("book", "evil") for each in views]
    asks = [f"/jobs/{known['stopped']}/delete", f"/documents/{known['evil']}/delete"]
    sets = [CORPUS, f"{CORPUS}?ask=delete", "/corpora/plain", "/synonyms/plain"]
    return [*PLACES, *ones, *asks, *sets, "/jobs?q=tide", "/jobs/999999"]


def faults_of(page: Page) -> list[str]:
    """What is wrong with a page for somebody who cannot see it, or for its security policy."""
    found = list(page.faults)
    found += [f"id {one} twice" for one in {i for i in page.ids if page.ids.count(i) > 1}]
    found += [f"{t} has {n}" for t, n, _ in page.attributes if n == "style" or n.startswith("on")]
    if page.headings.count(1) != 1 or page.headings[0] != 1:
        found.append(f"headings {page.headings}")
    steps = zip(page.headings, page.headings[1:], strict=False)
    found += [f"h{b} after h{a}" for a, b in steps if b > a + 1]
    if not {"main", "nav", "header"} <= set(page.landmarks):
        found.append(f"landmarks {page.landmarks}")
    known = set(page.ids)
    found += [
        f"{name} names {one}, which is not there"
        for _, name, value in page.attributes
        if name in ("aria-labelledby", "list", "for")
        for one in value.split()
        if one not in known
    ]
    return found


@pytest.mark.parametrize("place", PLACES)
def test_a_page_of_an_empty_home_says_what_to_do(front: Front, place: str):
    page = front.visitor().get(place)
    assert faults_of(page) == []
    assert "None" not in page.text


def test_pages_of_a_full_home_are_whole_and_escape_what_people_wrote(each_front: Front):
    visitor, known = each_front.visitor(), each_front.fill()
    access.create_user(each_front.shelf.app.caller, EVIL.replace("/", ""), "viewer")
    for place in full(known):
        page = visitor.get(place, 404 if "999999" in place else 200)
        assert faults_of(page) == [], place
        assert "alert" not in [tag for tag, _, _ in page.attributes]
        assert "<script>alert" not in page.source, place
        assert "<img src=x" not in page.source, place


@pytest.mark.parametrize(
    "place",
    ["/jobs?q={}", "/jobs?kind={}&user={}&platform={}&account={}", "/documents?q={}&corpus={}",
     "/documents?type={}", "/search?q={}", "/?did={}&n={}", "/jobs?cursor={}", "/nothing/{}",
     "/static/{}", "/audit?user={}&action={}&cursor={}", "/corpora/{}", "/corpora?ask={}"],
)  # fmt: skip
def test_what_an_address_carries_is_shown_as_text(front: Front, place: str):
    answer = front.visitor().client.get(place.replace("{}", EVIL), headers=HTML)
    assert answer.status_code in (200, 404)
    assert "<script>alert" not in answer.text
    assert "<img src=x" not in answer.text


def test_a_document_shows_its_page_with_the_words_that_were_searched_marked(front: Front):
    visitor, known = front.visitor(), front.fill()
    found = visitor.get("/search?q=tide+noon&mode=text")
    assert "<mark>tide</mark>" in found.source
    link = next(link for link in found.links if link.startswith(f"/documents/{known['book']}?"))
    page = visitor.get(link.replace("&amp;", "&"))
    assert "<mark>tide</mark>" in page.source
    assert re.search(r'<path class="hit" d="M[\d.]+ ', page.source)
    assert f"/api/documents/{known['book']}/pages/" in page.source


def test_a_search_says_what_it_did_and_why_each_page_is_there(tmp_path: Path):
    for server in reranking.serving():
        front = Front(tmp_path, rerank_url=server.url, rerank_model="cross")
        visitor, _ = front.visitor(), front.fill()
        synonyms.replace(front.shelf.app.caller, "plain", "flood,tide")
        server.script.append((500, {}, b"oops"))
        page = visitor.get("/search?q=flood+nooon&mode=text")
        assert "'noon' was searched for instead" in page.text
        assert "The reranker failed" in page.text
        assert "tide (synonym of flood): text " in page.text
        assert "Reranked" not in page.text
        # An endpoint that failed is left alone for a while.
        asked = len(server.asked)
        assert "The reranker failed" in visitor.get("/search?q=tide&mode=text").text
        assert len(server.asked) == asked
        front.close()


def test_a_reranked_search_says_where_a_page_was_before(tmp_path: Path):
    for server in reranking.serving():
        front = Front(tmp_path, rerank_url=server.url, rerank_model="cross")
        visitor, _ = front.visitor(), front.fill()
        assert "Reranked 0." in visitor.get("/search?q=tide&mode=text").text
        front.close()


def test_text_of_a_document_is_shown_as_text_with_marks_in_it(front: Front):
    known = front.fill()
    page = front.visitor().get(f"/documents/{known['evil']}?q=alert")
    assert "&lt;script&gt;<mark>alert</mark>(" in page.source


@pytest.mark.parametrize("state", JobState)
def test_a_job_has_the_buttons_that_its_state_allows(front: Front, state: JobState):
    job_id = front.shelf.app.submit("ingest", sources=["x"])
    over = {"finished_at": 1.0} if state in JOB_DELETABLE else {}
    front.shelf.db.write(lambda conn, now: _set(conn, job_id, state=state, **over))
    page = front.visitor().get(f"/jobs/{job_id}")
    for verb, move in JOB_MOVES.items():
        wanted = move.by_user and state in move.sources
        assert page.has_form(f"/jobs/{job_id}/{verb}") == wanted, verb
    assert (f"/jobs/{job_id}/delete" in page.links) == (state in JOB_DELETABLE)


def _set(conn, job_id: int, **values) -> None:
    from quire.store.db.schema import queue as tables

    conn.execute(tables.jobs.update().where(tables.jobs.c.id == job_id).values(**values))


def test_one_job_is_stopped_resumed_and_deleted_by_forms(front: Front):
    visitor, shelf = front.visitor(), front.shelf
    job_id = shelf.app.submit("ingest", sources=[str(shelf.folder)])
    place = f"/jobs/{job_id}"
    page = visitor.send(visitor.get(place), f"{place}/stop")
    assert shelf.job(job_id).state == "stopped"
    assert "1 job stopped." in page.text
    visitor.send(page, f"{place}/resume")
    assert shelf.job(job_id).state == "pending"
    visitor.send(visitor.get(place), f"{place}/cancel")
    assert shelf.job(job_id).state == "cancelled"
    asked = visitor.get(f"{place}/delete")
    assert shelf.rows("jobs", id=job_id)
    listed = visitor.send(asked, f"{place}/delete")
    assert "1 job deleted." in listed.text
    assert shelf.rows("jobs", id=job_id) == []
    assert "no such job" in visitor.get(place, 404).text


def test_many_jobs_are_changed_by_selection_and_by_filter(each_front: Front):
    visitor, shelf = each_front.visitor(), each_front.shelf
    ids = [shelf.app.submit("ingest", sources=[str(n)]) for n in range(5)]
    page = visitor.send(visitor.get("/jobs"), "/jobs/bulk", verb="stop", id=ids[:2])
    assert "2 jobs stopped." in page.text
    assert [shelf.job(i).state for i in ids] == ["stopped"] * 2 + ["pending"] * 3
    asked = visitor.send(
        visitor.get("/jobs?state=stopped"), "/jobs/bulk", verb="cancel", scope="filter"
    )
    assert "state stopped" in asked.text
    assert shelf.job(ids[0]).state == "stopped"
    assert "2 jobs cancelled." in visitor.send(asked, "/jobs/bulk").text
    asked = visitor.send(visitor.get("/jobs"), "/jobs/bulk", verb="delete", id=ids[:1])
    assert "Delete 1 job?" in asked.text
    visitor.send(asked, "/jobs/bulk")
    assert [row.id for row in shelf.rows("jobs")] == ids[1:]


def test_nothing_selected_is_said_and_changes_nothing(front: Front):
    visitor, shelf = front.visitor(), front.shelf
    job_id = shelf.app.submit("ingest", sources=["x"])
    page = visitor.send(visitor.get("/jobs"), "/jobs/bulk", verb="stop")
    assert "Select at least one job first. Nothing was changed." in page.text
    assert shelf.job(job_id).state == "pending"


def test_jobs_are_found_by_number_and_by_a_part_of_what_they_carry(each_front: Front):
    visitor, shelf = each_front.visitor(), each_front.shelf
    job_id = shelf.app.submit("ingest", sources=["über/den Fluß 100%"])
    other = shelf.app.submit("ingest", sources=["elsewhere"])
    assert f"ingest {job_id}" in visitor.get(f"/jobs?q={job_id}").text
    for asked in ("über", "FLUSS"[:2], "100%25", "den Flu"):
        links = visitor.get(f"/jobs?q={asked}").links
        assert f"/jobs/{job_id}" in links, asked
        assert f"/jobs/{other}" not in links, asked


def test_lists_go_on_page_by_page(front: Front):
    visitor, shelf = front.visitor(), front.shelf
    ids = [shelf.app.submit("ingest", sources=["x"]) for _ in range(60)]
    first = visitor.get("/jobs?kind=ingest")
    [link] = [link for link in first.links if "cursor=" in link]
    second = visitor.get(link)
    seen = [link for page in (first, second) for link in page.links if link[:6] == "/jobs/"]
    assert seen == [f"/jobs/{i}" for i in reversed(ids)]
    assert "kind=ingest" in link


def test_files_are_uploaded_by_a_plain_form(front: Front):
    visitor, shelf = front.visitor(), front.shelf
    files = [("files", ("a.txt", b"The tide.")), ("files", ("b.txt", b"The quay."))]
    page = visitor.send(visitor.get("/documents"), "/documents", files=files)
    assert str(visitor.answer.url).partition("/jobs/")[2]
    assert {"a.txt", "b.txt"} <= {row.name for row in shelf.rows("documents")}
    assert "a.txt" in page.text


def test_a_document_is_indexed_again_and_deleted_by_forms(front: Front):
    visitor, known = front.visitor(), front.fill()
    place = f"/documents/{known['book']}"
    visitor.send(visitor.get(place), f"{place}/reindex")
    front.shelf.drain()
    page = visitor.get(place)
    assert front.shelf.document("book.pdf").live_generation == 2
    assert "Reused" in page.text
    visitor.send(visitor.get(f"{place}/delete"), f"{place}/delete")
    assert "no such document" in visitor.get(place, 404).text


def test_a_token_is_shown_once_and_revoked(front: Front):
    visitor = front.visitor("member")
    page = visitor.send(visitor.get("/tokens"), "/tokens", name="<b>robot", days="3")
    secret = re.search(r"quire_[\w-]{20,}", page.source)
    assert secret is not None
    again = visitor.get("/tokens")
    assert secret[0] not in again.source
    [form] = [each for each in again.forms if each.action.endswith("/revoke")]
    visitor.send(again, form.action)
    assert "revoked" in visitor.get("/tokens").text


def test_users_are_added_changed_shut_out_and_invited(front: Front):
    visitor = front.visitor()
    page = visitor.send(visitor.get("/users"), "/users", name="grace", role="viewer")
    assert "grace" in page.text
    caller = front.shelf.app.caller
    one = visitor.client.post(
        "/users/role", headers=HTML, data={**_csrf(page), "name": "grace", "role": "member"}
    )
    assert one.status_code == 303
    assert {u["name"]: u["role"] for u in access.list_users(caller)}["grace"] == "member"
    shown = visitor.client.post("/users/link", headers=HTML, data={**_csrf(page), "name": "grace"})
    [link] = re.findall(r"http://localhost(/sign-in/[\w-]+)", shown.text)
    assert "grace" in signing.stranger(front.api).get(link).text
    visitor.client.post("/users/disable", headers=HTML, data={**_csrf(page), "name": "grace"})
    assert [u["name"] for u in access.list_users(caller) if u["disabled_at"]] == ["grace"]


def _csrf(page: Page) -> dict[str, str]:
    return dict(page.form("/users").fields[:1])


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_a_page_shows_only_what_the_role_may_do(front: Front, role: str):
    known = front.fill()
    visitor = front.visitor(role)
    may_write = role == "member"
    for place in (f"/jobs/{known['waiting']}", "/jobs", "/documents", "/corpora", CORPUS):
        posts = [f for f in visitor.get(place).forms if f.method == "post"]
        assert any(f.action != "/sign-out" for f in posts) == may_write, place
    assert "Corpora" in visitor.get("/corpora").text
    assert not any(f.action.startswith("/kinds/") for f in visitor.get("/workers").forms)
    for place in ("/users", "/settings", "/audit"):
        assert "needs the permission admin" in visitor.get(place, 403).text
        assert place not in visitor.get("/").links


def test_what_is_asked_without_the_session_s_csrf_is_refused_with_a_page(front: Front):
    visitor, shelf = front.visitor(), front.shelf
    job_id = shelf.app.submit("ingest", sources=["x"])
    answer = visitor.client.post(f"/jobs/{job_id}/stop", headers=HTML)
    assert answer.status_code == 403
    assert "Reload the page" in Page(answer.text).text
    assert shelf.job(job_id).state == "pending"


def test_a_stranger_is_asked_to_sign_in(front: Front):
    known = front.fill()
    client = signing.stranger(front.api)
    for place in full(known):
        answer = client.get(place, headers=HTML)
        assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in"), place


def test_another_tenant_s_pages_are_not_there(front: Front):
    known = front.fill()
    visitor = front.visitor(tenant="other")
    for place in (f"/jobs/{known['ingest']}", f"/documents/{known['book']}"):
        theirs = visitor.get(place, 404).text
        unknown = visitor.get(re.sub(r"\d+$", "999999", place), 404).text
        assert theirs == unknown.replace("999999", place.rpartition("/")[2])
    assert "No jobs yet" in visitor.get("/").text
    for place in ("/jobs", "/documents", "/search?q=tide&mode=text"):
        assert "book.pdf" not in visitor.get(place).source


def test_a_script_gets_a_problem_where_a_person_gets_a_page(front: Front):
    visitor = front.visitor()
    answer = visitor.client.get("/jobs/77", headers={"Accept": "application/json"})
    assert answer.headers["content-type"] == "application/problem+json"
    assert visitor.client.get("/api/none", headers=HTML).json()["status"] == 404
    assert "There is no page at this address" in visitor.get("/none", 404).text


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", ""])
def test_a_form_leads_nowhere_but_to_this_site(front: Front, to: str):
    visitor, shelf = front.visitor(), front.shelf
    job_id = shelf.app.submit("ingest", sources=["x"])
    page = visitor.get(f"/jobs/{job_id}")
    fields = {**dict(page.form(f"/jobs/{job_id}/stop").fields), "to": to}
    answer = visitor.client.post(f"/jobs/{job_id}/stop", data=fields, headers=HTML)
    assert answer.status_code == 303
    assert re.fullmatch(r"/(jobs/\d+)?\?did=stop&n=1", answer.headers["location"])


def test_a_page_says_that_the_database_is_not_available_and_tries_again(
    pg_server: postgres.Server, tmp_path
):
    front = Front(tmp_path, pg_server.url)
    visitor = front.visitor()
    visitor.get("/jobs")
    pg_server.stop("immediate")
    page = visitor.get("/jobs", 503)
    assert "Database unavailable" in page.text
    assert ("meta", "http-equiv", "refresh") in page.attributes
    assert int(visitor.answer.headers["retry-after"]) > 0
    pg_server.start()
    visitor.get("/jobs")
    front.close()


def test_secrets_among_the_settings_are_masked(tmp_path):
    front = Front(tmp_path, embed_api_key="sk-hidden", token="quire_hidden")
    page = front.visitor().get("/settings")
    assert "hidden" not in page.text
    assert "***" in page.text
    front.close()


def test_files_of_the_page_are_kept_by_their_digest(front: Front):
    visitor = front.visitor()
    page = visitor.get("/")
    named = [v for _, n, v in page.attributes if n in ("src", "href") and v[:8] == "/static/"]
    assert len(named) >= 4
    for place in named:
        answer = visitor.client.get(place)
        assert "immutable" in answer.headers["cache-control"]
        again = visitor.client.get(place, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    bare = visitor.client.get("/static/style.css")
    assert bare.headers["cache-control"] == "no-cache"
    assert visitor.client.get("/static/../pages.py").status_code == 404


def test_a_page_weighs_little_and_is_made_quickly(front: Front):
    visitor, known = front.visitor(), front.fill()
    jobs.submit(front.shelf.app.caller, [_wish(n) for n in range(2000)])
    weight = sum(len(each.body) for each in assets.assets().values())
    for place in full(known):
        visitor.get(place, 404 if "999999" in place else 200)
        began = time.process_time()
        page = visitor.get(place, 404 if "999999" in place else 200)
        took = time.process_time() - began
        assert len(page.source.encode()) + weight < 150_000, place
        # Processor time, as other tests keep the machine busy; a scan of all rows takes longer.
        assert took < 1.0, (place, took)


def _wish(number: int):
    from quire.model.records import Submission

    return Submission("ingest", {"sources": [f"folder {number}"]})
