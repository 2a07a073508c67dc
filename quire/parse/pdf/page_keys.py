"""A digest of what each page of a PDF is made of, taken without parsing the page.

Covered are the compressed drawing commands, the resources they name (fonts, pictures, forms, each
hashed once per file) and the boxes of the page. Numbers of objects are not, so a page keeps its
key when the pages around it change. Annotations, links and names are not: they are never read.
"""

import logging
import re
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

_REFERENCE = re.compile(rb"(\d+) (\d+) R\b")
_PAGE = re.compile(rb"/Type /Pages?\b")
_PICTURE = re.compile(rb"/Subtype /Image\b")
_INHERITED = ("/Resources", "/MediaBox", "/CropBox", "/Rotate")
_OWN = ("/UserUnit", "/Group")
_DEEPEST = 40
_MOST_REPEATS = 10_000
_MAPPED = 8 << 20  # bytes


class Survey(NamedTuple):
    """What the pages of a file are made of."""

    keys: tuple[str, ...]
    pictures: int  # in the file, each counted once


class _TooTangled(Exception):
    """The objects refer to each other in more circles than is worth following."""


def load() -> None:
    """Load the library: the first file would wait for it."""
    import pikepdf  # noqa: F401


def survey(path: Path, count: int) -> Survey | None:
    """Return the key of each of the `count` pages, or None where the file does not give them."""
    import pikepdf

    # It speaks of every flaw it mends; what matters is told by what is raised.
    logging.getLogger("pikepdf").setLevel(logging.CRITICAL)
    try:
        with pikepdf.open(
            path,
            suppress_warnings=True,
            inherit_page_attributes=False,  # they are looked up here, once a node of the tree
            access_mode=_access(path),
        ) as pdf:
            if len(pdf.pages) != count:
                return None
            hashing = _Hashing(pdf)
            keys = tuple(hashing.page(page.obj) for page in pdf.pages)
            return Survey(keys, hashing.pictures)
    except (pikepdf.PdfError, _TooTangled, RecursionError, ValueError, TypeError, OSError):
        return None
    except (AttributeError, KeyError, IndexError, RuntimeError):  # objects of the wrong type
        return None


def _access(path: Path) -> Any:
    """Map a small file, which takes a third of the time; a large one would be all in memory."""
    import pikepdf

    is_small = path.stat().st_size <= _MAPPED
    return pikepdf.AccessMode.mmap if is_small else pikepdf.AccessMode.stream


class _Hashing:
    """The digests of the objects of one file, by their number."""

    def __init__(self, pdf: Any) -> None:
        self.pictures = 0
        self._pdf = pdf
        self._known: dict[tuple[int, int], bytes] = {}
        self._parents: dict[tuple[int, int], dict[str, bytes]] = {}
        self._open: dict[tuple[int, int], int] = {}  # being hashed now → how deep
        self._circle_to = _DEEPEST  # the least depth that a reference led back to
        self._repeats = 0
        self._lines: dict[bytes, bytes] = {}  # as written → with digests for references
        self._layers = self._value(pdf.Root.get("/OCProperties"), 0)

    def page(self, page: Any) -> str:
        names = page.keys()  # to ask for one that is not there takes longer than all the rest
        inherited = self._inherited(page.get("/Parent"), 0)
        parts = [self._layers]
        for name in _INHERITED:
            value = self._entry(page, name) if name in names else inherited.get(name, b"")
            parts.append(b"%b %b\n" % (name.encode(), value))
        for name in _OWN:
            value = self._entry(page, name) if name in names else b""
            parts.append(b"%b %b\n" % (name.encode(), value))
        if "/Contents" in names:
            parts.append(self._value(page.get("/Contents"), 0))
        return blake2b(b"".join(parts), digest_size=16).hexdigest()

    def _entry(self, page: Any, name: str) -> bytes:
        """Return the value of a page's entry; many pages have the same."""
        import pikepdf

        value = page.get(name)
        if not isinstance(value, pikepdf.Object) or value.is_indirect:
            return self._value(value, 0)
        written = value.unparse()
        if written not in self._lines:
            self._lines[written] = self._resolved(written, 0)
        return self._lines[written]

    def _inherited(self, node: Any, depth: int) -> dict[str, bytes]:
        """Return what a page takes over from the nodes above it."""
        if node is None or depth > _DEEPEST:
            return {}
        number = node.objgen
        if number not in self._parents:
            above = self._inherited(node.get("/Parent"), depth + 1)
            own = {name: node.get(name) for name in _INHERITED}
            mine = {name: self._value(value, 0) for name, value in own.items() if value is not None}
            self._parents[number] = above | mine
        return self._parents[number]

    def _value(self, value: Any, depth: int) -> bytes:
        """Return the written form of a value, each reference replaced by a digest."""
        import pikepdf

        if value is None:
            return b""
        if not isinstance(value, pikepdf.Object):
            return repr(value).encode()
        if value.is_indirect:
            return self._reference(*value.objgen, depth)
        return self._resolved(value.unparse(), depth)

    def _resolved(self, written: bytes, depth: int) -> bytes:
        return _REFERENCE.sub(lambda r: self._reference(int(r[1]), int(r[2]), depth), written)

    def _reference(self, number: int, generation: int, depth: int) -> bytes:
        key = (number, generation)
        if key in self._known:
            return self._known[key]
        if key in self._open:
            self._circle_to = min(self._circle_to, self._open[key])
            return b"circle-%d" % (depth - self._open[key])
        if depth >= _DEEPEST:
            raise _TooTangled
        outer, self._circle_to = self._circle_to, _DEEPEST
        self._open[key] = depth
        try:
            digest = self._object(self._pdf.get_object(key), depth + 1)
        finally:
            del self._open[key]
        # A digest made inside a circle misses what the circle's start still adds to it.
        if self._circle_to >= depth:
            self._known[key] = digest
        else:
            self._repeats += 1
            if self._repeats > _MOST_REPEATS:
                raise _TooTangled
        self._circle_to = min(outer, self._circle_to)
        return digest

    def _object(self, value: Any, depth: int) -> bytes:
        import pikepdf

        if not isinstance(value, pikepdf.Object):
            return repr(value).encode()
        is_stream = isinstance(value, pikepdf.Stream)
        written = value.stream_dict.unparse() if is_stream else value.unparse(resolved=True)
        if not is_stream and _PAGE.search(written) and value.get("/Type") in ("/Page", "/Pages"):
            return b"page"  # leads out of this one
        digest = blake2b(self._resolved(written, depth), digest_size=16)
        if is_stream:
            self.pictures += _PICTURE.search(written) is not None
            digest.update(value.read_raw_bytes())
        return digest.hexdigest().encode()
