"""A real server, a real worker and Debian's Chromium; a page that breaks a rule fails its test."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from benchmarks.ingest import reports
from benchmarks.ingest.reports import Canvas, Style
from quire.api import page_renderer
from quire.control import corpora
from quire.demo import samples
from tests.api.serving import Served, served
from tests.integration.processes import HANDLERS, Site

#: What keeps Chromium from talking to anyone but the server under test.
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]
SIZES = {"wide": {"width": 1280, "height": 860}, "phone": {"width": 360, "height": 740}}
PLAIN = {"embedder": "none", "ocr": "never"}


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The browser, without a window and with a home folder of its own."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("Chromium is not on the PATH; on Debian: apt install chromium")
    with sync_playwright() as playwright:
        own = str(tmp_path_factory.mktemp("browser-home"))
        env: dict[str, str | float | bool] = {**os.environ, "HOME": own}
        for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            env.pop(name, None)
        browser = playwright.chromium.launch(
            executable_path=path, args=FLAGS, headless=True, env=env
        )
        yield browser
        browser.close()


def report() -> bytes:
    """A report of one page: a heading and a table."""
    style = Style("Helvetica", 10, 1.3, "bold", "none", False, 14.0, 1)
    canvas = Canvas(style)
    canvas.text(60, 60, "Harbour dues", 18)
    rows = (("", "2021", "2020"), ("Berths", "1,204", "(97)"), ("Cranes", "800", "750"))
    for index, (label, *values) in enumerate(rows):
        canvas.text(60, 100 + 14 * index, label, 10)
        for x, value in zip((400, 500), values, strict=True):
            canvas.right(x, 100 + 14 * index, value, 10)
    return reports.file_of(style, [canvas])


class Stage:
    """A home with documents in it, its server and its worker, and pages that look at it."""

    def __init__(self, site: Site, server: Served, browser: Browser) -> None:
        self.site = site
        self.server = server
        self._browser = browser
        self.known: dict[str, int] = {}

    def fill(self, folder: Path) -> None:
        """Take some files in, one of which cannot be read."""
        folder.mkdir()
        lines = ["The pilot reads the tide.", "Barrels of cider stand on the quay."]
        book = samples.pdf([samples.text_page([f"Chapter {n}", *lines]) for n in range(1, 16)])
        for name, content in {"book.pdf": book, "broken.pdf": book[:300]}.items():
            (folder / name).write_bytes(content)
        (folder / "report.pdf").write_bytes(report())
        (folder / "<img src=x onerror=alert(1)>.txt").write_text("<script>alert(1)</script> tide")
        self.known["ingest"] = self.site.submit("ingest", sources=[str(folder)], settings=PLAIN)
        self.site.until_over(self.known["ingest"])
        self.known["done"] = self.site.submit("i.nothing")
        self.site.until_over(self.known["done"])
        found = {row.name: row.id for row in self.site.rows("documents")}
        self.known |= {"book": found["book.pdf"], "report": found["report.pdf"]}
        corpora.create(self.site.app.caller, "letters", {"chunk_tokens": 200, "delimiter": "\n"})

    @contextlib.contextmanager
    def page(
        self, size: str = "wide", but: str = "^$", at: str | None = None, **options: Any
    ) -> Iterator[Page]:
        """Open a page; in it nothing may go wrong, `but` what is meant to, nor leave the server."""
        faults: list[str] = []
        origin = at or self.server.url

        def hear(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning") and not re.search(but, message.text):
                faults.append(f"console: {message.text}")

        def see(request: Request) -> None:
            if not request.url.startswith((origin, "data:", "blob:")):
                faults.append(f"request: {request.url}")

        context = self._browser.new_context(
            viewport=SIZES[size],  # type: ignore[arg-type]
            base_url=origin,
            **options,
        )
        context.set_default_timeout(20_000)
        page = context.new_page()
        page.on("console", hear)
        page.on("pageerror", lambda error: faults.append(f"script: {error}"))
        page.on("request", see)
        try:
            yield page
        finally:
            context.close()
        assert faults == []


@pytest.fixture(scope="session")
def stage(chromium: Browser, run_folder: Path) -> Iterator[Stage]:
    """One home for all tests of the browser, with a worker that runs."""
    home = Path(tempfile.mkdtemp(prefix="b", dir=run_folder))
    site = Site(home).prepare()
    try:
        site.worker()
        with served(home=home, plugins=(HANDLERS,)) as server:
            made = Stage(site, server, chromium)
            made.fill(home / "in")
            yield made
    finally:
        site.close()
        page_renderer.shared.close()
        shutil.rmtree(home, ignore_errors=True)
