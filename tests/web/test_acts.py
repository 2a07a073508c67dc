"""Corpora, priorities, pauses and the audit, by pages and forms without JavaScript."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quire.control import access, corpora, jobs
from quire.store.queue import kinds
from tests.web.conftest import Front


def test_a_corpus_is_created_changed_and_deleted_by_forms(each_front: Front):
    visitor, caller = each_front.visitor("member"), each_front.shelf.app.caller
    page = visitor.send(visitor.get("/corpora"), "/corpora", name="letters")
    assert "1 corpus created." in page.text
    place = "/corpora/letters"
    asked = visitor.send(page, place, chunk_tokens="200", ocr="never")
    assert "chunk_tokens from 352 to 200; ocr from auto to never" in asked.text
    assert "change at their next ingest" in asked.text
    assert "their pages are parsed, chunked and embedded again" in asked.text
    assert corpora.differing(corpora.shown(caller, "letters")["settings"]) == {}
    page = visitor.send(asked, place)
    assert "1 corpus changed." in page.text
    changed = {"chunk_tokens": 200, "ocr": "never"}
    assert corpora.differing(corpora.shown(caller, "letters")["settings"]) == changed
    listed = visitor.get("/corpora")
    assert "chunk_tokens 200, ocr never" in listed.text
    assert "/documents?corpus=letters" in listed.links
    visitor.send(visitor.get(f"{place}?ask=delete"), place)
    assert corpora.listed(caller) == []
    assert "no such corpus" in visitor.get(place, 404).text


def test_synonyms_are_written_chosen_and_removed_by_a_form(each_front: Front):
    corpora.create(each_front.shelf.app.caller, "a/b", {})
    visitor, place = each_front.visitor("member"), "/synonyms/a%2Fb"
    assert "/synonyms/a/b" in visitor.get("/corpora/a%2Fb").links
    page = visitor.send(visitor.get(place), place, csv="sales,turnover\r\nfcf,<free> cash flow\r\n")
    assert "2 rows" in page.text
    assert "fcf,&lt;free&gt; cash flow" in page.source
    assert "line 1 has 1 phrases" in visitor.send(page, place, 422, csv="alone").text
    page = visitor.send(page, place, starter="finance")
    assert "capex,capital expenditure" in page.text
    assert "0 rows" in visitor.send(page, place, csv=" ").text
    assert not each_front.visitor("viewer").get(place).has_form(place)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "no setting differs"),
        ({"chunk_tokens": "9"}, "is not between 16 and 8192"),
        ({"chunk_tokens": "many"}, "is not a whole number"),
        ({"ocr": "maybe"}, "is not auto, always or never"),
        ({"parser": "nobody"}, "nobody"),
        ({"delimiter": "x" * 2000}, "at most 1,000"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_a_page(front: Front, given, said: str):
    corpora.create(front.shelf.app.caller, "letters", {})
    visitor = front.visitor()
    page = visitor.send(visitor.get("/corpora/letters"), "/corpora/letters", 422, **given)
    assert said in page.text
    assert corpora.listed(front.shelf.app.caller)[0]["settings"] == {}


def test_a_corpus_that_exists_or_has_a_name_that_cannot_be_is_refused(front: Front):
    visitor = front.visitor()
    page = visitor.get("/corpora")
    visitor.send(page, "/corpora", name="letters")
    assert "already exists" in visitor.send(page, "/corpora", 409, name="letters").text
    assert "printable" in visitor.send(page, "/corpora", 422, name="a\x07b").text


@pytest.mark.parametrize("delimiter", ["\n\n", "\\n", "a\tb\r\n", " "])
def test_a_delimiter_of_any_characters_goes_through_a_form_unchanged(front: Front, delimiter: str):
    caller = front.shelf.app.caller
    corpora.create(caller, "letters", {"delimiter": delimiter})
    visitor = front.visitor()
    asked = visitor.send(visitor.get("/corpora/letters"), "/corpora/letters", page_size="9")
    assert "delimiter from" not in asked.text
    visitor.send(visitor.get("/corpora/letters"), "/corpora/letters", delimiter="x", sure="yes")
    shown = visitor.get("/corpora/letters")
    written = delimiter.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    visitor.send(shown, "/corpora/letters", delimiter=written, sure="yes")
    assert corpora.shown(caller, "letters")["pipeline"]["delimiter"] == delimiter


@pytest.mark.parametrize("name", ["a/b", "a/delete", "50% ?#&", "Straße"])
def test_a_corpus_of_any_name_has_a_page(front: Front, name: str):
    visitor = front.visitor()
    page = visitor.send(visitor.get("/corpora"), "/corpora", name=name)
    assert name in page.text
    [link] = [link for link in visitor.get("/corpora").links if link.startswith("/corpora/")]
    assert f"Delete corpus {name}?" in visitor.get(f"{link}?ask=delete").text


def test_another_tenant_s_corpus_is_not_there(front: Front):
    corpora.create(front.shelf.app.caller, "letters", {})
    visitor = front.visitor(tenant="other")
    assert "letters" not in visitor.get("/corpora").text
    theirs = visitor.get("/corpora/letters", 404).text
    assert theirs == visitor.get("/corpora/unknown", 404).text.replace("unknown", "letters")
    form = visitor.get("/corpora").form("/corpora")
    for fields in ({"verb": "delete"}, {"page_size": "9", "sure": "yes"}):
        sent = dict(form.fields[:1]) | fields
        assert visitor.client.post("/corpora/letters", data=sent).status_code == 404
    assert corpora.listed(front.shelf.app.caller)[0]["settings"] == {}


@pytest.mark.parametrize(("before", "can"), [("", True), ("stop", True), ("cancel", False)])
def test_a_job_gets_another_priority_where_its_state_allows_it(
    front: Front, before: str, can: bool
):
    visitor, shelf = front.visitor("member"), front.shelf
    job_id = shelf.app.submit("ingest", sources=["x"])
    if before:
        jobs.one(shelf.app.caller, before, job_id)
    place = f"/jobs/{job_id}"
    page = visitor.get(place)
    assert page.has_form(f"{place}/priority") == can
    if can:
        page = visitor.send(page, f"{place}/priority", priority="2")
        assert "1 job reprioritised." in page.text
        assert (
            "not a whole number from 1"
            in visitor.send(page, f"{place}/priority", 422, priority="11").text
        )
    assert shelf.job(job_id).priority == (2 if can else 5)


def test_a_kind_is_paused_and_let_go_on_by_an_admin(each_front: Front):
    visitor, shelf = each_front.visitor(), each_front.shelf
    job_id = shelf.app.submit("ingest", sources=[str(shelf.folder)])
    shelf.db.write(lambda conn, now: kinds.announce(conn, [shelf.app.caller.known()["ingest"]]))
    page = visitor.send(visitor.get("/workers"), "/kinds/ingest/pause")
    assert "1 kind paused." in page.text
    shelf.drain()
    assert shelf.job(job_id).state == "pending"
    page = visitor.send(page, "/kinds/ingest/unpause")
    assert "1 kind unpaused." in page.text
    shelf.drain()
    assert shelf.job(job_id).state == "completed"
    assert not each_front.visitor("member").get("/workers").has_form("/kinds/ingest/pause")


def test_the_audit_is_read_page_by_page_and_by_user(front: Front):
    visitor, caller = front.visitor(), replace(front.shelf.app.caller, address="10.0.0.1")
    for number in range(60):
        access.create_user(caller, f"user{number:02}", "viewer")
    page = visitor.get("/users")
    assert "/audit" in page.links
    first = visitor.get("/audit?action=user.create")
    [link] = [link for link in first.links if "cursor=" in link]
    assert "action=user.create" in link
    second = visitor.get(link)
    assert "user59" in first.text and "user59" not in second.text
    assert "user05" in second.text and "user05" not in first.text
    assert "10.0.0.1" in first.text
    assert "No entry matches" in visitor.get("/audit?user=nobody").text
    other = front.visitor(tenant="other")
    assert "user59" not in other.get("/audit").text
