"""From pages to rows: reads what is not known yet, cuts it, embeds it, and stores it.

Everything costly happens before the transaction; `Harvest.store` only writes. What exists under
the same key is used instead, and counted as reused.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.errors import Permanent
from quire.ingest import resources
from quire.model.pages import Page, PageFailure, Piece
from quire.model.pipeline import Pipeline, digest, text_digest
from quire.parse import formats
from quire.parse.parser import ReadOptions
from quire.store.db import dialect
from quire.store.documents import generation_pages, generations, pages, reuse_stats
from quire.text import language, words
from quire.text.chunk import ChunkOptions, pieces

if TYPE_CHECKING:
    from quire.text.embed.embedder import Embedder


#: Chunks that are written in one transaction; more go in several, the last of which shows them.
MOST_AT_ONCE = 1_000
#: Chunks that are embedded between two reports; an endpoint's embedder reports before each request.
EMBEDDED_AT_ONCE = 512


class Work(NamedTuple):
    """What is needed to read pages of one generation."""

    document_id: int
    generation: int
    tenant: str
    name: str
    path: Path
    media_type: str
    pipeline: Pipeline
    embedder: "Embedder"
    cut_id: int
    model_id: int | None
    is_analysed: bool  # the full-text index wants every word stemmed by us


def options_of(pipeline: Pipeline) -> ReadOptions:
    """Return the parser's share of a corpus's settings."""
    languages = tuple(each.strip() for each in pipeline.ocr_languages.split(",") if each.strip())
    ocr: Any = pipeline.ocr
    return ReadOptions(pipeline.parser, ocr, languages, pipeline.row_size)


class Harvest:
    """The pages of one task, from the file or from earlier work, ready to be stored."""

    def __init__(self, ctx: Any, work: Work) -> None:
        self.ctx = ctx
        self.work = work
        self.fresh: list[pages.ReadPage] = []
        self.known: dict[str, pages.StoredPage] = {}
        self.numbers: dict[int, str] = {}
        self.failures: dict[int, str] = {}
        self.cuttings: dict[str, pages.PageChunks] = {}
        self.texts: dict[str, tuple[str, str, int]] = {}
        self.words: dict[str, str] = {}
        self.vectors: dict[str, bytes] = {}
        self.reused: Counter[str] = Counter()
        self.borrowed: set[int] = set()

    def gather(self, keys: Mapping[int, str], read: Callable[[list[int]], Iterable[Any]]) -> None:
        """Find or read the pages (number → key); `read` yields those of the numbers it is given."""
        work = self.work
        with self.ctx.database.read() as conn:
            self.known = pages.find(conn, work.tenant, list(keys.values()))
        self.numbers = dict(keys)
        missing = [number for number, key in sorted(keys.items()) if key not in self.known]
        for number in sorted(set(keys) - set(missing)):
            found = self.known[keys[number]]
            self._count_reused(found.via, found.seconds)
        began = time.perf_counter()
        for page in read(missing) if missing else ():
            self.ctx.check()
            seconds, began = time.perf_counter() - began, time.perf_counter()
            self.add(keys.get(page.number), page, seconds)
            self.ctx.progress(len(self.fresh) / max(len(missing), 1), f"page {page.number}")
        read_now = {each.key for each in self.fresh}
        for number in missing:
            if keys[number] not in read_now and number not in self.failures:
                self.failures[number] = f"page {number}: its reader returned nothing."
        self._cut()
        self._embed()
        self._store_ahead()

    def add(self, key: str | None, page: Page | PageFailure, seconds: float) -> None:
        """Take a page that was read, or note why it could not be."""
        if isinstance(page, PageFailure):
            self.failures[page.number] = page.error
            return
        if key is None:
            return
        if page.via == "ocr":
            page = self._recognised(page)
        # What is cut must be what is stored, or a later try would cut another text.
        page = page._replace(text=dialect.sanitize_text(page.text))
        tongue = self.work.pipeline.language
        if tongue == "auto":
            tongue = language.detect(page.text)
        made = pages.ReadPage(key, page, tongue, seconds)
        self.fresh.append(made)
        if page.via == "ocr":
            # Each recognised page is kept at once: it is the costliest thing there is.
            number = page.number
            self.ctx.step(
                f"ocr {self.work.generation}.{number}",
                lambda tx: bool(
                    pages.put(tx.connection, self.work.tenant, [made], self.ctx.task_id)
                ),
            )

    def _recognised(self, page: Page) -> Page:
        """Take the text of the same picture from earlier work, if the reader left it out."""
        if not page.image_key:
            return page
        page = page._replace(image_key=self._image_key(page.image_key))
        with self.ctx.database.read() as conn:
            row = pages.find_by_image(conn, self.work.tenant, str(page.image_key))
        if page.text or row is None:
            return page
        self._count_reused("ocr", row.seconds)
        self.borrowed.add(page.number)
        return page._replace(text=row.text, words=row.words)

    def knows_image(self, image_key: str) -> bool:
        """Tell whether the same picture was recognised before, by the same engine."""
        with self.ctx.database.read() as conn:
            found = pages.find_by_image(conn, self.work.tenant, self._image_key(image_key))
        return found is not None

    def _image_key(self, image_key: str) -> str:
        recipe = formats.recipe(self.work.media_type, options_of(self.work.pipeline))
        return digest("image", image_key, recipe.get("engine"))

    def _count_reused(self, via: str, seconds: float) -> None:
        self.reused["ocr" if via == "ocr" else "pages"] += 1
        self.reused["milliseconds"] += round(seconds * 1000)

    def _cut(self) -> None:
        """Cut the pages that were not cut this way before."""
        work, cut = self.work, set[int]()
        if self.known:
            with self.ctx.database.read() as conn:
                cut = pages.chunked(conn, [k.id for k in self.known.values()], work.cut_id)
        todo = [(key, k.text, k.language) for key, k in self.known.items() if k.id not in cut]
        todo += [(each.key, each.page.text, each.language) for each in self.fresh]
        self.reused["cut"] += len(cut)
        p = work.pipeline
        options = ChunkOptions(p.chunk_tokens, p.overlap, p.delimiter)
        index = words.indexed_simple if work.is_analysed else words.indexed
        for key, text, tongue in todo:
            found: Sequence[Piece] = pieces(text, options)
            digests = []
            for piece in found:
                chunk = text[piece.start : piece.stop]
                name = text_digest(chunk)
                digests.append(name)
                if name not in self.texts:
                    self.texts[name] = (chunk, tongue, piece.tokens)
                    self.words[name] = index(chunk, tongue)
            self.cuttings[key] = pages.PageChunks(found, digests)

    def _embed(self) -> None:
        """Embed the chunks that have no vector of the model yet."""
        work = self.work
        if work.model_id is None:
            return
        with self.ctx.database.read() as conn:
            done = pages.embedded(conn, work.tenant, work.model_id, list(self.texts))
            old = pages.chunks_without_vector(
                conn, [k.id for k in self.known.values()], work.cut_id, work.model_id
            )
        todo = {name: text for name, (text, _, _) in self.texts.items() if name not in done}
        todo.update(old)
        self.reused["vectors"] += len(done)
        names, waiting = list(todo), resources.Waiting(self.ctx)
        for start in range(0, len(names), EMBEDDED_AT_ONCE):
            some = names[start : start + EMBEDDED_AT_ONCE]
            self.ctx.check()
            found = work.embedder.embed([todo[name] for name in some], waiting)
            self.vectors |= {name: row.tobytes() for name, row in zip(some, found, strict=True)}
            if len(names) > EMBEDDED_AT_ONCE:
                self.ctx.progress(None, f"embedded {len(self.vectors):,} of {len(names):,} chunks")

    def _store_ahead(self) -> None:
        """Write the chunks of a large file a part at a time: no transaction may last long.

        They belong to no generation, and nothing points to them before `store`.
        """
        work, task_id = self.work, self.ctx.task_id
        names = sorted(self.texts)
        if len(names) <= MOST_AT_ONCE:
            return
        for start in range(0, len(names), MOST_AT_ONCE):
            some = names[start : start + MOST_AT_ONCE]
            texts = {name: self.texts[name] for name in some}
            found = {name: self.vectors[name] for name in some if name in self.vectors}

            def act(tx: Any, texts: Any = texts, found: Any = found) -> None:
                ids = pages.put_chunks(tx.connection, work.tenant, texts, self.words, task_id)
                if work.model_id is not None:
                    pages.put_vectors(tx.connection, work.tenant, work.model_id, found, ids)

            self.ctx.write(act)
            self.ctx.progress(None, f"stored {start + len(some):,} of {len(names):,} chunks")

    def store(self, tx: Any) -> None:
        """Write everything under the fence; the generation must still be at work."""
        work, conn = self.work, tx.connection
        generations.require_building(conn, work.document_id, work.generation)
        ids = {key: known.id for key, known in self.known.items()}
        ids.update(pages.put(conn, work.tenant, self.fresh, self.ctx.task_id))
        chunk_ids = pages.put_chunks(conn, work.tenant, self.texts, self.words, self.ctx.task_id)
        by_page = {ids[key]: cutting for key, cutting in self.cuttings.items()}
        pages.put_slices(conn, work.cut_id, by_page, chunk_ids)
        if work.model_id is not None:
            pages.put_vectors(conn, work.tenant, work.model_id, self.vectors, chunk_ids)
        filled: list[tuple[int, str, int | None, str | None]] = [
            (number, key, ids[key], None) for number, key in self.numbers.items() if key in ids
        ]
        filled += [
            (number, self.numbers.get(number, ""), None, self._why(number, error))
            for number, error in self.failures.items()
        ]
        generation_pages.fill(conn, work.document_id, work.generation, filled)
        reuse_stats.add(conn, work.document_id, work.generation, self.ledger())

    def ledger(self) -> dict[str, int]:
        """Return what was made and what was reused, for the generation's account."""
        made = Counter(
            "ocr" if each.page.via == "ocr" else "pages"
            for each in self.fresh
            if each.page.number not in self.borrowed
        )
        return {
            **{f"{name}_made": count for name, count in made.items()},
            "vectors_made": len(self.vectors),
            **{f"{name}_reused": count for name, count in self.reused.items() if count},
        }

    def _why(self, number: int, error: str) -> str:
        command = f"quire document read {self.work.document_id} --page {number}"
        return json.dumps({"kind": "unreadable", "error": error, "command": command})


