"""The dashboard in Chromium, over a real server with a real worker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import APIResponse, Route, expect

from quire.control import jobs
from tests.api.serving import Served
from tests.browser.conftest import Stage

pytestmark = pytest.mark.browser

PLACES = ("/", "/jobs", "/jobs/{ingest}", "/jobs/{done}", "/documents", "/documents/{book}?q=tide",
          "/documents/{report}", "/documents/{report}?view=tables",
          "/documents/{report}?view=outline",
          "/search", "/search?q=tide+quay", "/workers", "/settings", "/tokens", "/users",
          "/jobs/{done}/delete", "/corpora", "/corpora/letters", "/corpora/letters?ask=delete",
          "/audit")  # fmt: skip
LOOKS = [("wide", "light"), ("wide", "dark"), ("phone", "light")]
#: What is wider than the window; a region that scrolls by itself may be.
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
#: Text that can hardly be read: each piece against the colour behind it, as WCAG counts.
FAINT = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] > 250) return color;
    }
    return [255, 255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.nodeValue.trim());
    if (!own || element.closest("svg, .sr, .skip, option") || !element.checkVisibility()) continue;
    const [a, b] = [rgba(getComputedStyle(element).color), behind(element)].map(light);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.push(`${element.className || element.localName} ${ratio.toFixed(2)}`);
  }
  return [...new Set(faint)];
}"""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("size", "scheme"), LOOKS, ids=[f"{a}-{b}" for a, b in LOOKS])
def test_a_page_is_sound_in_every_look(stage: Stage, place: str, size: str, scheme: str):
    with stage.page(size, color_scheme=scheme) as page:
        page.goto(place.format(**stage.known))
        expect(page.locator("h1")).to_be_visible()
        assert page.evaluate(TOO_WIDE) <= 0
        assert page.evaluate(FAINT) == []
        expect(page.locator("html")).to_have_class("scripted")


def test_a_running_job_is_shown_as_it_goes_on(stage: Stage):
    job_id = stage.site.submit("i.gated", tag="live", gate="live-gate")
    with stage.page() as page:
        page.goto(f"/jobs/{job_id}")
        badge = page.locator(".head .badge")
        expect(badge).to_have_text("running")
        page.evaluate("window.isSame = true")
        stage.site.open_gate("live-gate")
        expect(badge).to_have_text("completed", timeout=10_000)
        expect(page.locator("#explain")).to_contain_text("Every task succeeded")
        assert page.evaluate("window.isSame")
    stage.site.until_over(job_id)


def test_the_overview_and_the_list_follow_without_being_loaded_again(stage: Stage):
    with stage.page() as page, stage.page() as other:
        page.goto("/")
        other.goto("/jobs")
        expect(page.locator("html")).to_have_attribute("data-stream", "live")
        job_id = stage.site.submit("i.gated", tag="list", gate="list-gate")
        expect(page.locator(f"#run-{job_id}")).to_be_visible(timeout=10_000)
        row = other.locator(f"#job-{job_id}")
        expect(row).to_contain_text("running", timeout=10_000)
        row.get_by_role("checkbox").check()
        stage.site.open_gate("list-gate")
        expect(row).to_contain_text("completed", timeout=10_000)
        expect(row.get_by_role("checkbox")).to_be_checked()
        expect(page.locator(f"#run-{job_id}")).to_have_count(0)


def test_a_job_is_stopped_and_resumed_by_its_buttons(stage: Stage):
    job_id = stage.site.submit("i.gated", tag="button", gate="button-gate")
    with stage.page() as page:
        page.goto(f"/jobs/{job_id}")
        badge = page.locator(".head .badge")
        expect(badge).to_have_text("running")
        page.evaluate("window.isSame = true")
        page.get_by_role("button", name="Stop").click()
        expect(badge).to_have_text("stopped")
        expect(page.locator("#notice")).to_have_text("1 job stopped.")
        page.get_by_role("button", name="Resume").click()
        expect(badge).to_have_text(re.compile("pending|running"))
        stage.site.open_gate("button-gate")
        expect(badge).to_have_text("completed", timeout=15_000)
        assert page.evaluate("window.isSame")


def test_a_verb_that_comes_too_late_is_refused_in_words(stage: Stage):
    job_id = stage.site.submit("i.gated", tag="late", gate="late-gate")
    with stage.page(but="409") as page:
        page.goto(f"/jobs/{job_id}")
        # A copy outside of what is kept fresh: the button of a page that has not heard of it yet.
        page.evaluate(
            """() => document.querySelector("main").append(
                 document.querySelector("form[action$='/stop']").cloneNode(true))"""
        )
        jobs.cancel(stage.site.app.caller, [job_id])
        expect(page.locator(".head .badge")).to_have_text("cancelled", timeout=10_000)
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#notice")).to_contain_text("it is cancelled; cannot stop it")


