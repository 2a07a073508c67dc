"""Generated files: PDFs of various lengths and fonts, and small text files.

Pages are written as real PDF producers write them: compressed, line by line, and in every second
file word by word with numeric gaps.
"""

import random
import textwrap
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from benchmarks.ingest.prose import Prose, pooled

_FONTS = (b"Helvetica", b"Times-Roman", b"Helvetica-Bold")
_COLUMNS = 92
_LINES = 52  # on a page


def pdfs(folder: Path, files: int, pages: int) -> list[Path]:
    """Write PDFs with realistic lengths: many short ones, a few long ones."""
    return [
        write_pdf(
            folder / f"report-{number:03}.pdf", _texts(number, length), by_word=number % 2 > 0
        )
        for number, length in enumerate(lengths(files, pages))
    ]


def lengths(files: int, pages: int) -> list[int]:
    """Distribute pages to files so that a tenth of the files get half of the pages."""
    weights = [1 / (rank + 1.5) for rank in range(files)]
    scale = (pages - files) / sum(weights)
    shares = [1 + int(weight * scale) for weight in weights]
    shares[0] += pages - sum(shares)
    random.Random(3).shuffle(shares)  # noqa: S311
    return shares


def long_pdf(path: Path, pages: int, seed: int = 99) -> Path:
    """Write one PDF with many pages."""
    return write_pdf(path, islice(pooled(seed), pages))


def small_texts(folder: Path, files: int) -> list[Path]:
    """Write small text files, a hundred in each folder."""
    prose, paths = Prose(5), []
    for number in range(files):
        path = folder / f"{number // 100:03}" / f"note-{number:05}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"Note {number}. {prose.paragraph(400)}\n")
        paths.append(path)
    return paths


def _texts(seed: int, pages: int) -> Iterator[list[str]]:
    prose = Prose(seed)
    return (prose.page() for _ in range(pages))


def write_pdf(path: Path, pages: Iterable[Sequence[str]], *, by_word: bool = False) -> Path:
    """Write a PDF; each page is a list of paragraphs."""
    fonts = [
        b"<< /Type /Font /Subtype /Type1 /BaseFont /%b /Encoding /WinAnsiEncoding >>" % name
        for name in _FONTS
    ]
    named = b" ".join(b"/F%d %d 0 R" % (at, at + 3) for at in range(len(fonts)))
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", *fonts]
    kids = []
    for number, paragraphs in enumerate(pages, start=1):
        kids.append(b"%d 0 R" % (len(objects) + 1))
        commands = zlib.compress(_commands(number, paragraphs, by_word), 6)
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << %b >> >> >>" % (len(objects) + 2, named),
            b"<< /Filter /FlateDecode /Length %d >>\nstream\n%b\nendstream"
            % (len(commands), commands),
        ]
    objects[1] = b"<< /Type /Pages /Kids [%b] /Count %d >>" % (b" ".join(kids), len(kids))
    path.write_bytes(_assembled(objects))
    return path


def _commands(number: int, paragraphs: Sequence[str], by_word: bool) -> bytes:
    """Draw a heading, the lines of the paragraphs, and the page number."""
    lines = [line for text in paragraphs for line in (*textwrap.wrap(text, _COLUMNS), "")]
    drawn = [b"BT /F2 14 Tf 56 790 Td (Section %d) Tj ET" % number]
    drawn.append(b"BT /F%d 10 Tf 13.5 TL 56 764 Td" % (number % 2))
    for line in lines[:_LINES]:
        drawn.append((_by_word(line) if by_word else b"(%b) Tj" % _escaped(line)) + b" T*")
    drawn.append(b"ET BT /F0 9 Tf 290 36 Td (%d) Tj ET" % number)
    return b"\n".join(drawn)


def _by_word(line: str) -> bytes:
    return b"[%b] TJ" % b" -278 ".join(b"(%b)" % _escaped(word) for word in line.split())


def _escaped(text: str) -> bytes:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)").encode("cp1252")


def _assembled(objects: Sequence[bytes]) -> bytes:
    written, places = bytearray(b"%PDF-1.5\n"), []
    for number, content in enumerate(objects, start=1):
        places.append(len(written))
        written += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    start = len(written)
    written += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    written += b"".join(b"%010d 00000 n \n" % place for place in places)
    written += b"trailer\n<< /Size %d /Root 1 0 R >>\n" % (len(objects) + 1)
    return bytes(written + b"startxref\n%d\n%%%%EOF\n" % start)
