"""Names of files as people tell them apart: with a part of their path where a name repeats."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from urllib.parse import unquote


def names(files: Iterable[tuple[str, str]]) -> list[str]:
    """Return what to call each file (name, URI): folders stand before names that repeat."""
    told = [(name, unquote(uri).split("/")[:-1]) for name, uri in files]
    alike: dict[str, list[int]] = defaultdict(list)
    for at, (name, _) in enumerate(told):
        alike[name].append(at)
    shown = [name for name, _ in told]
    for places in alike.values():
        folders = [told[at][1] for at in places]
        depth = _depth(folders)
        for at, folder in zip(places, folders, strict=True):
            shown[at] = "/".join([*folder[len(folder) - depth :], told[at][0]])
    return shown


def _depth(folders: Sequence[list[str]]) -> int:
    """Return how many folders tell the files apart; none where there is but one."""
    deepest = min(map(len, folders))
    for depth in range(deepest):
        if len({tuple(each[len(each) - depth :]) for each in folders}) == len(folders):
            return depth
    return deepest
