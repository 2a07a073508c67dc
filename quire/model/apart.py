"""Names of files as people tell them apart: with a part of their path where a name repeats."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from urllib.parse import unquote


def names(files: Iterable[tuple[str, str]]) -> list[str]:
    """Return what to call each file (name, URI): folders stand before names that repeat."""
    told = [(name, unquote(uri).split("/")[:-1]) for name, uri in files]
    alike: dict[str, list[list[str]]] = defaultdict(list)
    for name, folders in told:
        alike[name].append(folders)
    depths = {name: _depth(places) for name, places in alike.items()}
    return ["/".join([*_last(folders, depths[name]), name]) for name, folders in told]


def _depth(places: Sequence[list[str]]) -> int:
    """Return how many folders tell files apart: none for one file, at most all there are."""
    depth, most = 0, max(map(len, places))
    while depth < most and len({tuple(_last(each, depth)) for each in places}) < len(places):
        depth += 1
    return depth


def _last(folders: list[str], depth: int) -> list[str]:
    return folders[-depth:] if depth else []
