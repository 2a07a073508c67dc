"""Thumbnail: an image of the first page, stored as a blob."""

from quire.ingest import resources
from quire.ingest.fetch import DocumentFile, store_bytes
from quire.model.context import TaskContext
from quire.store.documents import generations


def make_thumbnail(ctx: TaskContext, file: DocumentFile, first_key: str | None) -> str | None:
    """Render the first page and return the digest of the image.

    Returns None if thumbnails are off, the type has none, or the document has that of this page.
    """
    # Rendering may have crashed the earlier attempts: the last one goes without.
    if not file.pipeline.thumbnails or 1 < ctx.attempt == ctx.max_attempts:
        return None
    build = file.build
    if first_key is not None and build.live_generation is not None:
        with ctx.database.read() as conn:
            if generations.has_thumbnail(conn, build.document_id, first_key):
                return None
    image = resources.reader(ctx, build.tenant).thumbnail(file.path, file.media_type)
    return None if image is None else store_bytes(ctx, build.tenant, image, "picture")
