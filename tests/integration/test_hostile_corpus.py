"""Files made to do harm, uploaded by one tenant and read by real workers, beside another tenant."""

from __future__ import annotations

import threading

import psutil
import pytest

from quire.sandbox.confine import Limits
from tests.integration.processes import Site
from tests.neighbours import Neighbours, neighbours
from tests.unit.parse.test_hostile_files import FILES
from tests.waiting import until

ENDED = {"success", "failed"}


class Watch:
    """The largest resident size of any process that a worker has started, sampled."""

    def __init__(self, site: Site) -> None:
        self._site, self._end = site, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.largest = 0

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(0.1):
            for each in self._site.own_processes():
                try:
                    self.largest = max(self.largest, each.memory_info().rss)
                except psutil.Error:
                    continue


def shown(both: Neighbours, document: int) -> dict[str, object]:
    found: dict[str, object] = both.other.get(f"/api/documents/{document}").json()
    return found


@pytest.mark.timeout(300)
def test_each_hostile_file_ends_with_a_reason_and_another_tenant_is_served_meanwhile(
    embedded: Site,
):
    with neighbours(embedded, documents=1) as both, Watch(embedded) as watch:
        hostile = {
            name: both.upload(both.other, f"../../{name}", make())
            for name, (make, _) in FILES.items()
        }
        for _ in range(10):
            both.seconds_to_read()
        until(
            lambda: all(shown(both, one)["state"] in ENDED for one in hostile.values()),
            within=200,
            what=embedded.logs,
        )
        for name, document in hostile.items():
            found = shown(both, document)
            _, is_readable = FILES[name]
            # The words of this one are outside of its page, so that it has no text.
            expected = "success" if is_readable and name != "boxes.pdf" else "failed"
            assert found["state"] == expected, (name, found["error"])
            assert expected == "success" or str(found["error"]).strip(), name
            assert "/" not in str(found["name"]), found
        assert 0 < watch.largest < Limits().memory
        embedded.assert_healthy()
