"""Takes in one document: fetch, find out what it is, then read it here or split it.

What the same bytes gave before, in the same way, is taken over whole. A small file is read,
stored and swapped in by this one task.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from quire.errors import Damaged, FetchFailed, Overtaken, Unreadable
from quire.fetch.items import Item
from quire.ingest import attachments, range_task, resources
from quire.ingest.read import Harvest, Work, options_of, read_pages, read_whole, runs
from quire.model.pages import Outline
from quire.model.pipeline import Pipeline, digest, digests
from quire.model.records import About
from quire.parse import file_type, formats
from quire.store.documents import admission, generation_pages, generations, pages, reuse_stats
from quire.store.reports import tasks as task_reports
from quire.store.search import vectors
from quire.text.tokens import Estimate

#: Bytes from which on a file is fetched under a document that is seen to be at work.
NEAR = 32 << 20


class Content(NamedTuple):
    """The bytes of a file, where they are kept, and what they are."""

    digest: str
    size: int
    path: Path
    media_type: str
    recipe: str


def run(ctx: Any, document: int, **payload: Any) -> None:
    """Take in a document under the generation of its task."""
    try:
        _Taking(ctx, document, payload).run()
    except Overtaken as error:
        with ctx.fenced() as tx:
            tx.skip(str(error))


def finish(ctx: Any, document: int, **payload: Any) -> None:
    """Swap in a generation whose ranges have ended; a revived one is taken in again."""
    with ctx.database.read() as conn:
        generation = task_reports.span_of(conn, ctx.task_id).generation
        is_at_work = generations.is_building(conn, document, generation)
    if not is_at_work:
        run(ctx, document, **payload)
        return
    try:
        with ctx.fenced() as tx:
            swap(tx, document, generation)
    except Overtaken as error:
        with ctx.fenced() as tx:
            tx.skip(str(error))


def swap(tx: Any, document: int, generation: int) -> None:
    """Swap in a generation, or end the task as failed with the reason."""
    swapped = generations.swap(tx.connection, document, generation, now=tx.now)
    if swapped.failure is not None:
        tx.fail(swapped.failure)
        return
    tx.finish(
        {"pages": swapped.pages, "chunks": swapped.chunks, "page_errors": swapped.page_errors}
    )


class _Collected(Exception):
    """The generation that was to be taken over has been collected meanwhile."""


class _Taking:
    def __init__(self, ctx: Any, document: int, payload: Mapping[str, Any]) -> None:
        self.ctx = ctx
        self.payload = payload
        seen = self._seen(document)
        self.is_begun = seen is None
        self.begun = seen or ctx.write(lambda tx: self._begin(tx, document))
        self.pipeline = Pipeline().merged(self.begun.settings)
        self.blobs = resources.blobs_of(ctx.settings)

    def _seen(self, document: int) -> generations.Build | None:
        """Look at a document whose file is near: it begins when that is written down, not before.

        To write twice would take longer than to copy the file.
        """
        item = self.payload.get("item")
        if (
            item is None
            or not item["uri"].startswith("file:")
            or (item.get("size") or NEAR) >= NEAR
        ):
            return None
        with self.ctx.database.read() as conn:
            return generations.peek(conn, self.ctx.task_id, document)

    def _begin(self, tx: Any, document: int) -> generations.Build:
        return generations.start(tx.connection, self.ctx.task_id, document, now=tx.now)

    def run(self) -> None:
        content, work = self._content()
        if self._take_over(content):
            return
        try:
            outline = formats.inspect(content.path, content.media_type, options_of(self.pipeline))
            self._take_in(content, work, outline)
        except Unreadable as error:
            # The parser knows the blob's name, people know the document's.
            raise Unreadable(str(error).replace(content.path.name, self.begun.name)) from None

    def _content(self) -> tuple[Content, Work]:
        """Have the bytes here, and write down what they are and how they will be read."""
        stored, size = self.payload.get("digest"), self.payload.get("size", 0)
        if stored is None:
            return self._fetched()
        content = self._identified(stored, size, self.blobs.checked_path(stored, size))
        return content, self.ctx.write(lambda tx: self._describe(tx, content))

    def _fetched(self) -> tuple[Content, Work]:
        """Bring the bytes here; a later try goes on with the part that this one left."""
        ctx = self.ctx
        item = Item(**self.payload["item"])
        self.blobs.check_available()
        source = resources.source_of(ctx.settings, self.payload["source"], self.payload["options"])
        part = self.blobs.part_path(f"task-{ctx.task_id}")

        def tell(got: int, whole: int | None) -> None:
            ctx.progress(got / whole if whole else None, f"fetched {got:,} bytes")

        fetched = source.fetch(item, part, tell, ctx.check)
        content = self._identified(fetched.sha256, fetched.size, part)
        # The row first: from now on no collector takes the file away.
        work = ctx.write(lambda tx: self._note(tx, content))
        self.is_begun = True
        self.blobs.put(part, content.digest)
        try:
            path = self.blobs.checked_path(content.digest, content.size)
        except Damaged as error:
            # Another run of this task, which has lost its lease, wrote to the same part.
            self.blobs.delete(content.digest)
            raise FetchFailed(f"{item.name}: {error} It is fetched again.") from error
        return content._replace(path=path), work._replace(path=path)

    def _identified(self, stored: str, size: int, path: Path) -> Content:
        media_type = file_type.detect(path, self.begun.name)
        recipe = digest(
            formats.recipe(media_type, options_of(self.pipeline)),
            self.pipeline.cut(),
            self.pipeline.row_size,
            self._embedder().name,
        )
        return Content(stored, size, path, media_type, recipe)

    def _note(self, tx: Any, content: Content) -> Work:
        pages.put_content(
            tx.connection, self.begun.tenant, content.digest, content.size, tx.now.wall
        )
        return self._describe(tx, content)

    def _keep(self, found: bytes, label: str) -> str:
        """Keep what was made here as a blob; its row comes first, as in `_fetched`."""
        import hashlib

        name = hashlib.sha256(found).hexdigest()
        part = self.blobs.part_path(f"{label}-{self.ctx.task_id}")
        part.write_bytes(found)
        self.ctx.write(
            lambda tx: pages.put_content(
                tx.connection, self.begun.tenant, name, len(found), tx.now.wall
            )
        )
        self.blobs.put(part, name)
        return name

    def _embedder(self) -> Any:
        return resources.settled_embedder(self.ctx, self.pipeline)

    def _describe(self, tx: Any, content: Content) -> Work:
        """Write what the generation is made of and how; returns the work to be done."""
        conn, embedder = tx.connection, self._embedder()
        cut = self.pipeline.cut() | {"counter": Estimate().name}
        cut_id = generations.chunking_id(conn, digest(cut), admission.canonical_json(cut))
        model_id = None
        if embedder.dimensions:
            model_id = vectors.register(conn, embedder.name, embedder.dimensions)
        if self.is_begun:
            generations.require_building(conn, self.begun.id, self.begun.generation)
        else:
            self.begun = self._begin(tx, self.begun.id)
        generations.record_inputs(
            conn,
            self.begun.id,
            self.begun.generation,
            digest=content.digest,
            recipe=content.recipe,
            media_type=content.media_type,
            cut_id=cut_id,
            model_id=model_id,
        )
        return Work(
            self.begun.id, self.begun.generation, self.begun.tenant, self.begun.name, content.path,
            content.media_type, self.pipeline, embedder, cut_id, model_id,
            self.ctx.database.path is None,
        )  # fmt: skip

    def _take_over(self, content: Content) -> bool:
        """Use what the same bytes gave before in the same way, if there is such a thing."""
        begun = self.begun
        with self.ctx.database.read() as conn:
            giver = generations.find_identical(conn, begun.tenant, content.digest, content.recipe)
        if giver is None:
            return False
        inside = self._inside(content)
        try:
            with self.ctx.fenced() as tx:
                generations.require_building(tx.connection, begun.id, begun.generation)
                if not generation_pages.copy(tx.connection, giver, begun.id, begun.generation):
                    raise _Collected
                kept = reuse_stats.count_reused(tx.connection, begun.id, begun.generation)
                reuse_stats.add(
                    tx.connection, begun.id, begun.generation, kept | {"whole_reused": 1}
                )
                self._attach(tx, inside)
                reuse_stats.share_thumbnail(tx.connection, giver[0], begun.id)
                swap(tx, begun.id, begun.generation)
        except _Collected:
            return False
        return True

    def _take_in(self, content: Content, work: Work, outline: Outline) -> None:
        keys = self._keys(content, outline)
        most = {"page": self.pipeline.page_size, "row": self.pipeline.row_size}.get(outline.unit)
        picture = self._picture(content, keys.get(1))
        # A try after a crash reads by ranges, which can be cut in two.
        if most is None or (self.ctx.attempt == 1 and self._is_small(outline, most)):
            self._read_here(content, work, outline, keys, picture)
        elif few := self._changed(work, outline, keys, most or 1):
            self._read_here(content, work, outline, few, picture, is_planned=True)
        else:
            self._split(work, outline, keys, picture, most or 1)

    def _is_small(self, outline: Outline, most: int) -> bool:
        if outline.length <= most or outline.unit != "page" or outline.pictures is None:
            return outline.length <= most
        # To hand over a range of text takes longer than to read it. Scans are worth their tasks.
        is_text = outline.pictures <= most and self.pipeline.ocr != "always"
        return is_text and outline.length <= self.pipeline.small_size

    def _changed(
        self, work: Work, outline: Outline, keys: dict[int, str], most: int
    ) -> dict[int, str]:
        """Return the pages that differ from those read before, where one task can read them."""
        if outline.unit != "page" or self.begun.live_generation is None or self.ctx.attempt > 1:
            return {}
        missing = self.ctx.write(lambda tx: self._plan(tx, work, keys))
        return {n: keys[n] for n in missing} if len(missing) <= most else {}

    def _plan(self, tx: Any, work: Work, keys: dict[int, str]) -> list[int]:
        begun = self.begun
        generations.require_building(tx.connection, begun.id, begun.generation)
        return generation_pages.plan(
            tx.connection, begun.tenant, begun.id, begun.generation, keys,
            cut_id=work.cut_id, model_id=work.model_id,
        )  # fmt: skip

    def _count_kept(self, tx: Any) -> None:
        begun = self.begun
        kept = reuse_stats.count_reused(tx.connection, begun.id, begun.generation)
        reuse_stats.add(tx.connection, begun.id, begun.generation, kept)

    def _keys(self, content: Content, outline: Outline) -> dict[int, str]:
        """Name every page by what it is made from and how it is read."""
        if outline.unit != "page":
            return {}
        recipe = digest(formats.recipe(content.media_type, options_of(self.pipeline)))
        parts = outline.keys or [f"{content.digest} {n}" for n in range(1, outline.length + 1)]
        return dict(enumerate(digests("page", parts, recipe), start=1))

    def _read_here(
        self,
        content: Content,
        work: Work,
        outline: Outline,
        keys: dict[int, str],
        picture: str | None,
        *,
        is_planned: bool = False,
    ) -> None:
        inside = self._inside(content)
        harvest = Harvest(self.ctx, work)
        if outline.unit == "row":
            range_task.read_rows(harvest, 1, outline.length)
        elif outline.unit == "page":
            harvest.gather(keys, lambda numbers: read_pages(harvest, numbers))
        else:
            read_whole(harvest, content.digest)
        with self.ctx.fenced() as tx:
            if is_planned:
                self._count_kept(tx)
            harvest.store(tx)
            self._attach(tx, inside)
            reuse_stats.set_thumbnail(tx.connection, self.begun.id, picture)
            swap(tx, self.begun.id, self.begun.generation)

    def _split(
        self,
        work: Work,
        outline: Outline,
        keys: dict[int, str],
        picture: str | None,
        most: int,
    ) -> None:
        begun = self.begun
        with self.ctx.fenced() as tx:
            reuse_stats.set_thumbnail(tx.connection, begun.id, picture)
            if outline.unit == "row":
                generations.require_building(tx.connection, begun.id, begun.generation)
                spans = [
                    (first, min(first + most - 1, outline.length))
                    for first in range(1, outline.length + 1, most)
                ]
            else:
                spans = runs(self._plan(tx, work, keys), most)
                self._count_kept(tx)
            if not spans:
                swap(tx, begun.id, begun.generation)
                return
            self._spawn(tx, outline.unit, spans)

    def _spawn(self, tx: Any, unit: str, spans: list[tuple[int, int]]) -> None:
        begun = self.begun
        tx.weigh(0.0)  # the work is in its pages
        made = [
            tx.spawn(
                "ingest.range",
                {"document": begun.id, "unit": unit},
                cost=float(last - first + 1) if unit == "page" else 1.0,
                about=About(begun.id, begun.generation, first, last),
            )
            for first, last in spans
        ]
        tx.spawn(
            "ingest.swap",
            {"document": begun.id, **self.payload},
            after=made,
            after_failure="run",
            about=About(begun.id, begun.generation, exclusive_key=f"document {begun.id}"),
        )

    def _picture(self, content: Content, first: str | None) -> str | None:
        """Make the thumbnail and keep it as a blob; None where there is none, or it is there."""
        # Drawing a page may be what killed the tries before: the last one does without.
        if not self.pipeline.thumbnails or 1 < self.ctx.attempt == self.ctx.max_attempts:
            return None
        if first is not None and self.begun.live_generation is not None:
            with self.ctx.database.read() as conn:
                if reuse_stats.has_thumbnail(conn, self.begun.id, first):
                    return None
        from quire.parse.render import thumbnail

        found = thumbnail(content.path, content.media_type)
        return None if found is None else self._keep(found, "picture")

    def _inside(self, content: Content) -> list[attachments.Inside] | None:
        """Keep the files inside a message as blobs; None where the type has nothing inside."""
        if content.media_type != "message/rfc822":
            return None
        return attachments.kept(content.path, self._keep, self.ctx.check)

    def _attach(self, tx: Any, inside: list[attachments.Inside] | None) -> None:
        if inside is not None:
            attachments.take_in(tx, self.begun, self.pipeline, self.ctx.job_id, inside)
