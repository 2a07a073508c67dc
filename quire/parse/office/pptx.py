"""Presentations (PPTX), a page for each slide, read straight from the XML of the slides.

A slide is one small file, so it has a cheap key and is read alone: the text of its shapes in the
order in which they were made, then its diagrams, then the speaker's notes.
"""

import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from xml.parsers import expat

from quire.errors import Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse.markup import encoding
from quire.parse.office import archive, ooxml
from quire.parse.options import Options

VERSION = 1
MOST_SLIDES = 100_000

_MAIN = "ppt/presentation.xml"
_RELATIONSHIP = re.compile(rb"<(?:\w+:)?Relationship\b[^>]*>")
_ATTRIBUTE = re.compile(rb"([\w:]+)\s*=\s*[\"']([^\"']*)[\"']")
_SLIDE = re.compile(rb"<(?:\w+:)?sldId\b[^>]*>")


def look(path: Path, media_type: str) -> Outline:
    """Count the slides and take the key of each."""
    archive.check(path)
    with archive.opened(path) as members:
        slides = _slides(members, path.name)
        if not slides:
            raise Unreadable(f"{path.name}: has no slides.")
        if len(slides) > MOST_SLIDES:
            raise Unreadable(f"{path.name}: has {len(slides):,} slides (at most {MOST_SLIDES:,}).")
        keys = tuple(_key(members, slide) for slide in slides)
    return Outline(media_type, "page", len(slides), keys)


def read(
    path: Path,
    media_type: str,
    options: Options,
    first: int,
    last: int,
    *,
    known_image: Callable[[str], bool] | None = None,
) -> Iterator[Page | PageFailure]:
    """Yield the slides first…last."""
    with archive.opened(path) as members:
        slides = _slides(members, path.name)
        for number in range(first, min(last, len(slides)) + 1):
            try:
                text = "\n\n".join(filter(None, _texts(members, slides[number - 1])))
                yield Page(number, encoding.clean(text).strip(), label=f"slide {number}")
            except (
                expat.ExpatError,
                KeyError,
                zipfile.BadZipFile,
                Unreadable,
            ) as error:
                yield PageFailure(number, f"slide {number}: cannot be read ({error}).")


def _slides(members: zipfile.ZipFile, name: str) -> list[str]:
    """Return the members that are the slides, in the order of the presentation."""
    if _MAIN not in members.namelist():
        raise Unreadable(f"{name}: is damaged: {_MAIN} is missing.")
    targets = _targets(members, _MAIN)
    found = [_attributes(tag).get("r:id", "") for tag in _SLIDE.findall(members.read(_MAIN))]
    return [targets[identity][1] for identity in found if identity in targets]


def _targets(members: zipfile.ZipFile, part: str) -> dict[str, tuple[str, str]]:
    """Return what a part refers to: identity → (kind, member)."""
    folder, name = posixpath.split(part)
    relations = f"{folder}/_rels/{name}.rels"
    if relations not in members.namelist():
        return {}
    found = {}
    for tag in _RELATIONSHIP.findall(members.read(relations)):
        names = _attributes(tag)
        target = posixpath.normpath(posixpath.join("/" + folder, names.get("Target", "")))[1:]
        found[names.get("Id", "")] = (names.get("Type", "").rpartition("/")[2], target)
    return found


def _attributes(tag: bytes) -> dict[str, str]:
    return {
        name.decode(): value.decode("utf-8", "replace") for name, value in _ATTRIBUTE.findall(tag)
    }


def _parts(members: zipfile.ZipFile, slide: str) -> list[str]:
    """Return the members whose text belongs to a slide: itself, its diagrams and its notes."""
    related = _targets(members, slide).values()
    wanted = [part for kind in ("diagramData", "notesSlide") for k, part in related if k == kind]
    names = set(members.namelist())
    return [slide, *(part for part in wanted if part in names)]


def _key(members: zipfile.ZipFile, slide: str) -> str:
    digest = blake2b(digest_size=16)
    for part in _parts(members, slide):
        if part in members.NameToInfo:
            content = members.read(part)
            digest.update(b"%d " % len(content) + content)
    return digest.hexdigest()


def _texts(members: zipfile.ZipFile, slide: str) -> Iterator[str]:
    for part in _parts(members, slide):
        with members.open(part) as file:
            yield "\n".join(ooxml.paragraphs(file))
