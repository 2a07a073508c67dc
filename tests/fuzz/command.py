"""Feeds changed files and bodies to what reads a stranger's bytes, and keeps what breaks it.

    .venv/bin/python -m tests.fuzz.command --seconds 600
    .venv/bin/python -m tests.fuzz.command --only docx --seconds 60 --seed 7

Each target runs in a process of its own, under a memory limit. Expected are an answer or a plain
error; a find is any other exception, a death, or more than `SLOW` seconds of CPU time. The input
of a find is written to `.cache/fuzz`. What was found and mended has a test in `tests/unit/parse`.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from quire.demo import samples
from quire.errors import QuireError
from quire.parse import file_type, formats
from quire.parse.parser import ReadOptions
from tests import scratch
from tests.compound import message
from tests.documents import TEXT, bomb, docx_with_entities, pdf

ROOT = Path(__file__).resolve().parents[2]
#: CPU seconds for one input of at most `LARGEST` bytes.
SLOW = 5.0
LARGEST = 1 << 18
MEMORY = 3 << 30
#: Pieces that parsers give a meaning to.
WORDS = [
    b"<!--",
    b"-->",
    b"<![CDATA[",
    b"]]>",
    b"<!DOCTYPE x [",
    b"<!ENTITY a 'b'>",
    b"&a;",
    b"&#0;",
    b"&#x110000;",
    b"<a " + b"b='c' " * 50,
    b"</a>",
    b"<a>" * 500,
    b"xmlns:w='u'",
    b"=?utf-8?B?",
    b"=?q?",
    b"Content-Type: multipart/mixed; boundary=x\r\n",
    b"--x\r\n",
    b"--x--",
    b"Content-Transfer-Encoding: base64\r\n",
    b"\r\n\r\n",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\0",
    b"\x7f",
    b"\xed\xa0\x80",
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"%PDF-1.7",
    b"stream\r\n",
    b"endstream",
    b"/Kids [1 0 R]",
    b"/Length -1",
    b"99999999999999999999",
    b"-1",
    b"1e999",
    b"NaN",
    b"A1048577",
    b"XFD1",
    b"s='99999999'",
    b"t='s'",
    b"'\"",
    b",,,,",
    b"\t" * 100,
    b"```",
    b"|--|",
    b"#" * 50,
    b"../../etc/passwd",
    b"{}",
    b"[[[[[[[[",
    b'{"a":',
    b"\\u0000",
    b"\\ud800",
]


class Target(NamedTuple):
    """What is fed, and from which inputs it starts."""

    run: Callable[[bytes], None]
    seeds: Sequence[bytes]


def main() -> int:
    """Share the time among the targets; returns 1 if there was a find."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--seconds", type=float, default=600.0, help="in all (default: 600)")
    options.add_argument("--only", action="append", default=[], help="target, may be repeated")
    options.add_argument("--seed", type=int, default=int(time.time()))
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = options.parse_args()
    names = given.only or list(TARGETS)
    print(f"seed {given.seed}, {len(names)} targets, {given.seconds:.0f} s", flush=True)
    each = given.seconds * given.processes / len(names)
    tasks = [(name, each, given.seed) for name in names]
    with multiprocessing.get_context("spawn").Pool(given.processes, maxtasksperchild=1) as pool:
        found = 0
        for name, runs, finds in pool.imap_unordered(_watched, tasks):
            print(f"{name:10} {runs:8,} inputs, {len(finds)} finds", flush=True)
            for find in finds:
                print(f"  {find}", flush=True)
            found += len(finds)
    return 1 if found else 0


def _watched(task: tuple[str, float, int]) -> tuple[str, int, list[str]]:
    """Fuzz one target in a process of its own; begin again after a death, which is a find."""
    name, seconds, seed = task
    finds: list[str] = []
    deadline, runs = time.monotonic() + seconds, 0
    folder = ROOT / ".cache" / "fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    while time.monotonic() < deadline and len(finds) < 20:
        with tempfile.TemporaryDirectory() as scratch:
            at, told = Path(scratch, "input"), Path(scratch, "told")
            told.write_text("")
            if not (pid := os.fork()):
                try:
                    _child(name, seed + runs, deadline, at, told, folder)
                finally:
                    os._exit(70)
            _, status = os.waitpid(pid, 0)
            lines = told.read_text().splitlines()
            runs += sum(int(line[5:]) for line in lines if line.startswith("runs "))
            finds += [line for line in lines if not line.startswith("runs ")]
            if status:
                kept = _keep(folder, name, at.read_bytes() if at.exists() else b"")
                finds.append(f"died with status {status}: {kept}")
                runs += 1
    return name, runs, finds