def test_a_job_that_is_deleted_while_it_is_shown_says_so(stage: Stage):
    job_id = stage.site.submit("i.nothing")
    stage.site.until_over(job_id)
    with stage.page(but="404") as page:
        page.clock.install()
        page.goto(f"/jobs/{job_id}")
        expect(page.locator("html")).to_have_attribute("data-stream", "live")
        jobs.delete(stage.site.app.caller, [job_id])
        # No event tells of it: the page finds out when it looks again, which it does each 30 s.
        page.clock.fast_forward(31_000)
        expect(page.locator("#notice")).to_have_text("What was shown here has been deleted.")
        expect(page.locator("h1")).to_have_text("Not found")


def test_a_cell_and_its_place_on_the_page_are_highlighted_together(stage: Stage):
    with stage.page() as page:
        page.goto(f"/documents/{stage.known['report']}")
        cell = page.locator(".blocks td", has_text="1,204")
        lit = page.locator(".sheet .lit")
        expect(lit).to_have_attribute("width", "0")
        cell.hover()
        expect(lit).not_to_have_attribute("width", "0")
        spot = lit.bounding_box()
        assert spot is not None
        page.mouse.move(5, 5)
        expect(lit).to_have_attribute("width", "0")
        page.mouse.move(spot["x"] + spot["width"] / 2, spot["y"] + spot["height"] / 2)
        expect(page.locator(".blocks .lit")).to_have_text("1,204")


def test_files_are_uploaded_by_choosing_them(stage: Stage, tmp_path: Path):
    chosen = tmp_path / "chosen.txt"
    chosen.write_text("Chosen by hand: the lantern of the quay.")
    with stage.page() as page:
        page.goto("/documents")
        page.get_by_label("or choose files").set_input_files(chosen)
        page.get_by_role("button", name="Upload").click()
        expect(page.locator(".uploads li")).to_contain_text("uploaded, job")
        card = page.locator(".leaf", has_text="chosen.txt")
        expect(card).to_contain_text("success", timeout=30_000)


def test_files_are_uploaded_by_dropping_them(stage: Stage):
    with stage.page() as page:
        page.goto("/documents")
        dropped = page.evaluate_handle(
            """() => {
              const all = new DataTransfer();
              all.items.add(new File(["Dropped: the foghorn."], "dropped <b>one.txt"));
              all.items.add(new File(["Dropped: the beacon."], "dropped two.txt"));
              return all;
            }"""
        )
        page.dispatch_event("main", "dragover", {"dataTransfer": dropped})
        expect(page.locator(".drop")).to_have_class(re.compile("over"))
        page.dispatch_event("main", "drop", {"dataTransfer": dropped})
        expect(page.locator(".uploads li")).to_have_count(2)
        expect(page.locator(".uploads li").first).to_contain_text("uploaded, job")
        expect(page.locator(".leaf", has_text="dropped <b>one.txt")).to_contain_text(
            "success", timeout=30_000
        )


def test_a_phrase_is_found_and_marked_on_the_picture_of_its_page(stage: Stage):
    with stage.page() as page:
        page.goto("/")
        page.get_by_role("link", name="Search").click()
        page.get_by_label("Search for words or a topic").fill("barrels of cider")
        page.keyboard.press("Enter")
        expect(page.locator("mark").first).to_be_visible()
        page.get_by_role("link", name="book.pdf").first.click()
        expect(page.locator(".prose mark").first).to_be_visible()
        picture = page.locator(".sheet img")
        expect(picture).to_be_visible()
        assert picture.evaluate("async (i) => (await i.decode(), i.naturalWidth)") > 300
        hit = page.locator(".sheet .hit").bounding_box()
        frame = picture.bounding_box()
        assert hit and frame
        assert frame["x"] < hit["x"] and hit["y"] + hit["height"] < frame["y"] + frame["height"]
        assert hit["width"] > 10
        expect(page.locator(".sheet .word")).to_be_hidden()
        page.get_by_label("Word boxes").check()
        expect(page.locator(".sheet .word")).to_be_visible()
        page.get_by_role("link", name="Next page").click()
        expect(page).to_have_url(re.compile(r"page=\d+&q=barrels"))


def test_the_keyboard_is_enough(stage: Stage):
    with stage.page() as page:
        page.goto("/jobs")
        page.keyboard.press("Tab")
        skip = page.get_by_role("link", name="Skip to content")
        expect(skip).to_be_focused()
        expect(skip).to_be_in_viewport()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        page.keyboard.press("/")
        expect(page.get_by_label("Search")).to_be_focused()


