"""Wherever words stand on a page, and however it is turned or cut off: their boxes are on it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from quire.demo.samples import PdfPage
from quire.model.pages import Page
from quire.parse import file_type, formats, word_boxes
from quire.parse.parser import ReadOptions
from quire.parse.pdf import reader as pdf
from quire.text.chunk import ChunkOptions, split
from tests import documents

WIDE, HIGH = 595, 842
OPTIONS = ChunkOptions(16, 4)
#: Some begin outside the page, some end there.
places = st.tuples(
    st.sampled_from(["tide", "harbour", "WWWWWWWWWWWW", "a", "quay,", "x-ray"]),
    st.integers(-60, WIDE + 20),
    st.integers(-30, HIGH + 20),
)


@st.composite
def crops(draw: st.DrawFn) -> bytes:
    left, right = sorted((draw(st.integers(-50, 300)), draw(st.integers(310, 700))))
    bottom, top = sorted((draw(st.integers(-50, 400)), draw(st.integers(410, 900))))
    share = draw(st.sampled_from([b"", b".5", b".26"]))
    return b"/CropBox [%d%b %d %d%b %d]" % (left, share, bottom, right, share, top)


@st.composite
def sheets(draw: st.DrawFn) -> PdfPage:
    crop = draw(st.one_of(st.just(b""), crops()))
    more = b"/Rotate %d %b" % (draw(st.sampled_from([0, 90, 180, 270, -90, 450])), crop)
    return documents.drawn(*draw(st.lists(places, min_size=1, max_size=30)), more=more)


def read(sheets: list[PdfPage]) -> list[Page]:
    with tempfile.TemporaryDirectory() as folder:
        path = documents.put(Path(folder), "a.pdf", documents.pdf(*sheets))
        found = list(formats.read(path, file_type.PDF, ReadOptions(ocr="never"), 1, len(sheets)))
        pdf.close()
    return [page for page in found if isinstance(page, Page)]


@settings(deadline=None, max_examples=60)
@given(st.lists(sheets(), min_size=1, max_size=4))
def test_the_boxes_of_every_chunk_lie_on_its_page(sheets: list[PdfPage]):
    pages = read(sheets)
    assert len(pages) == len(sheets)
    for page in pages:
        for piece in split(page.text, OPTIONS):
            found = word_boxes.boxes(page.words, page.text, piece.start, piece.stop)
            assert found
            for x, y, width, height in found:
                assert width >= 0 and height >= 0
                assert 0 <= x <= x + width <= page.width + 1e-6
                assert 0 <= y <= y + height <= page.height + 1e-6
