"""Computes a digest of the content of each page of a PDF, without parsing the page.

It covers the compressed content streams, the resources they use (fonts, images, forms, each hashed
once per file) and the page boxes. It leaves out object numbers, so a page keeps its key when the
pages around it change, and annotations, links and names, which are not part of the text.
"""

import logging
import math
import re
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

_REFERENCE = re.compile(rb"(?<!\d)(\d++) (\d++) R\b")
_PAGE = re.compile(rb"/Type /Pages?\b")
_IMAGE = re.compile(rb"/Subtype /Image\b")
_SIDE = re.compile(rb"/(?:Width|Height) (\d{1,9})\b")
_INHERITED = ("/Resources", "/MediaBox", "/CropBox", "/Rotate")
_OWN = ("/UserUnit", "/Group")
_MAX_DEPTH = 40
_MAX_REPEATS = 10_000
_MMAP_BYTES = 8 << 20
#: Pixels of a page's images from which on it may be a scan: a letter at 72 dpi has more.
_SCAN_PIXELS = 400_000


class PageKeys(NamedTuple):
    """The keys of all pages of a file."""

    keys: tuple[str, ...]
    scans: int  # pages whose images are large enough to be a scan


class _TooManyCycles(Exception):
    """The objects have too many reference cycles."""


def compute(path: Path, count: int) -> PageKeys | None:
    """Return the keys of the `count` pages, or None if the structure cannot be read."""
    import pikepdf

    # Mapping a file takes a third of the time, but a large one would fill memory.
    is_small, modes = path.stat().st_size <= _MMAP_BYTES, pikepdf.AccessMode
    # It logs every repair; errors that matter are raised.
    logging.getLogger("pikepdf").setLevel(logging.CRITICAL)
    try:
        with pikepdf.open(
            path,
            suppress_warnings=True,
            inherit_page_attributes=False,  # resolved here, once per node
            access_mode=modes.mmap if is_small else modes.stream,
        ) as pdf:
            if len(pdf.pages) != count:
                return None
            hasher = _Hasher(pdf)
            keys = tuple(hasher.page(page.obj) for page in pdf.pages)
            return PageKeys(keys, hasher.scans)
    except (pikepdf.PdfError, _TooManyCycles, RecursionError, ValueError, TypeError, OSError):
        return None
    except pikepdf.PasswordError:  # PDFium could open it: the two differ on damaged encryption
        return None
    except (AttributeError, KeyError, IndexError, RuntimeError):  # objects of the wrong type
        return None


class _Hasher:
    """Digests of the objects of one file, by object number."""

    def __init__(self, pdf: Any) -> None:
        self.scans = 0
        self._pdf = pdf
        self._pixels = 0  # of the images met so far, repeated ones included
        self._known: dict[tuple[int, int], tuple[bytes, int]] = {}  # digest, pixels
        self._parents: dict[tuple[int, int], tuple[dict[str, bytes], int]] = {}
        self._open: dict[tuple[int, int], int] = {}  # being hashed → depth
        self._cycle_to = _MAX_DEPTH  # lowest depth that a reference led back to
        self._repeats = 0
        self._resolved_values: dict[bytes, tuple[bytes, int]] = {}  # serialized → resolved, pixels
        self._layers = self._value(pdf.Root.get("/OCProperties"), 0)

    def page(self, page: Any) -> str:
        names = page.keys()  # looking up a missing key is slow
        before = self._pixels
        inherited, pixels = self._inherited(page.get("/Parent"), 0)
        self._pixels = before + (0 if "/Resources" in names else pixels)
        parts = [self._layers]
        for name in (*_INHERITED, *_OWN):
            value = self._entry(page, name) if name in names else inherited.get(name, b"")
            parts.append(b"%b %b\n" % (name.encode(), value))
        if "/Contents" in names:
            parts.append(self._value(page.get("/Contents"), 0))
        self.scans += self._pixels - before >= _SCAN_PIXELS
        return blake2b(b"".join(parts), digest_size=16).hexdigest()

    def _entry(self, page: Any, name: str) -> bytes:
        """Return the digest of a page's entry; many pages share the same value."""
        import pikepdf

        value = page.get(name)
        if not isinstance(value, pikepdf.Object) or value.is_indirect:
            return self._value(value, 0)
        serialized = value.unparse()
        if (known := self._resolved_values.get(serialized)) is not None:
            self._pixels += known[1]
            return known[0]
        before = self._pixels
        resolved = self._resolved(serialized, 0)
        self._resolved_values[serialized] = resolved, self._pixels - before
        return resolved

    def _inherited(self, node: Any, depth: int) -> tuple[dict[str, bytes], int]:
        """Return the attributes that a page inherits from its ancestors, and their pixels."""
        if node is None or depth > _MAX_DEPTH:
            return {}, 0
        number = node.objgen
        if number not in self._parents:
            above, pixels = self._inherited(node.get("/Parent"), depth + 1)
            before = self._pixels
            own = {name: node.get(name) for name in _INHERITED}
            mine = {name: self._value(value, 0) for name, value in own.items() if value is not None}
            self._parents[number] = above | mine, max(pixels, self._pixels - before)
        return self._parents[number]

    def _value(self, value: Any, depth: int) -> bytes:
        """Return the serialized form of a value, with each reference replaced by a digest."""
        import pikepdf

        if value is None:
            return b""
        if not isinstance(value, pikepdf.Object):
            return repr(value).encode()
        if value.is_indirect:
            return self._reference(*value.objgen, depth)
        return self._resolved(value.unparse(), depth)

    def _resolved(self, serialized: bytes, depth: int) -> bytes:
        return _REFERENCE.sub(lambda r: self._reference(int(r[1]), int(r[2]), depth), serialized)

    def _reference(self, number: int, generation: int, depth: int) -> bytes:
        key = (number, generation)
        if (known := self._known.get(key)) is not None:
            self._pixels += known[1]
            return known[0]
        if key in self._open:
            self._cycle_to = min(self._cycle_to, self._open[key])
            return b"circle-%d" % (depth - self._open[key])
        if depth >= _MAX_DEPTH:
            raise _TooManyCycles
        outer, self._cycle_to = self._cycle_to, _MAX_DEPTH
        self._open[key] = depth
        before = self._pixels
        try:
            digest = self._object(self._pdf.get_object(key), depth + 1)
        finally:
            del self._open[key]
        # A digest computed inside a cycle is incomplete: it depends on where the cycle began.
        if self._cycle_to >= depth:
            self._known[key] = digest, self._pixels - before
        else:
            self._repeats += 1
            if self._repeats > _MAX_REPEATS:
                raise _TooManyCycles
        self._cycle_to = min(outer, self._cycle_to)
        return digest

    def _object(self, value: Any, depth: int) -> bytes:
        import pikepdf

        if not isinstance(value, pikepdf.Object):
            return repr(value).encode()
        is_stream = isinstance(value, pikepdf.Stream)
        serialized = value.stream_dict.unparse() if is_stream else value.unparse(resolved=True)
        if not is_stream and _PAGE.search(serialized) and value.get("/Type") in ("/Page", "/Pages"):
            return b"page"  # another page: not part of this one
        digest = blake2b(self._resolved(serialized, depth), digest_size=16)
        if is_stream:
            if _IMAGE.search(serialized):
                self._pixels += math.prod(map(int, _SIDE.findall(serialized)[:2]))
            digest.update(value.read_raw_bytes())
        return digest.hexdigest().encode()
