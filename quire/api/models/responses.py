"""Response models, for the OpenAPI document; the same JSON as the `--json` output of the CLI.

The read models of the store write answers. Tests check them against these, routes do not.
"""

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Item = TypeVar("Item")
Counts = dict[str, int]


class ResponseModel(BaseModel):
    """A JSON object. Later releases may add fields."""

    model_config = ConfigDict(extra="allow")


class ListOf(ResponseModel, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    next: str | None = Field(description="Cursor of the next page; null on the last page.")


class Owner(ResponseModel):
    """The tenant and user that a job belongs to."""

    tenant: str
    user: str


class Job(ResponseModel):
    """A unit of work that a user submitted; it consists of tasks."""

    id: int = Field(examples=[77])
    kind: str = Field(examples=["ingest"])
    platform: str | None
    account: str | None
    owner: Owner
    state: str = Field(examples=["running"])
    allowed: list[str] = Field(description="Actions that the state allows.", examples=[["stop"]])
    priority: int
    payload: dict[str, Any]
    progress: float = Field(ge=0, le=1)
    progress_message: str | None
    eta_at: str | None
    retry_count: int
    max_attempts: int
    worker_id: str | None
    error: str | None
    result: Any
    created_at: str
    run_at: str | None
    started_at: str | None
    finished_at: str | None
    stopped_by: str | None = Field(description="User who stopped or cancelled it.")
    stopped_at: str | None
    stopped_why: str | None
    next_attempt_at: str | None = Field(
        None, description="When a failed task is tried again, while none runs; not in lists."
    )
    tasks: Counts
    files: Counts
    files_with_errors: int
    failed_files: int
    is_listing: bool


class Task(ResponseModel):
    """The unit that a worker claims and runs."""

    id: int
    kind: str
    state: str
    reason: str | None
    from_page: int | None
    to_page: int | None
    digest: str | None
    progress: float | None
    begin_at: str | None
    process_duration: float | None
    attempt: int
    max_attempts: int
    error: str | None


class Attempt(ResponseModel):
    """One attempt to run a task."""

    task_id: int
    attempt: int
    outcome: str
    error: str | None
    traceback: str | None
    began_at: str | None
    finished_at: str | None
    duration: float | None
    peak_rss: int | None
    worker_id: str | None


class Event(ResponseModel):
    """Something that happened to a job."""

    id: int
    at: str
    job_id: int | None
    task_id: int | None
    name: str


class File(ResponseModel):
    """The state of a document in one job."""

    document_id: int
    name: str
    uri: str
    state: str
    generation: int
    pages: int | None
    chunks: int | None
    page_errors: int
    error: str | None
    why: str


class Explanation(ResponseModel):
    """What a job or task waits for, which worker runs it, and what happens next."""

    id: int
    state: str
    failed_files: int = Field(0, description="Of a job; a completed one may have some.")
    code: str
    text: str
    next: str
    since: str | None
    until: str | None


class DocumentExplanation(ResponseModel):
    """What a document waits for, why it was indexed and what was reused."""

    id: int
    name: str
    state: str
    text: str
    why: str
    reuse: str
    next: str


class Created(ResponseModel):
    """The id of the new job."""

    id: int


class Changed(ResponseModel):
    """How many jobs were changed."""

    verb: str
    count: int


class Kind(ResponseModel):
    """A kind of job."""

    name: str
    queue: str
    max_attempts: int
    at_most_once: bool
    paused_at: str | None


class Paused(ResponseModel):
    """Whether a kind is paused, and whether this request changed that."""

    name: str
    paused: bool
    changed: bool


class Document(ResponseModel):
    """A file, its current generation and its state."""

    id: int
    name: str
    source: str | None
    uri: str
    media_type: str | None
    notice: str | None
    corpora: list[str]
    state: str
    locked: bool
    generation: int
    live_generation: int | None
    pages: int | None
    chunks: int | None
    error: str | None
    reused: dict[str, Any]
    size: int | None
    digest: str | None
    thumbnail: str | None
    job_id: int | None
    created_at: str
    processing_started_at: str | None
    processing_finished_at: str | None
    gone_at: str | None


class DocumentSummary(Document):
    """A document in a list."""

    page_errors: int


class PageError(ResponseModel):
    """A page that could not be read."""

    page: int
    kind: str | None
    error: str | None


class Generation(ResponseModel):
    """One indexing run of a document, numbered from 1."""

    generation: int
    state: str
    why: str
    job_id: int | None
    pages: int | None
    chunks: int | None
    error: str | None
    created_at: str


class DocumentDetails(Document):
    """A document with its page errors and generations."""

    page_errors: list[PageError]
    generations: list[Generation]


class ExtractedPage(ResponseModel):
    """A page and how its text was extracted."""

    page: int
    label: str | None
    via: str | None
    language: str | None
    width: float | None
    height: float | None
    error: str | None


class PageSummary(ExtractedPage):
    """A page in a list."""

    words: int
    characters: int
    seconds: float | None


class Word(ResponseModel):
    """A word with its bounding box, in points from the top left."""

    x: float
    y: float
    width: float
    height: float
    text: str


class PageDetails(ExtractedPage):
    """A page with its text and words."""

    text: str
    words: list[Word]


class TableCell(ResponseModel):
    """A cell that is not empty."""

    row: int
    column: int
    row_span: int
    column_span: int
    runs: list[tuple[int, int]]
    text: str
    box: list[float] | None


class StructuredTable(ResponseModel):
    """A table. The first `header_rows` rows are headers.

    `is_cut`: it has more cells than are listed; `rows` counts all of its rows.
    """

    rows: int
    is_cut: bool
    columns: int
    header_rows: int
    caption: str
    unit: str
    footnotes: list[str]
    grid: list[list[str]]
    cells: list[TableCell]


class DocumentTable(StructuredTable):
    """A table of a document; `number` counts those of its page.

    `continues`: it goes on from the last table of the page before.
    """

    page: int
    number: int
    continues: bool


class PageBlock(ResponseModel):
    """A piece of a page. `words` are runs: the first word, and the word after the last."""

    kind: str
    level: int
    text: str
    box: list[float] | None
    words: list[tuple[int, int]]
    confidence: int
    source: str
    table: StructuredTable | None


class PageStructure(ResponseModel):
    """The blocks of a page in reading order; `unreadable` counts characters without a code."""

    page: int
    label: str | None
    unreadable: int
    blocks: list[PageBlock]


class OutlineHeading(ResponseModel):
    """A heading."""

    level: int
    title: str
    page: int


class DocumentOutline(ResponseModel):
    """The headings of a document."""

    items: list[OutlineHeading]


class Chunk(ResponseModel):
    """A part of a page's text; the unit of search."""

    page: int
    ordinal: int
    start: int
    stop: int
    text: str
    context: str | None
    language: str
    tokens: int


class UploadedFile(ResponseModel):
    """A document of an upload, new or already known."""

    id: int
    name: str
    state: str


class Uploaded(ResponseModel):
    """The job of an upload, and its documents."""

    id: int
    documents: list[UploadedFile]


class Hit(ResponseModel):
    """A passage that matches."""

    document_id: int
    name: str
    page: int
    score: float
    text: str
    highlights: list[list[int]]
    boxes: list[list[float]]


class SearchResults(ResponseModel):
    """The matching passages, best first."""

    items: list[Hit]
    mode: str
    took_ms: float
    note: str = Field("", description="What was done differently, for the user to read.")
    did_you_mean: dict[str, str] = Field(
        {}, description="Words that no document has, and what was searched for instead."
    )
    reranked: bool = Field(False, description="Whether a reranker gave the order and scores.")


class Corpus(ResponseModel):
    """A named set of documents."""

    id: int
    name: str
    settings: dict[str, Any]
    documents: int


class CorpusDetails(Corpus):
    """A corpus with every setting of its pipeline."""

    pipeline: dict[str, Any]


class CorpusChanged(CorpusDetails):
    """A corpus after a change."""

    changed: list[str]


class Synonyms(ResponseModel):
    """The synonyms of a corpus: CSV, a row for each meaning; empty if there are none."""

    corpus: str
    rows: int
    csv: str


class CorpusReindex(ResponseModel):
    """What indexing a corpus again costs."""

    id: int | None = Field(description="The job; null after a dry run.")
    documents: int = Field(description="Documents that are indexed again.")
    unchanged: int
    busy: int = Field(description="Outdated, but queued or being indexed already.")
    not_indexed: int = Field(description="Without a searchable version, or without a file.")
    pages: int = Field(description="Pages that are read again, at most.")
    ocr_pages: int = Field(description="Pages whose recognised text is reused.")
    kept_pages: int = Field(description="Pages that are only split or embedded again.")
    chunks: int = Field(description="Chunks that may be embedded again, at most.")
    seconds: float = Field(description="What reading these pages took, one after the other.")


class Worker(ResponseModel):
    """A process that runs tasks."""

    id: str
    host: str
    pid: int
    alive: bool
    running: int = Field(description="Number of this tenant's tasks that it runs.")
    state: str
    concurrency: int
    queues: list[str]
    started_at: str
    heartbeat_at: str
    broker: str | None = Field(description="URL of its message broker, without the password.")
    broker_silent_since: str | None = Field(
        description="Since when it has polled the database because the broker is silent."
    )


class Broker(ResponseModel):
    """The message broker that notifies workers, and its state."""

    url: str
    messages_sent: dict[str, int] = Field(description="Messages sent so far, by queue.")
    last_sent_at: str | None
    last_checked_at: str | None
    failing_since: str | None
    error: str | None
    problem: str | None = Field(description="What is wrong, and what happens meanwhile.")


class Status(ResponseModel):
    """Counts by state, and the workers."""

    home: str | None = Field(description="Only for an instance admin.")
    jobs: Counts
    tasks: Counts
    documents: Counts
    workers: list[Worker]
    paused: list[str]
    broker: Broker | None
    problems: list[str] = Field(description="What keeps tasks from running.")


class PendingCount(ResponseModel):
    """The number of pending jobs of a platform and kind."""

    platform: str | None
    kind: str
    count: int


class SchedulerStatus(ResponseModel):
    """What runs, what waits, and whether a worker is alive."""

    running: list[Job]
    pending_counts: list[PendingCount]
    worker_healthy: bool
