"""The tables of documents: their generations, and the content that was read from them.

A generation has a page list, `generation_pages`: one row per page number, which refers to a *page*.
A page is identified by what it was made from, so that the same page is read once. Its text is
divided into *slices*, which refer to *chunks*; a chunk is a unique text, indexed once and embedded
once per model. Only the page list belongs to a generation: a swap changes three rows, whatever the
number of pages. The page list is called `leaves` in the database: a new name would lock out older
workers during an upgrade.
"""

import sqlalchemy as sa

from quire.model.states import DocumentState, GenerationState
from quire.store.db.dialect import Vector
from quire.store.db.schema.queue import Id, Time, is_state, metadata, one_of, owners, partial_index

corpora = sa.Table(
    "corpora",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("settings", sa.Text, nullable=False, server_default="{}"),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("synonyms", sa.Text),  # CSV
    sa.UniqueConstraint("tenant", "name", name="uq_corpora"),
)

documents = sa.Table(
    "documents",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("owner_id", Id, sa.ForeignKey(owners.c.id), nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("uri", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("folder", sa.Text, nullable=False, server_default=""),
    sa.Column("parent_id", Id),
    sa.Column("source", sa.Text),  # the source that lists it
    sa.Column("listed_at", Time),
    # Fingerprint of the newest version at the source, compared before any byte is read.
    sa.Column("seen", sa.Text),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False, server_default="0"),
    sa.Column("live_generation", sa.Integer),
    sa.Column("settings", sa.Text, nullable=False, server_default="{}"),
    sa.Column("metadata", sa.Text, nullable=False, server_default="{}"),
    sa.Column("digest", sa.Text),
    sa.Column("size", sa.BigInteger),
    sa.Column("media_type", sa.Text),
    sa.Column("pages", sa.Integer),
    sa.Column("chunks", sa.Integer),
    sa.Column("page_errors", sa.Integer, nullable=False, server_default="0"),
    sa.Column("error", sa.Text),
    sa.Column("thumbnail", sa.Text),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("queued_at", Time),
    sa.Column("processing_started_at", Time),
    sa.Column("processing_finished_at", Time),
    sa.Column("gone_at", Time),
    sa.UniqueConstraint("tenant", "uri", name="uq_documents"),
    one_of("state", DocumentState, "ck_documents_state"),
    sa.CheckConstraint("live_generation <= generation", name="ck_documents_live_generation"),
)
sa.Index("ix_documents_state", documents.c.tenant, documents.c.state, documents.c.id)
sa.Index("ix_documents_parent", documents.c.parent_id)
sa.Index("ix_documents_source", documents.c.tenant, documents.c.source, documents.c.listed_at)

for _name, _column, _needs in (
    ("digest", documents.c.digest, documents.c.digest.is_not(None)),
    ("thumbnail", documents.c.thumbnail, documents.c.thumbnail.is_not(None)),
    ("seen", documents.c.seen, documents.c.state != sa.literal_column("'success'")),
):
    #: To find out whether a blob is still used.
    partial_index(f"ix_documents_{_name}", documents.c.tenant, _column, where=_needs)

corpus_documents = sa.Table(
    "corpus_documents",
    metadata,
    sa.Column("corpus_id", Id, sa.ForeignKey(corpora.c.id), primary_key=True),
    sa.Column("document_id", Id, sa.ForeignKey(documents.c.id), primary_key=True),
    sqlite_with_rowid=False,
)
sa.Index("ix_corpus_documents_document", corpus_documents.c.document_id)

models = sa.Table(
    "models",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("dimensions", sa.Integer, nullable=False),
)

#: Chunking settings, one row per distinct set.
cuts = sa.Table(
    "cuts",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("settings", sa.Text, nullable=False),
)

generations = sa.Table(
    "generations",
    metadata,
    sa.Column("document_id", Id, sa.ForeignKey(documents.c.id), primary_key=True),
    sa.Column("generation", sa.Integer, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("job_id", Id),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("settings", sa.Text, nullable=False),
    sa.Column("digest", sa.Text),  # of the file's bytes
    sa.Column("recipe", sa.Text),  # digest of all settings and versions that determine the output
    sa.Column("cut_id", Id, sa.ForeignKey(cuts.c.id)),
    sa.Column("model_id", Id, sa.ForeignKey(models.c.id)),
    sa.Column("media_type", sa.Text),
    sa.Column("pages", sa.Integer),
    sa.Column("chunks", sa.Integer),
    sa.Column("page_errors", sa.Integer, nullable=False, server_default="0"),
    sa.Column("reused", sa.Text, nullable=False, server_default="{}"),
    sa.Column("error", sa.Text),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("started_at", Time),
    sa.Column("finished_at", Time),
    one_of("state", GenerationState, "ck_generations_state"),
)
sa.Index("ix_generations_job", generations.c.job_id, generations.c.state)
_finished = generations.c.recipe.is_not(None)
g = generations.c
partial_index("ix_generations_recipe", g.tenant, g.digest, g.recipe, where=_finished)
_live = is_state(g.state, GenerationState.LIVE)
partial_index("ix_generations_live", g.tenant, g.model_id, where=_live)
#: Those whose page list is still to be deleted; after that they have no recipe.
_old = sa.and_(is_state(g.state, *(s for s in GenerationState if s.is_over)), _finished)
partial_index("ix_generations_old", g.finished_at, where=_old)

contents = sa.Table(
    "contents",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("stored_at", Time, nullable=False),
    sa.Column("condemned_at", Time),
)

pages = sa.Table(
    "pages",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("image_key", sa.Text),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("words", sa.LargeBinary),
    sa.Column("blocks", sa.LargeBinary),  # see `model.blocks`
    # The analysed words of the first lines, separated by spaces; null until a repair if older.
    sa.Column("heads", sa.Text),
    sa.Column("width", sa.Double, nullable=False),
    sa.Column("height", sa.Double, nullable=False),
    sa.Column("via", sa.Text, nullable=False),
    sa.Column("language", sa.Text, nullable=False),
    sa.Column("label", sa.Text),
    sa.Column("seconds", sa.Double, nullable=False),  # reading time, to account what reuse saves
    sa.Column("task_id", Id),
    sa.Column("condemned_at", Time),
    sa.UniqueConstraint("tenant", "key", name="uq_pages"),
)
partial_index(
    "ix_pages_image", pages.c.tenant, pages.c.image_key, where=pages.c.image_key.is_not(None)
)

generation_pages = sa.Table(
    "leaves",
    metadata,
    sa.Column("document_id", Id, primary_key=True),
    sa.Column("generation", sa.Integer, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("page_id", Id, sa.ForeignKey(pages.c.id)),
    sa.Column("error", sa.Text),  # JSON: why the page is quarantined
    sqlite_with_rowid=False,
)
sa.Index(
    "ix_leaves_page",
    generation_pages.c.page_id,
    generation_pages.c.document_id,
    generation_pages.c.generation,
)

chunks = sa.Table(
    "chunks",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("language", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
    # Headings above it, header of its table: indexed with the text, and not shown as part of it.
    sa.Column("context", sa.Text),
    sa.Column("task_id", Id),
    sa.Column("condemned_at", Time),
    sa.UniqueConstraint("tenant", "digest", name="uq_chunks"),
    # Ids are never reused: searching processes cache vectors by them.
    sqlite_autoincrement=True,
)
sa.Index("ix_chunks_language", chunks.c.tenant, chunks.c.language)

slices = sa.Table(
    "slices",
    metadata,
    sa.Column("page_id", Id, sa.ForeignKey(pages.c.id), primary_key=True),
    sa.Column("cut_id", Id, sa.ForeignKey(cuts.c.id), primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("chunk_id", Id, sa.ForeignKey(chunks.c.id), nullable=False),
    sa.Column("start", sa.Integer, nullable=False),
    sa.Column("stop", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)
sa.Index("ix_slices_chunk", slices.c.chunk_id, slices.c.page_id, slices.c.cut_id)

vectors = sa.Table(
    "vectors",
    metadata,
    sa.Column("model_id", Id, sa.ForeignKey(models.c.id), primary_key=True),
    sa.Column("chunk_id", Id, sa.ForeignKey(chunks.c.id), primary_key=True),
    sa.Column("vector", Vector(), nullable=False),
)
sa.Index("ix_vectors_chunk", vectors.c.chunk_id)

#: What the index of documents has of live generations, which a swap replaces. Derived from pages:
#: not transferred, but computed anew. The entries are in `store.db.document_entries`.
document_words = sa.Table(
    "document_words",
    metadata,
    sa.Column("document_id", Id, primary_key=True),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("length", sa.Integer, nullable=False),
)
sa.Index("ix_document_words_tenant", document_words.c.tenant, document_words.c.length)

for _table in (contents, pages, chunks):
    _condemned = _table.c.condemned_at
    partial_index(f"ix_{_table.name}_condemned", _condemned, where=_condemned.is_not(None))

TABLES = (
    corpora, documents, corpus_documents, models, cuts, generations, contents, pages,
    generation_pages, chunks, slices, vectors,
)  # fmt: skip
