"""What must be true of documents and of all that was read from them, at any moment.

The table continues that of `invariants`; the queries are in `document_breaches`.
"""

from quire.model.states import TASK_OPEN
from quire.store.db.schema.documents import TABLES, documents, generations
from quire.store.db.schema.queue import is_state, jobs, tasks
from quire.store.doctor import document_queries as breaches
from quire.store.doctor.invariants import Invariant, derived, next_id, reference

d, g = documents.c, generations.c

#: What holds for documents, over all tenants.
INVARIANTS: tuple[Invariant, ...] = (
    *derived(TABLES),
    reference(d.parent_id, d.id),
    reference(g.job_id, jobs.c.id),
    reference(tasks.c.document_id, d.id, is_state(tasks.c.state, *TASK_OPEN)),
    next_id(documents),
    *(
        Invariant(
            f"{table}.tenant", f"Every row of {table} refers to things of one tenant only.", query
        )
        for table, query in breaches.strangers().items()
    ),
    Invariant(
        "documents.newest",
        "A document's generation is the newest that it has.",
        breaches.wrong_newest(),
    ),
    Invariant(
        "documents.live",
        "A document has one live generation, the one that it names, or none.",
        breaches.wrong_live(),
    ),
    Invariant(
        "documents.state",
        "A document's state follows from its generations: locked while its newest is built, "
        "success with a live one, not indexed without.",
        breaches.wrong_states(),
    ),
    Invariant(
        "documents.locked",
        "A locked document has an open task; `quire doctor --repair`, or the next listing, takes "
        "over one that has none for 10 minutes queued or 45 minutes indexing.",
        breaches.abandoned(),
    ),
    Invariant(
        "documents.told",
        "A document tells the counts, the media type and the digest of its live generation.",
        breaches.unlike_live(),
    ),
    Invariant(
        "documents.thumbnail",
        "The thumbnail of a document is a blob that is known.",
        breaches.without_content(d.thumbnail),
    ),
    Invariant(
        "generations.building",
        "A generation is built for a locked document, whose newest it is.",
        breaches.stray_building(),
    ),
    Invariant(
        "generations.counts",
        "The counts of a live generation are those of its leaves and of their slices.",
        breaches.wrong_counts(),
    ),
    Invariant(
        "generations.digest",
        "The bytes of a generation that was not collected are a blob that is known.",
        breaches.without_content(g.digest, g.recipe.is_not(None)),
    ),
    Invariant(
        "leaves.filled",
        "Every leaf of a live generation has a page or an error.",
        breaches.empty_leaves(),
    ),
    Invariant(
        "leaves.generation",
        "Every leaf belongs to a generation that was not collected.",
        breaches.orphaned_pages(),
    ),
    Invariant(
        "slices.order",
        "The slices of a page are numbered from 0 without a gap.",
        breaches.wrong_order(),
    ),
    Invariant(
        "slices.text",
        "A slice lies within its page's text, and its chunk is that stretch of it.",
        breaches.wrong_text,
    ),
    Invariant(
        "chunks.words",
        "Every chunk of a live generation is in the full-text index.",
        breaches.wordless,
    ),
    Invariant(
        "chunks.vectors",
        "Every chunk of a live generation has a vector of the generation's model.",
        breaches.vectorless(),
    ),
    Invariant(
        "vectors.dimensions",
        "A vector has as many dimensions as its model.",
        breaches.wrong_vectors,
    ),
)