def test_the_main_paths_work_without_javascript(stage: Stage, tmp_path: Path):
    chosen = tmp_path / "plain.txt"
    chosen.write_text("Sent without a script: the capstan.")
    with stage.page(java_script_enabled=False) as page:
        page.goto("/documents")
        page.get_by_label("or choose files").set_input_files(chosen)
        page.get_by_role("button", name="Upload").click()
        expect(page.locator("h1")).to_contain_text("ingest")
        job_id = int(page.url.partition("/jobs/")[2].partition("?")[0])
        stage.site.until_over(job_id)
        page.goto("/search")
        page.get_by_label("Search for words or a topic").fill("capstan")
        page.get_by_role("button", name="Search").click()
        page.get_by_role("link", name="plain.txt").click()
        expect(page.locator(".prose mark")).to_have_text("capstan")
        gated = stage.site.submit("i.gated", tag="plain", gate="plain-gate")
        page.goto(f"/jobs/{gated}")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(".head .badge")).to_have_text("stopped")
        page.get_by_role("link", name="Delete…").click()
        page.get_by_role("button", name="Yes, delete").click()
        expect(page.locator("#notice")).to_have_text("1 job deleted.")
        expect(page.locator(f"#job-{gated}")).to_have_count(0)


def test_a_page_finds_its_server_again(stage: Stage):
    with stage.page(but="ERR_INTERNET_DISCONNECTED") as page:
        page.goto("/workers")
        expect(page.locator("html")).to_have_attribute("data-stream", "live")
        page.context.set_offline(True)
        page.evaluate("document.dispatchEvent(new Event('quire:refresh'))")
        expect(page.locator("#notice")).to_contain_text("cannot be reached")
        page.context.set_offline(False)
        expect(page.locator("#notice")).to_have_text("", timeout=15_000)


def test_an_open_page_comes_back_by_itself_after_the_server_was_restarted(
    stage: Stage,
):
    job_id = stage.site.submit("i.gated", tag="restart", gate="restart-gate")
    app = stage.server.app
    first = Served(app).start()
    port = int(first.url.rpartition(":")[2])
    with stage.page(but="Failed to load resource", at=first.url) as page:
        page.goto(f"{first.url}/jobs/{job_id}")
        expect(page.locator("html")).to_have_attribute("data-stream", "live")
        expect(page.locator(".head .badge")).to_have_text("running")
        page.evaluate("window.isSame = true")
        first.stop()
        expect(page.locator("html")).not_to_have_attribute("data-stream", "live")
        stage.site.open_gate("restart-gate")
        stage.site.until_over(job_id)  # no job was disturbed
        second = Served(app, port).start()
        expect(page.locator(".head .badge")).to_have_text("completed", timeout=30_000)
        expect(page.locator("html")).to_have_attribute("data-stream", "live", timeout=30_000)
        assert page.evaluate("window.isSame")
    second.stop()


def test_a_page_fetched_before_a_change_does_not_replace_the_answer(stage: Stage):
    job_id = stage.site.submit("i.gated", tag="late", gate="late-gate")
    held: list[tuple[Route, APIResponse]] = []
    with stage.page() as page:
        page.goto(f"/jobs/{job_id}")
        expect(page.locator("html")).to_have_attribute("data-stream", "live")
        page.evaluate("""() => {
            window.shown = 0;
            document.addEventListener("quire:shown", () => { window.shown += 1; });
        }""")
        page.route(f"**/jobs/{job_id}", lambda route: held.append((route, route.fetch())), times=1)
        page.evaluate("document.dispatchEvent(new Event('quire:refresh'))")
        while not held:
            page.wait_for_timeout(50)
        page.get_by_label("Priority").select_option("2")
        page.get_by_role("button", name="Set").click()
        expect(page.locator("#notice")).to_have_text("1 job reprioritised.")
        shown = page.evaluate("window.shown")
        route, older = held[0]
        route.fulfill(response=older)
        page.wait_for_function("shown => window.shown > shown", arg=shown)
        assert page.get_by_label("Priority").input_value() == "2"
        page.get_by_label("Priority").select_option("7")  # chosen, not yet sent
        page.evaluate("document.dispatchEvent(new Event('quire:refresh'))")
        shown = page.evaluate("window.shown")
        page.wait_for_function("shown => window.shown > shown", arg=shown)
        assert page.get_by_label("Priority").input_value() == "7"
    stage.site.open_gate("late-gate")
    stage.site.until_over(job_id)


def test_a_priority_and_a_pause_are_set_in_place(stage: Stage):
    job_id = stage.site.submit("i.gated", tag="first", gate="first-gate")
    with stage.page() as page:
        page.goto(f"/jobs/{job_id}")
        page.evaluate("window.isSame = true")
        page.get_by_label("Priority").select_option("2")
        page.get_by_role("button", name="Set").click()
        expect(page.locator("#notice")).to_have_text("1 job reprioritised.")
        expect(page.get_by_label("Priority")).to_have_value("2")
        assert page.evaluate("window.isSame")
        page.goto("/workers")
        page.get_by_role("button", name="Pause i.nothing").click()
        expect(page.locator("#notice")).to_have_text("1 kind paused.")
        page.get_by_role("button", name="Unpause i.nothing").click()
        expect(page.locator("#notice")).to_have_text("1 kind unpaused.")
    stage.site.open_gate("first-gate")
    stage.site.until_over(job_id)
