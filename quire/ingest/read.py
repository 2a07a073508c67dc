"""Read: get the text of pages, from the parser or from earlier work.

A page that was stored under the same key is reused. A page whose image was recognised before
reuses the text of the OCR.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from quire.errors import Permanent
from quire.ingest import resources
from quire.ingest.fetch import DocumentFile
from quire.model.context import TaskContext
from quire.model.pages import Outline, Page, PageFailure
from quire.model.pipeline import digest
from quire.parse import formats, ocr, plugin_layout
from quire.parse.limits import TextBudget
from quire.store.db import dialect
from quire.store.documents import generation_pages, pages
from quire.store.documents.pages import ReadPage, StoredPage
from quire.text import fields, language

_Timed = tuple[Page | PageFailure, float]  # with the seconds that reading took


@dataclass(frozen=True, slots=True)
class ReadPages:
    """The pages of one task: read now, reused, or failed."""

    keys: dict[int, str]  # page number → key
    fresh: list[ReadPage]
    stored: dict[str, StoredPage]  # by key
    failures: dict[int, str]  # page number → reason
    reused_ocr: set[int]  # those of `fresh` that have the text of an earlier OCR
    reused: Counter[str]  # pages, ocr and milliseconds, for the statistics


def read_file(
    ctx: TaskContext, file: DocumentFile, outline: Outline, keys: Mapping[int, str]
) -> ReadPages:
    """Read a whole file, or the pages of it that `keys` names."""
    if outline.unit == "page":
        return read_pages(ctx, file, keys)
    return _read_unpaged(ctx, file)


def read_pages(ctx: TaskContext, file: DocumentFile, keys: Mapping[int, str]) -> ReadPages:
    """Read pages by number."""

    def is_known(image_key: str) -> bool:
        return _page_of_image(ctx, file, _image_key(file, image_key)) is not None

    reader = resources.reader(ctx, file.build.tenant)

    def parse(numbers: Sequence[int]) -> Iterable[Page | PageFailure]:
        for first, last in join_ranges(numbers):
            yield from reader.read(file.path, file.media_type, file.options, first, last, is_known)

    return _read(ctx, file, keys, parse)


def _read_unpaged(ctx: TaskContext, file: DocumentFile) -> ReadPages:
    """Read a file whose pages are not known before it is read."""
    recipe = formats.recipe(file.media_type, file.options)

    def keys_up_to(count: int) -> dict[int, str]:
        return {n: digest("whole", file.digest, recipe, n) for n in range(1, count + 1)}

    tenant = file.build.tenant
    with ctx.database.read() as conn:
        count = generation_pages.count_earlier_pages(conn, tenant, keys_up_to(1)[1])
        keys = keys_up_to(count)
        stored = pages.find(conn, tenant, list(keys.values()))
    if keys and len(stored) == len(keys):
        return _read(ctx, file, keys, lambda _: ())
    found = {}
    reader = resources.reader(ctx, tenant)
    budget = TextBudget(is_whole=True)
    for page in reader.read(file.path, file.media_type, file.options, 1, 1):
        page = budget.checked(page)
        ctx.check()
        ctx.progress(None, f"page {page.number}")
        found[page.number] = page
    if not found:
        raise Permanent(f"{file.build.name}: the parser returned no text.")
    keys = keys_up_to(max(found))
    return _read(ctx, file, keys, lambda numbers: (found[n] for n in numbers), is_whole=True)


def _read(
    ctx: TaskContext,
    file: DocumentFile,
    keys: Mapping[int, str],
    parse: Callable[[list[int]], Iterable[Page | PageFailure]],
    *,
    is_whole: bool = False,
) -> ReadPages:
    """Look up the pages; `parse` yields those that are missing."""
    with ctx.database.read() as conn:
        stored = pages.find(conn, file.build.tenant, list(keys.values()))
    missing = [number for number, key in sorted(keys.items()) if key not in stored]
    result = ReadPages(dict(keys), [], stored, {}, set(), Counter())
    for number in keys.keys() - set(missing):
        page = stored[keys[number]]
        _count_reused(result, page.via, page.seconds)
    budget = TextBudget(is_whole=is_whole)
    timed = _timed(map(budget.checked, parse(missing) if missing else ()))
    if file.options.layout:
        # A box answers one question at a time: pictures are asked for after the pages.
        timed = iter([_told(ctx, each) for each in timed])
    for parsed, seconds in timed:
        ctx.check()
        _add(ctx, file, result, parsed, seconds)
        done = len(result.fresh) / max(len(missing), 1)
        ctx.progress(done, f"page {parsed.number}")
    read_keys = {page.key for page in result.fresh}
    for number in missing:
        if keys[number] not in read_keys and number not in result.failures:
            result.failures[number] = f"page {number}: the parser returned nothing."
    return result


def _timed(pages: Iterable[Page | PageFailure]) -> Iterator[_Timed]:
    """Yield pages with the seconds that reading each took."""
    started = time.perf_counter()
    for page in pages:
        seconds, started = time.perf_counter() - started, time.perf_counter()
        yield page, seconds


def _told(ctx: TaskContext, timed: _Timed) -> _Timed:
    """Report a page that was read and waits for its layout."""
    ctx.check()
    ctx.progress(None, f"page {timed[0].number}")
    return timed


def _add(
    ctx: TaskContext,
    file: DocumentFile,
    result: ReadPages,
    page: Page | PageFailure,
    seconds: float,
) -> None:
    if isinstance(page, PageFailure):
        result.failures[page.number] = page.error
        return
    key = result.keys.get(page.number)
    if key is None:
        return
    if page.via == "ocr" and page.image_key:
        page = _with_earlier_ocr(ctx, file, result, page)
    page = _with_layout(ctx, file, page)
    # The text is chunked as it is stored, or a later attempt would chunk a different text.
    page = page._replace(text=dialect.sanitize_text(page.text))
    code = file.pipeline.language
    spoken = language.detect(page.text) if code == "auto" else code
    fresh = ReadPage(key, page, spoken, seconds, fields.heads(page.text, spoken))
    result.fresh.append(fresh)
    if page.via == "ocr":
        # OCR is the most expensive step: store each page at once.
        ctx.step(
            f"ocr {file.build.generation}.{page.number}",
            lambda tx: bool(pages.put(tx.connection, file.build.tenant, [fresh], ctx.task_id)),
        )


def _with_layout(ctx: TaskContext, file: DocumentFile, page: Page) -> Page:
    """Let the plugin that the corpus names look at a page."""
    setting = file.options.layout
    if not formats.has_pictures(file.media_type) or not plugin_layout.wants(setting, page):
        return page
    reader = resources.reader(ctx, file.build.tenant)
    width = plugin_layout.PICTURE_WIDTH
    pixels = reader.pixels(file.path, file.media_type, page.number, width)
    return plugin_layout.improved(setting, page, pixels)


def _with_earlier_ocr(ctx: TaskContext, file: DocumentFile, result: ReadPages, page: Page) -> Page:
    """Complete a page whose OCR the parser left out because its image is known."""
    image_key = _image_key(file, str(page.image_key))
    page = page._replace(image_key=image_key)
    earlier = _page_of_image(ctx, file, image_key)
    if page.text or earlier is None:
        return page
    _count_reused(result, "ocr", earlier.seconds)
    result.reused_ocr.add(page.number)
    found = ocr.blocks_of(earlier.text, earlier.words, page.height)
    return page._replace(text=earlier.text, words=earlier.words, blocks=found)


def _page_of_image(
    ctx: TaskContext, file: DocumentFile, image_key: str
) -> pages.RecognisedPage | None:
    with ctx.database.read() as conn:
        return pages.find_by_image(conn, file.build.tenant, image_key)


def _image_key(file: DocumentFile, image_key: str) -> str:
    """Return the key of an image under the OCR engine that is used now."""
    recipe = formats.recipe(file.media_type, file.options)
    return digest("image", image_key, recipe.get("engine"))


def _count_reused(result: ReadPages, via: str, seconds: float) -> None:
    result.reused["ocr" if via == "ocr" else "pages"] += 1
    result.reused["milliseconds"] += round(seconds * 1000)


def join_ranges(numbers: Sequence[int], size: int | None = None) -> list[tuple[int, int]]:
    """Join numbers into ranges without gaps, of at most `size` each."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        last = found[-1] if found else None
        if last and number == last[1] + 1 and (size is None or number - last[0] < size):
            found[-1] = (last[0], number)
        else:
            found.append((number, number))
    return found
