"""Presentations (PPTX), read from the XML of the slides; a slide is a page.

A slide is one small file, so its key is cheap and it can be read alone: its shapes in the order of
creation, then its diagrams, then the speaker notes under a heading of their own.
"""

import zipfile
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from xml.parsers import expat

from quire.errors import Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse.composer import Composer
from quire.parse.office import archive, ooxml
from quire.parse.office.relations import relationships
from quire.parse.office.slide import SlidePart
from quire.parse.parser import BuiltinParser, ReadOptions, ReadRequest

MAX_SLIDES = 100_000

_NOTES = "Notes"
_MAIN = "ppt/presentation.xml"


class PptxParser(BuiltinParser):
    """PPTX files."""

    name = "slides"
    version = 3

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Count the slides and compute the key of each."""
        archive.check(path)
        with archive.open_archive(path) as members:
            slides = _slides(members, path.name)
            count = len(slides)
            if not slides:
                raise Unreadable(f"{path.name}: has no slides.")
            if count > MAX_SLIDES:
                raise Unreadable(f"{path.name}: has {count:,} slides (at most {MAX_SLIDES:,}).")
            keys = tuple(_key(members, slide) for slide in slides)
        return Outline(media_type, "page", count, keys)

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield the requested slides."""
        with archive.open_archive(request.path) as members:
            slides = _slides(members, request.path.name)
            for number in range(request.first, min(request.last, len(slides)) + 1):
                try:
                    yield _page(members, slides[number - 1], number)
                except (expat.ExpatError, KeyError, zipfile.BadZipFile, Unreadable) as error:
                    yield PageFailure(number, f"slide {number}: cannot be read ({error}).")


def _page(members: zipfile.ZipFile, slide: str, number: int) -> Page:
    page = Composer()
    for kind, part in _parts(members, slide):
        heading = _NOTES if kind == "notesSlide" else ""
        with members.open(part) as file:
            ooxml.read(file, SlidePart(page, is_slide=kind == "slide", heading=heading))
    return page.page(number, f"slide {number}")


def _slides(members: zipfile.ZipFile, name: str) -> list[str]:
    """Return the archive members of the slides, in presentation order."""
    if _MAIN not in members.namelist():
        raise Unreadable(f"{name}: is damaged: {_MAIN} is missing.")
    try:
        targets = relationships(members, _MAIN)
        with members.open(_MAIN) as file:
            slides = ooxml.elements(file, "sldId")
    except expat.ExpatError as error:
        raise Unreadable(f"{name}: is damaged ({_MAIN}: {error}).") from error
    # A slide has an `id` of its own and, in the namespace of relationships, that of its part.
    found = [one for slide in slides for key, one in slide.items() if key.endswith(" id")]
    return [targets[rel_id][1] for rel_id in found if rel_id in targets]


def _parts(members: zipfile.ZipFile, slide: str) -> list[tuple[str, str]]:
    """Return the kinds and archive members of a slide: itself, its diagrams and its notes."""
    related = relationships(members, slide).values()
    wanted = [each for kind in ("diagramData", "notesSlide") for each in related if each[0] == kind]
    return [("slide", slide), *(each for each in wanted if each[1] in members.NameToInfo)]


def _key(members: zipfile.ZipFile, slide: str) -> str:
    digest = blake2b(digest_size=16)
    try:
        parts = [part for _, part in _parts(members, slide)]
    except (expat.ExpatError, Unreadable):  # reading the slide fails, and no other one
        parts = [slide]
    for part in parts:
        if part in members.NameToInfo:
            content = members.read(part)
            digest.update(b"%d " % len(content) + content)
    return digest.hexdigest()
