"""Words, charts and colours: the parts that pages are made of."""

from __future__ import annotations

import re
from importlib import resources
from xml.etree import ElementTree

import pytest

from quire import format
from quire.store.reports.dashboard import Run
from quire.web import charts, rendering, throughput
from quire.web.charts import Bar, Cell

SVG = "{http://www.w3.org/2000/svg}"
CSS = resources.files("quire.web").joinpath("static/style.css").read_text()
#: Which colours are written on which.
ON = {
    "ink": ("paper", "sheet", "sunk"),
    "soft": ("paper", "sheet", "sunk"),
    "accent": ("paper", "sheet", "accent-wash"),
    "accent-ink": ("accent",),
    "good": ("sheet", "good-wash"),
    "warn": ("sheet", "warn-wash"),
    "bad": ("sheet", "bad-wash"),
    "mark-ink": ("mark",),
}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (0.0004, "1 ms"), (0.35, "350 ms"), (1.0, "1 s"), (9.94, "9.9 s"),
     (59.6, "1 min"), (200.0, "3 min 20 s"), (7500.0, "2 h 5 min"), (200_000.0, "2 d"),
     (-5.0, "0 s"), (None, "–")],
)  # fmt: skip
def test_a_duration_is_written_in_the_units_that_matter(seconds: float | None, text: str):
    assert format.span(seconds) == text


def test_numbers_are_grouped_by_commas():
    assert format.number(1234567) == "1,234,567"
    assert format.count(1, "page") == "1 page"
    assert format.size(5 << 20) == "5.0 MB"
    assert format.size(20_000 << 20) == "20 GB"


def test_a_time_is_relative_and_exact_on_hover():
    text = rendering.when("2026-01-31T18:00:00Z", 1769882400.0 + 125)
    assert "2 min ago" in text
    assert 'title="2026-01-31 18:00:00 UTC"' in text
    assert "in 2 h" in rendering.when(7200.0, 0.0)
    assert "–" in rendering.when(None, 0.0)
    assert "1" in rendering.when(1e300, 0.0)


def test_marks_and_code_escape_every_part():
    text = "<b> tide & <i>"
    assert rendering.marked(text, [(4, 8)]) == "&lt;b&gt; <mark>tide</mark> &amp; &lt;i&gt;"
    assert rendering.marked("<<", [(0, 1), (1, 2)]) == "<mark>&lt;</mark><mark>&lt;</mark>"
    assert rendering.coded("run `<x>` now") == "run <code>&lt;x&gt;</code> now"
    assert rendering.coded("a ` alone") == "a  alone"


def test_text_of_others_has_no_control_characters():
    assert format.multiline("a\x00\x1b[1m\u202eb\ud800") == "a\ufffd\ufffd[1m\ufffdb\ufffd"
    assert format.multiline("x" * 9, 3) == "xxx…"


def test_a_strip_draws_each_range_as_wide_as_its_pages_and_names_it():
    cells = [Cell(1, 1, 12, "done"), Cell(1, 13, 24, "running", 0.5, "<b>.pdf"),
             Cell(2, 1, 1, "failed")]  # fmt: skip
    drawn = _parsed(charts.strip(cells, "Ranges <1>"))
    assert drawn.get("aria-label") == "Ranges <1>"
    groups = drawn.findall(f"{SVG}g")
    assert [g.findtext(f"{SVG}title") for g in groups] == [
        "pages 1–12 · done", "<b>.pdf · pages 13–24 · running", "page 1 · failed",
    ]  # fmt: skip
    wide = [float(g.find(f"{SVG}rect").get("width", "0")) for g in groups]  # type: ignore[union-attr]
    assert wide[0] == pytest.approx(wide[1], abs=0.2)
    assert wide[0] > 8 * wide[2]
    # Shapes differ, not only colours: half of a running range is filled, a failed one is crossed.
    assert len(groups[1].findall(f"{SVG}rect")) == 2
    assert groups[2].find(f"{SVG}path") is not None


def test_a_strip_of_many_documents_stays_within_its_frame():
    cells = [Cell(n, 1, 3, "done") for n in range(600)]
    for rect in _parsed(charts.strip(cells, "x")).iter(f"{SVG}rect"):
        assert 0 <= float(rect.get("x", "-1")) + float(rect.get("width", "0")) <= 1000.1


def test_charts_of_nothing_are_nothing():
    assert charts.strip([], "x") == charts.stacked([], [], "x") == charts.sparkline([], "x") == ""
    assert charts.sparkline([None, None], "x") == ""


def test_a_line_has_gaps_where_nothing_ran():
    drawn = _parsed(charts.sparkline([1.0, 2.0, None, 4.0], "x", also=[4.0, 4.0, None, None]))
    paths = drawn.findall(f"{SVG}path")
    assert [path.get("class") for path in paths] == ["faint", "line", "line"]


def test_bars_are_stacked_within_the_frame():
    bars = [Bar({"bad": 1, "warn": 3}, "first"), Bar({}, "second")]
    rects = list(_parsed(charts.stacked(bars, ["bad", "warn"], "x")).iter(f"{SVG}rect"))
    assert [rect.get("class") for rect in rects] == ["bad", "warn"]
    assert all(0 <= float(rect.get("y", "-1")) <= charts.HEIGHT for rect in rects)


def test_figures_count_runs_by_span_of_time():
    now = 100_000.0
    runs = [Run(now - n, 0.1 * n, "done" if n % 10 else "failed", 1.0) for n in range(1, 601)]
    found = throughput.figures(runs, now=now)
    assert (found["total"], found["failed"], found["window"]) == (600, 60, "last 10 min")
    assert sum(bar.parts["good"] for bar in found["bars"]) == 540
    assert sum(bar.parts["bad"] for bar in found["bars_bad"]) == 60
    assert found["median"] == pytest.approx(30.0)
    assert found["p95"] == pytest.approx(57.0)
    assert found["rate"] == "54 tasks/min"
    empty = throughput.figures([], now=now)
    assert (empty["bars"], empty["median"], empty["failed"]) == ([], None, 0)


def test_a_rate_is_of_the_time_that_is_known():
    now = 1_000_000.0
    runs = [Run(now - n / 1000, 0.001, "done", 1.0) for n in range(4000)]
    assert throughput.figures(runs, now=now)["rate"] == "7 tasks/s"
    found = throughput.figures(runs, now - 8, now=now)
    assert (found["rate"], found["window"]) == ("500 tasks/s", "last 8 s")


def test_one_task_a_minute_is_singular():
    now = 1_000_000.0
    runs = [Run(now - 60 * n, 0.1, "done", 1.0) for n in range(10)]
    assert throughput.figures(runs, now - 600, now=now)["rate"] == "1 task/min"


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_of_text_stand_out_from_what_is_behind_them(scheme: int):
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", CSS)
    colours = {name: (light, dark)[scheme] for name, light, dark in pairs}
    faint = {
        f"{front} on {back}": round(ratio, 2)
        for front, backs in ON.items()
        for back in backs
        if (ratio := _contrast(colours[front], colours[back])) < 4.5
    }
    assert faint == {}
    # Edges of fields, and of blocks of a strip, need less.
    assert _contrast(colours["edge"], colours["sheet"]) >= 3


def _contrast(a: str, b: str) -> float:
    """The ratio of WCAG 2.2."""
    light, dark = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(str(text).replace("<svg ", f'<svg xmlns="{SVG[1:-1]}" ', 1))  # noqa: S314