def read_pages(harvest: Harvest, numbers: Sequence[int]) -> Iterable[Page | PageFailure]:
    """Read pages of a file by number, in runs without gaps."""
    work = harvest.work
    options = options_of(work.pipeline)
    for first, last in runs(numbers):
        yield from formats.read(
            work.path, work.media_type, options, first, last, known_image=harvest.knows_image
        )


def read_whole(harvest: Harvest, content_digest: str) -> None:
    """Read a file that has no pages known beforehand; whatever it yields becomes its pages."""
    work = harvest.work
    options = options_of(work.pipeline)
    recipe = formats.recipe(work.media_type, options)

    def keys_to(count: int) -> dict[int, str]:
        return {n: digest("whole", content_digest, recipe, n) for n in range(1, count + 1)}

    with harvest.ctx.database.read() as conn:
        keys = keys_to(reuse_stats.count_earlier_pages(conn, work.tenant, keys_to(1)[1]))
        known = pages.find(conn, work.tenant, list(keys.values()))
    if keys and len(known) == len(keys):
        harvest.gather(keys, lambda _: ())
        return
    made = {}
    for page in formats.read(work.path, work.media_type, options, 1, 1):
        harvest.ctx.check()
        harvest.ctx.progress(None, f"page {page.number}")
        made[page.number] = page
    harvest.gather(keys_to(max(made, default=0)), lambda numbers: (made[n] for n in numbers))
    if not made:
        raise Permanent(f"{work.name}: nothing could be read from it.")


def runs(numbers: Sequence[int], most: int | None = None) -> list[tuple[int, int]]:
    """Join numbers into ranges without gaps, of at most `most` each."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        last = found[-1] if found else None
        if last and number == last[1] + 1 and (most is None or number - last[0] < most):
            found[-1] = (last[0], number)
        else:
            found.append((number, number))
    return found
