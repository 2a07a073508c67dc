"""What axe-core has to say about the dashboard: nothing."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

from tests.browser.conftest import Stage
from tests.browser.test_dashboard import PLACES

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", PLACES)
def test_axe_finds_nothing(stage: Stage, place: str, scheme: str):
    with stage.page(color_scheme=scheme) as page:
        page.goto(place.format(**stage.known))
        found = Axe().run(page)
        faults = [
            f"{each['id']}: {each['help']} ({node['html'][:120]})"
            for each in found.response["violations"]
            for node in each["nodes"][:3]
        ]
        assert faults == []
