"""Passwords and signatures of URLs with real processes: in no log, and nowhere below the home."""

from __future__ import annotations

import contextlib

import pytest

from quire import secret_key
from tests.api.test_secrets import PASSWORD, SIGNATURE, assert_nowhere, everything
from tests.integration.processes import Site
from tests.servers import FileServer, answer
from tests.shelf import PLAIN, SECRET_KEY


@pytest.mark.core
def test_a_worker_tells_no_secret_of_a_source_in_its_log_or_files(site: Site):
    if site.url:  # made by itself with SQLite only
        (site.home / secret_key.FILE).write_text(SECRET_KEY)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(FileServer())
        server.put("/memo.txt", b"The tide turns at noon.")
        server.at = {"/late.txt": [answer(503)] * 99}
        at = f"http://ann:{PASSWORD}@localhost:{server.port}"
        good, gone, late = (f"{at}/{n}.txt?sig={SIGNATURE}" for n in ("memo", "gone", "late"))
        running = site.worker(log_level="debug", fetch_allow_private_addresses=True)
        options = {"settings": PLAIN, "force": True}
        ids = [site.submit("ingest", sources=[each], **options) for each in (good, gone)]
        waiting = site.submit("ingest", sources=[late], **options)
        site.until_over(ids)
        assert server.asked[0].query == {"sig": SIGNATURE}
        site.stop(waiting)
        running.leave()
    assert_nowhere(running.log)
    assert_nowhere(everything(site.app))
