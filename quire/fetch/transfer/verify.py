"""Verifies a download: size, hashes and file signature."""

from typing import NoReturn

from quire.errors import Damaged, FetchFailed
from quire.fetch.items import Item
from quire.fetch.transfer.part_file import PartFile, remove

PDF = "application/pdf"
_SIGNATURES = {
    PDF: b"%PDF-",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": b"PK\x03\x04",
}
#: PDF readers search this far into the file for the signature.
_WINDOW = 1024


def verify(part: PartFile, item: Item, total: int | None, digests: dict[str, str]) -> str:
    """Check size, hashes and signature; return what was checked, or delete the part and raise."""
    checked = []
    for size in (item.size, total):
        if size is not None and part.size != size:
            refuse_size(part, item, size, part.size)
    if item.size is not None or total is not None:
        checked.append("size")
    listed = {"md5": item.md5, "sha256": item.sha256}
    known = {**digests, **{kind: digest for kind, digest in listed.items() if digest}}
    for kind, expected in sorted(known.items()):
        got = part.md5 if kind == "md5" else part.sha256
        if got != expected.lower():
            remove(part.path)
            raise FetchFailed(
                f"{item.name}: checksum differs after download (expected {kind} {expected}, "
                f"got {got}). The partial file was removed."
            )
        checked.append(kind)
    if _check_signature(part, item):
        checked.append("signature")
    return ", ".join(checked)


def refuse_size(part: PartFile, item: Item, expected: int, got: int) -> NoReturn:
    """Delete the part and raise an error that says which size was expected."""
    remove(part.path)
    raise FetchFailed(
        f"{item.name}: size differs after download (expected {expected:,} bytes, got {got:,}). "
        "The partial file was removed."
    )


def _check_signature(part: PartFile, item: Item) -> bool:
    kind = (item.media_type or "").partition(";")[0].strip().lower()
    if (signature := _SIGNATURES.get(kind)) is None:
        return False
    head = part.head(_WINDOW)
    if signature in head if kind == PDF else head.startswith(signature):
        return True
    remove(part.path)
    raise Damaged(
        f"{item.name}: not of the type that the source states (expected {kind} with the signature "
        f"{signature!r}, got {head[:16]!r}). The partial file was removed."
    )
