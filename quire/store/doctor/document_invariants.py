"""Invariants of documents, generations, pages, chunks and vectors.

Continues the table of `invariants`; the queries are in `document_queries`.
"""

from quire.model.states import TASK_OPEN
from quire.store.db.schema.documents import TABLES, documents, generations
from quire.store.db.schema.queue import is_state, jobs, tasks
from quire.store.doctor import document_queries as queries
from quire.store.doctor.invariants import Invariant, derived, next_id, reference

d, g = documents.c, generations.c

#: Invariants of documents, over all tenants.
INVARIANTS: tuple[Invariant, ...] = (
    *derived(TABLES),
    reference(d.parent_id, d.id),
    reference(g.job_id, jobs.c.id),
    reference(tasks.c.document_id, d.id, is_state(tasks.c.state, *TASK_OPEN)),
    next_id(documents),
    *(
        Invariant(
            f"{table}.tenant", f"Every row of {table} refers to rows of one tenant only.", query
        )
        for table, query in queries.other_tenants().items()
    ),
    Invariant(
        "documents.newest",
        "A document names its newest generation.",
        queries.wrong_newest(),
    ),
    Invariant(
        "documents.live",
        "A document has at most one live generation, the one that it names.",
        queries.wrong_live(),
    ),
    Invariant(
        "documents.state",
        "A document's state follows from its generations: locked while the newest is built, "
        "success with a live one, not indexed without one.",
        queries.wrong_states(),
    ),
    Invariant(
        "documents.locked",
        "A locked document has an open task. `quire doctor --repair` or the next listing takes "
        "over one without a task after 10 minutes queued or 45 minutes indexing.",
        queries.abandoned(),
    ),
    Invariant(
        "documents.summary",
        "A document has the counts, media type and digest of its live generation.",
        queries.stale_summaries(),
    ),
    Invariant(
        "documents.thumbnail",
        "A document's thumbnail is a known blob.",
        queries.without_content(d.thumbnail),
    ),
    Invariant(
        "generations.building",
        "A generation being built is the newest of a locked document.",
        queries.stray_building(),
    ),
    Invariant(
        "generations.counts",
        "A live generation's counts equal its generation pages and their slices.",
        queries.wrong_counts(),
    ),
    Invariant(
        "generations.digest",
        "The bytes of a generation that was not garbage collected are a known blob.",
        queries.without_content(g.digest, g.recipe.is_not(None)),
    ),
    Invariant(
        "leaves.filled",
        "Every generation page of a live generation has a page or an error.",
        queries.unfilled_generation_pages(),
    ),
    Invariant(
        "leaves.generation",
        "Every generation page belongs to a generation that was not garbage collected.",
        queries.orphaned_pages(),
    ),
    Invariant(
        "slices.order",
        "The slices of a page are numbered from 0 without gaps.",
        queries.slice_gaps(),
    ),
    Invariant(
        "slices.text",
        "A slice lies within its page's text, and its chunk has exactly that text.",
        queries.wrong_slice_texts,
    ),
    Invariant(
        "chunks.words",
        "Every chunk of a live generation is in the full-text index.",
        queries.unindexed_chunks,
    ),
    Invariant(
        "chunks.vectors",
        "Every chunk of a live generation has a vector of that generation's model.",
        queries.chunks_without_vector(),
    ),
    Invariant(
        "vectors.dimensions",
        "A vector has as many dimensions as its model.",
        queries.wrong_vectors,
    ),
)