def _child(name: str, seed: int, deadline: float, at: Path, told: Path, folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    chance, target, runs = random.Random(seed), TARGETS[name](), 0
    seen: set[str] = set()
    while time.monotonic() < deadline and len(seen) < 5:
        content = changed(chance, target.seeds)
        at.write_bytes(content)
        began, where = time.process_time(), ""
        try:
            target.run(content)
        except QuireError:
            pass
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {error}"[
                :300
            ]
        runs += 1
        if (took := time.process_time() - began) > SLOW:
            where = f"slow ({took:.1f} s of CPU)"
        if where and where[:60] not in seen:
            seen.add(where[:60])
            with told.open("a") as file:
                print(f"{where!r}: {_keep(folder, name, content)}", file=file)
    with told.open("a") as file:
        print(f"runs {runs}", file=file)
    os._exit(0)


def _keep(folder: Path, name: str, content: bytes) -> Path:
    path = folder / f"{name}-{blake2b(content, digest_size=6).hexdigest()}"
    path.write_bytes(content)
    return path


def changed(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Return a seed with some changes: bytes, pieces of others, words that mean something."""
    content = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 2, 4, 8, 30))):
        start = chance.randrange(len(content) + 1)
        stop = min(len(content), start + chance.choice((0, 1, 1, 4, 40, 400)))
        match chance.randrange(6):
            case 0:
                content[start:stop] = chance.randbytes(stop - start)
            case 1:
                content[start:start] = chance.choice(WORDS)
            case 2:
                content[start:stop] = b""
            case 3:
                content[start:start] = content[start:stop] * chance.choice((1, 2, 50, 2000))
            case 4:
                other = chance.choice(seeds)
                begin = chance.randrange(len(other) + 1)
                content[start:stop] = other[begin : begin + chance.choice((4, 40, 400))]
            case _:
                content[start:start] = chance.choice(WORDS) * chance.choice((1, 1, 10, 3000))
        del content[LARGEST:]
    return bytes(content)


# ---------------------------------------------------------------------- targets


def read(content: bytes, media_type: str = "", name: str = "a") -> None:
    """Read a file as ingestion does: what it is, how long it is, then each page."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        found = media_type or file_type.detect(path, name)
        options = ReadOptions(ocr="never")
        outline = formats.inspect(path, found, options)
        for page in formats.read(path, found, options, 1, min(outline.length, 50)):
            repr(page)


def plain(media_type: str, *seeds: bytes, name: str = "a") -> Callable[[], Target]:
    return lambda: Target(lambda content: read(content, media_type, name), seeds)


def member(archive: bytes, name: str, media_type: str) -> Callable[[], Target]:
    """Change one member of an archive, so that the archive itself stays whole."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        members: dict[str, str | bytes] = {one: opened.read(one) for one in opened.namelist()}

    def run(content: bytes) -> None:
        read(samples.zipped({**members, name: content}), media_type)

    own = members[name]
    return lambda: Target(run, [own if isinstance(own, bytes) else own.encode()])


def bodies() -> Target:
    """Bodies of the API; a member's mistakes are answered, and never with a fault of ours."""
    from tests.api.house import House, sailing_book

    os.environ.setdefault(scratch.RUN_VARIABLE, tempfile.mkdtemp())
    # No limits: they would answer 429 and hide what lies behind.
    house = House(Path(tempfile.mkdtemp()))
    document = house.upload("book.pdf", sailing_book())
    routes = [
        ("POST", "/api/jobs"),
        ("POST", "/api/jobs/stop"),
        ("POST", "/api/corpora"),
        ("POST", "/api/tokens"),
        ("POST", f"/api/documents/{document}/reindex"),
        ("PATCH", "/api/corpora/plain"),
        ("POST", "/api/documents?name=x"),
        ("POST", "/api/users"),
    ]

    def run(content: bytes) -> None:
        method, path = routes[len(content) % len(routes)]
        for kind in (
            "application/json",
            "multipart/form-data; boundary=x",
            "application/octet-stream",
        ):
            answer: Any = house.member.request(
                method, path, content=content, headers={"content-type": kind}
            )
            if answer.status_code >= 500:
                raise AssertionError(f"{method} {path} {answer.status_code}: {answer.text[:200]}")

    return Target(
        run,
        [
            b'{"kind": "ingest", "payload": {"sources": ["https://example.com/a"]}, "priority": 5}',
            b'{"kind": "noop", "run_at": "2030-01-01T00:00:00Z", "after": [1], "key": "k"}',
            b'{"name": "c", "settings": {"embedder": "none", "ocr": "never", "chunk_tokens": 100}}',
            b'{"name": "t", "scope": "read", "days": 3}',
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n'
            b"\r\nhello\r\n--x--\r\n",
            b'{"all": true, "state": ["failed"], "kind": "noop", "limit": 10}',
        ],
    )


def _sheet() -> bytes:
    return samples.xlsx({"One": [["name", "value"], ["a", 1.5], ["b", 2]], "Two": [["x"]]})


_RTF = (
    b"{\\rtf1\\ansicpg1252{\\stylesheet{\\s1 heading 1;}}\\pard\\s1 A\\par\\pard b\\'e9\\u8364?"
    b"\\page{\\footnote n}\\trowd\\intbl x\\cell y\\cell\\row{\\listtext 1.\\tab}i\\par}"
)
_ODT = samples.zipped(
    {
        "mimetype": file_type.ODT,
        "content.xml": "<d xmlns:t='u'><t:body><t:h t:outline-level='1'>A</t:h><t:list>"
        "<t:list-item><t:p>i</t:p></t:list-item></t:list><t:table><t:table-row>"
        "<t:table-cell t:number-rows-spanned='2' t:number-columns-repeated='3'><t:p>c</t:p>"
        "</t:table-cell></t:table-row></t:table><t:p>x<t:soft-page-break/>y</t:p></t:body></d>",
    }
)
_EPUB = samples.zipped(
    {
        "META-INF/container.xml": "<c><rootfile full-path='x.opf'/></c>",
        "x.opf": "<p><item id='a' href='a.xhtml' media-type='html'/><itemref idref='a'/></p>",
        "a.xhtml": "<html><h1>A</h1></html>",
    }
)
_DOCX = samples.docx([*TEXT, "A third paragraph."])
_PPTX = samples.pptx([["Title", *TEXT], ["Second", "text"]])
_HTML = (
    b"<!doctype html><html><head><meta charset=utf-8><title>T</title></head><body><h1>A</h1>"
    b"<table><tr><td>1</td></tr></table><!-- c --><p>x</p></body></html>"
)
_MAIL = (
    b"From: a@b\r\nTo: c@d\r\nSubject: =?utf-8?q?x?=\r\nMIME-Version: 1.0\r\n"
    b"Content-Type: multipart/mixed; boundary=x\r\n\r\n"
    b"--x\r\nContent-Type: text/plain\r\n\r\nhello\r\n"
    b"--x\r\nContent-Type: text/html\r\n\r\n<p>y</p>\r\n"
    b"--x\r\nContent-Type: application/pdf; name=a.pdf\r\n"
    b"Content-Transfer-Encoding: base64\r\n\r\nJVBERi0=\r\n--x--\r\n"
)

TARGETS: dict[str, Callable[[], Target]] = {
    "sniff": lambda: Target(
        read, [_HTML, _MAIL, _DOCX, _PPTX, _sheet(), pdf(*TEXT), b"a,b\n1,2\n", b"# T\n\ntext"]
    ),
    "docx": plain(file_type.DOCX, _DOCX, docx_with_entities(), bomb(_DOCX, 1 << 20)),
    "rtf": plain(file_type.RTF, _RTF),
    "msg": plain(file_type.MSG, message()),
    "odt.xml": member(_ODT, "content.xml", file_type.ODT),
    "epub.opf": member(_EPUB, "x.opf", file_type.EPUB),
    "docx.xml": member(_DOCX, "word/document.xml", file_type.DOCX),
    "pptx.xml": member(_PPTX, "ppt/presentation.xml", file_type.PPTX),
    "pptx.rels": member(_PPTX, "ppt/_rels/presentation.xml.rels", file_type.PPTX),
    "slide.xml": member(_PPTX, "ppt/slides/slide1.xml", file_type.PPTX),
    "xlsx": plain(file_type.XLSX, _sheet()),
    "sheet.xml": member(_sheet(), "xl/worksheets/sheet1.xml", file_type.XLSX),
    "csv": plain("text/csv", b'name;value\n"a;b";1\n\xe9;2\n', b"a,b,c\n" * 50),
    "html": plain("text/html", _HTML),
    "markdown": plain(
        "text/markdown", b"# T\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\ncode\n```\n- x\n"
    ),
    "mail": plain("message/rfc822", _MAIL),
    "pdf": plain(file_type.PDF, pdf(*TEXT), samples.protected(pdf(*TEXT), "x", owner_only=True)),
    "image": plain("image/png", samples.text_image(["hello"], kind="PNG")[:20000]),
    "api": bodies,
}

if __name__ == "__main__":
    sys.exit(main())
