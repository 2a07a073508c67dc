"""The relationships of a part of an Office file: which other parts it names by id."""

import posixpath
import zipfile

from quire.parse.office import ooxml


def relationships(members: zipfile.ZipFile, part: str) -> dict[str, tuple[str, str]]:
    """Return the relationships of a part: id → (type, archive member)."""
    folder, name = posixpath.split(part)
    relations = f"{folder}/_rels/{name}.rels"
    if relations not in members.namelist():
        return {}
    with members.open(relations) as file:
        listed = ooxml.elements(file, "Relationship")
    found = {}
    for names in listed:
        target = posixpath.normpath(posixpath.join("/" + folder, names.get("Target", "")))[1:]
        found[names.get("Id", "")] = (names.get("Type", "").rpartition("/")[2], target)
    return found
