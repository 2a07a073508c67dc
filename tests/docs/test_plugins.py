"""The page for plugin authors is true: its blocks run, in order, through `quire.testing`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quire import plugins
from tests.docs import markdown

PAGE = "docs/plugins.md"


def test_every_python_block_of_the_page_runs(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(home)
    namespace: dict[str, Any] = {}
    counts = [
        markdown.run_python(block, namespace, home, f"{PAGE} block {at}")
        for at, block in enumerate(markdown.blocks(PAGE))
        if block.language == "python"
    ]
    plugins.equip(plugins.Registry())
    assert sum(counts) >= 8
    assert (namespace["first"], namespace["second"], namespace["third"]) == (1, 2, 3)
