"""Every button that no other test presses, by somebody who has signed in with a link."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from quire.control import access, sign_in
from tests.api.serving import served
from tests.browser.conftest import Stage
from tests.integration.processes import HANDLERS

pytestmark = pytest.mark.browser


@pytest.fixture
def page(stage: Stage) -> Iterator[Page]:
    """The dashboard of a server that asks who one is, after signing in."""
    home = stage.site.home
    with served(home=home, plugins=(HANDLERS,), api_auth=True, user="olga") as server:
        caller = server.app.caller
        if "olga" not in {user["name"] for user in access.list_users(caller)}:
            access.create_user(caller, "olga", "admin")
        link = sign_in.sign_in_link(caller, "olga")["link"]
        with stage.page(at=server.url) as page:
            page.goto(f"/sign-in/{link}")
            page.get_by_role("button", name="Sign in").click()
            expect(page.locator("h1")).to_have_text("Overview")
            yield page


def told(page: Page, text: str) -> None:
    """Expect what the page says of the act."""
    expect(page.locator("#notice")).to_have_text(text)


def test_signing_out_ends_the_session(page: Page):
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("h1")).to_have_text("Sign in to Quire")
    page.goto("/jobs")
    expect(page.locator("h1")).to_have_text("Sign in to Quire")


def test_jobs_are_acted_on_together(stage: Stage, page: Page):
    job_id = stage.site.submit("i.gated", tag="bulk", gate="bulk-gate")

    def act(verb: str, said: str) -> None:
        page.goto("/jobs")
        page.locator(f"#job-{job_id}").get_by_role("checkbox").check()
        page.get_by_role("button", name=verb).click()
        told(page, said)

    act("Stop", "1 job stopped.")
    act("Resume", "1 job resumed.")
    act("Cancel", "1 job cancelled.")
    act("Retry", "1 job restarted.")
    stage.site.open_gate("bulk-gate")
    stage.site.until_over(job_id)
    page.goto("/jobs")
    page.locator(f"#job-{job_id}").get_by_role("checkbox").check()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Yes, delete").click()
    told(page, "1 job deleted.")
    expect(page.locator(f"#job-{job_id}")).to_have_count(0)


def test_a_job_is_cancelled_and_run_again(stage: Stage, page: Page):
    job_id = stage.site.submit("i.gated", tag="again", gate="again-gate")
    page.goto(f"/jobs/{job_id}")
    badge = page.locator(".head .badge")
    page.get_by_role("button", name="Cancel").click()
    expect(badge).to_have_text("cancelled")
    stage.site.open_gate("again-gate")
    page.get_by_role("button", name="Retry").click()
    expect(badge).to_have_text("completed", timeout=20_000)


def test_one_file_of_a_job_is_run_again(stage: Stage, page: Page):
    page.goto(f"/jobs/{stage.known['ingest']}")
    page.get_by_role("button", name="Retry broken.pdf").click()
    expect(page.locator("#notice")).to_have_text("The file is queued again.")
    stage.site.until_over(stage.known["ingest"])


def test_a_document_is_saved_indexed_again_and_deleted(stage: Stage, page: Page, tmp_path: Path):
    chosen = tmp_path / "short-lived.txt"
    chosen.write_text("The ferry is late.")
    page.goto("/documents")
    page.get_by_label("or choose files").set_input_files(chosen)
    page.get_by_role("button", name="Upload").click()
    card = page.locator(".leaf", has_text="short-lived.txt")
    expect(card).to_contain_text("success", timeout=30_000)
    page.goto("/documents?name=short-lived")
    card.get_by_role("link", name="short-lived.txt").first.click()
    with page.expect_download() as saving:
        page.get_by_role("link", name="Download").click()
    assert Path(saving.value.path()).read_text() == "The ferry is late."
    page.get_by_role("button", name="Re-index").click()
    expect(page.locator("#notice")).to_have_text("The document is queued for re-indexing.")
    expect(page.locator("#explain")).to_contain_text("Version 2", timeout=30_000)
    expect(page.locator(".head .badge")).to_have_text("success", timeout=30_000)
    page.get_by_role("link", name="Delete…").click()
    page.get_by_role("button", name="Yes, delete").click()
    expect(page.locator("#notice")).to_contain_text("deleted")
    expect(card).to_have_count(0)


def test_a_corpus_is_created_and_changed(page: Page):
    page.goto("/corpora")
    page.get_by_label("Name").fill("pressed")
    page.get_by_role("button", name="Create").click()
    page.goto("/corpora/pressed")
    page.locator("[name=chunk_tokens]").fill("333")
    page.get_by_role("button", name="Change…").click()
    page.get_by_role("button", name="Yes").click()
    page.goto("/corpora/pressed")
    expect(page.locator("[name=chunk_tokens]")).to_have_value("333")


def test_a_token_is_made_and_revoked(page: Page):
    page.goto("/tokens")
    page.get_by_label("Name").fill("for the crane")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("main")).to_contain_text("quire_")
    page.goto("/tokens")
    page.get_by_role("button", name="Revoke for the crane").click()
    row = page.get_by_role("row").filter(has_text="for the crane")
    expect(row).to_contain_text("revoked")
    expect(page.locator("main")).not_to_contain_text("quire_")


def test_a_user_is_added_given_a_role_and_a_link_and_disabled(page: Page):
    page.goto("/users")
    page.get_by_label("Name").fill("pia")
    page.get_by_role("button", name="Add").click()
    row = page.get_by_role("row").filter(has_text="pia")
    row.get_by_label("Role of pia").select_option("member")
    row.get_by_role("button", name="Set").click()
    page.goto("/users")
    expect(row.get_by_label("Role of pia")).to_have_value("member")
    row.get_by_role("button", name="Sign-in link").click()
    expect(page.locator("main")).to_contain_text("/sign-in/")
    page.goto("/users")
    row.get_by_role("button", name="Disable").click()
    expect(row).to_contain_text("disabled")
    page.goto("/audit")
    page.get_by_label("User").fill("olga")
    page.get_by_label("Action").fill("user.disable")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("row").filter(has_text="pia")).to_have_count(1)


def test_lists_are_filtered_by_their_forms(stage: Stage, page: Page):
    page.goto("/jobs")
    page.get_by_label("Kind").fill("i.nothing")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(f"#job-{stage.known['done']}")).to_have_count(1)
    expect(page.locator(f"#job-{stage.known['ingest']}")).to_have_count(0)
    page.goto("/documents")
    page.get_by_label("Name").fill("book")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".leaf", has_text="book.pdf")).to_have_count(1)
    expect(page.locator(".leaf", has_text="broken.pdf")).to_have_count(0)


def test_the_interactive_docs_open_without_another_host(page: Page):
    page.goto("/api/docs")
    expect(page.get_by_text("/api/scheduler/status")).to_be_visible(timeout=20_000)
