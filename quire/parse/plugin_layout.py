"""Layout by plugins: the picture and the words of a page in, its blocks out.

For pages on which the built-in reading finds no table although numbers stand in columns, or for
all. A plugin runs in the process of its task, outside the box: it is the operator's code. What it
returns is checked, because a block that names a wrong word would be shown on the wrong place.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from quire.errors import BadInput, Permanent
from quire.model import blocks
from quire.model.blocks import Block, BlockKind
from quire.model.contracts import LayoutKind
from quire.model.pages import Page, PagePicture
from quire.parse import table_headers, word_boxes

#: Pixels of the width of a picture: 150 dots an inch of an upright page.
PICTURE_WIDTH = 1240
_ALL = ":all"
_SAME_EDGE = 2.0  # points between right edges of numbers in a column
_MIN_COLUMNS, _MIN_NUMBERS = 2, 3

_layouts: dict[str, LayoutKind] = {}


def install(layouts: Mapping[str, LayoutKind]) -> None:
    """Replace the layouts of plugins of this process."""
    _layouts.clear()
    _layouts.update(layouts)


def recipe(setting: str) -> dict[str, Any]:
    """Return what decides the blocks of pages under a corpus setting."""
    return {"layout": setting, "layout_version": _kind(setting).version} if setting else {}


def wants(setting: str, page: Page) -> bool:
    """Tell whether the plugin looks at a page: at each, or where a table may have been missed."""
    if not setting or not page.words:
        return False
    return setting.endswith(_ALL) or _may_lack_table(page)


def improved(setting: str, page: Page, pixels: Any) -> Page:
    """Return a page with the blocks that a plugin finds; without any, it stays as it is."""
    kind = _kind(setting)
    words = word_boxes.unpack(page.words, page.text)
    found = kind.function(PagePicture(pixels, words, page.width, page.height))
    if not found:
        return page
    return page._replace(blocks=_packed(kind, page, found, len(words)))


def _packed(kind: LayoutKind, page: Page, found: Any, words: int) -> bytes:
    try:
        if not all(isinstance(each, Block) for each in found):
            raise TypeError("not all of them are blocks")
        packed = blocks.pack(list(found))
        blocks.unpack(packed, words)
    except (TypeError, ValueError, OverflowError) as error:
        raise Permanent(
            f"layout {kind.name} gave page {page.number} blocks that are not of its words "
            f"({error}). Fix the plugin: return quire.model.blocks.Block."
        ) from error
    return packed


def _kind(setting: str) -> LayoutKind:
    name = setting.removesuffix(_ALL)
    if name not in _layouts:
        known = ", ".join(_layouts) or "none"
        raise BadInput(
            f"corpus setting layout: {name!r} is not known here. Known: {known}. Load the plugin "
            "that provides it, or leave the setting empty."
        )
    return _layouts[name]


def _may_lack_table(page: Page) -> bool:
    """Tell whether numbers stand in columns of a page without a table."""
    words = word_boxes.unpack(page.words, page.text)
    found = blocks.unpack(page.blocks, len(words))
    if any(block.kind == BlockKind.TABLE for block in found):
        return False
    edges = Counter(
        round((word.x + word.width) / _SAME_EDGE)
        for word in words
        if table_headers.is_number(word.text)
    )
    columns = sum(edges[each] + edges[each + 1] >= _MIN_NUMBERS for each in list(edges))
    return columns >= _MIN_COLUMNS
