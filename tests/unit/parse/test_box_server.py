"""What a template has loaded, the boxes that are forked from it need not load again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import documents
from tests.documents import put

_SERVE = """
import os, sys
from pathlib import Path
from quire.parse import box_server

box_server.preload()
known, path = set(sys.modules), Path(sys.argv[1])
links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
options = ["auto", "never", [], 12]
about = {"file": path.name, "name": path.name, "media_type": "application/pdf", "options": options}
for more in (
    {"do": "detect"}, {"do": "inspect"}, {"do": "thumbnail"},
    {"do": "read", "first": 1, "last": 1, "asks": False},
):
    [answer] = box_server.handle({**about, **more}, path.parent, dict)
    assert "failed" not in answer.head
print(sorted(set(sys.modules) - known), [one for one in links if one.endswith(".pdf")])
"""


def test_a_box_loads_nothing_for_the_first_pdf_and_its_template_keeps_no_file_open(tmp_path: Path):
    file = put(tmp_path, "a.pdf", documents.pdf("one"))
    command = [sys.executable, "-c", _SERVE, str(file)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (told.stdout, told.stderr) == ("[] []\n", "")
