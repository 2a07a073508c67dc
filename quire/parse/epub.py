"""Books (EPUB): an archive of HTML files; a page is a file of the reading order."""

import posixpath
import zipfile
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from urllib.parse import unquote
from xml.parsers import expat

from quire.errors import Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import encoding, markup
from quire.parse.office import archive, ooxml
from quire.parse.office.ooxml import Attributes
from quire.parse.parser import BuiltinParser, ReadOptions, ReadRequest

MAX_CHAPTERS = 100_000
_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"


class EpubParser(BuiltinParser):
    """EPUB files."""

    name = "epub"

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Count the files of the reading order and compute the key of each."""
        with archive.open_archive(path) as members:
            chapters = _chapters(members, path.name)
            keys = tuple(
                blake2b(members.read(each), digest_size=16).hexdigest() for each in chapters
            )
        return Outline(media_type, "page", len(chapters), keys)

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield the requested files."""
        with archive.open_archive(request.path) as members:
            chapters = _chapters(members, request.path.name)
            for number in range(request.first, min(request.last, len(chapters)) + 1):
                try:
                    yield _page(members, chapters[number - 1], number)
                except (KeyError, zipfile.BadZipFile, Unreadable) as error:
                    yield PageFailure(number, f"chapter {number}: cannot be read ({error}).")


def _page(members: zipfile.ZipFile, name: str, number: int) -> Page:
    size = members.getinfo(name).file_size
    if size > markup.MAX_BYTES:
        raise Unreadable(f"has {size:,} bytes of text (at most {markup.MAX_BYTES:,})")
    page = markup.html_page(encoding.decode(members.read(name)))
    return page._replace(number=number, label=f"chapter {number}")


def _chapters(members: zipfile.ZipFile, name: str) -> list[str]:
    """Return the archive members of the reading order."""
    try:
        package = _package(members)
        found = _spine(members, package)
        is_protected = bool(_encrypted(members) & set(found))
    except (expat.ExpatError, Unreadable) as error:
        raise Unreadable(f"{name}: is damaged ({error}).") from error
    if is_protected:
        raise Unreadable(f"{name}: is protected (DRM). Ingest an unprotected copy.")
    if not found:
        raise Unreadable(f"{name}: has no chapters.")
    if len(found) > MAX_CHAPTERS:
        raise Unreadable(f"{name}: has {len(found):,} chapters (at most {MAX_CHAPTERS:,}).")
    return found


def _package(members: zipfile.ZipFile) -> str:
    """Return the member that lists the others."""
    for root in _elements(members, _CONTAINER, "rootfile"):
        if (name := root.get("full-path", "")) in members.NameToInfo:
            return name
    raise Unreadable("its list of contents is missing")


def _spine(members: zipfile.ZipFile, package: str) -> list[str]:
    folder = posixpath.dirname(package)
    files = {}
    for item in _elements(members, package, "item"):
        href = unquote(item.get("href", "").partition("#")[0])
        if "html" in item.get("media-type", ""):
            files[item.get("id", "")] = posixpath.normpath(posixpath.join(folder, href))
    order = [each.get("idref", "") for each in _elements(members, package, "itemref")]
    # A file that is listed again is the same text again.
    found = dict.fromkeys(files[each] for each in order if each in files)
    return [each for each in found if each in members.NameToInfo]


def _encrypted(members: zipfile.ZipFile) -> set[str]:
    if _ENCRYPTION not in members.NameToInfo:
        return set()
    return {
        unquote(each.get("URI", "")) for each in _elements(members, _ENCRYPTION, "CipherReference")
    }


def _elements(members: zipfile.ZipFile, member: str, kind: str) -> list[Attributes]:
    if member not in members.NameToInfo:
        return []
    with members.open(member) as file:
        return ooxml.elements(file, kind)
