"""The JSON that routes answer with, for the OpenAPI document; the same as `--json` of commands.

The read models of the store write answers. Tests check them against these, routes do not.
"""

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Item = TypeVar("Item")
Counts = dict[str, int]


class Shape(BaseModel):
    """A JSON object that may get more fields in later releases."""

    model_config = ConfigDict(extra="allow")


class Listed(Shape, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    next: str | None = Field(description="The cursor of the next page; null on the last.")


class Owner(Shape):
    """Whose work it is."""

    tenant: str
    user: str


class Job(Shape):
    """What a user asked for."""

    id: int = Field(examples=[77])
    kind: str = Field(examples=["ingest"])
    platform: str | None
    account: str | None
    owner: Owner
    state: str = Field(examples=["running"])
    allowed: list[str] = Field(description="Verbs that the state allows.", examples=[["stop"]])
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
    tasks: Counts
    files: Counts
    files_with_errors: int
    is_listing: bool


class Task(Shape):
    """What a worker claims."""

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


class Attempt(Shape):
    """One run of a task."""

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


class Event(Shape):
    """Something that happened to a job."""

    id: int
    at: str
    job_id: int | None
    task_id: int | None
    name: str


class File(Shape):
    """A document as one job sees it."""

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


class Explanation(Shape):
    """What something waits for, who holds it and what happens next, in plain words."""

    id: int
    state: str
    code: str
    text: str
    next: str
    since: str | None
    until: str | None


class DocumentExplanation(Shape):
    """What a document waits for, why it was indexed and what was reused."""

    id: int
    name: str
    state: str
    text: str
    why: str
    reuse: str
    next: str


class Made(Shape):
    """What was made."""

    id: int


class Changed(Shape):
    """How many were changed."""

    verb: str
    count: int


class Kind(Shape):
    """A kind of job."""

    name: str
    queue: str
    max_attempts: int
    at_most_once: bool
    paused_at: str | None


class Paused(Shape):
    """Whether a kind is paused now, and whether it was so before."""

    name: str
    paused: bool
    changed: bool


class Document(Shape):
    """One file's identity."""

    id: int
    name: str
    source: str | None
    uri: str
    media_type: str | None
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


class DocumentLine(Document):
    """A document in a list."""

    page_errors: int


class PageError(Shape):
    """A page that could not be read."""

    page: int
    kind: str | None
    error: str | None


class Generation(Shape):
    """One (re)index of a document."""

    generation: int
    state: str
    why: str
    job_id: int | None
    pages: int | None
    chunks: int | None
    error: str | None
    created_at: str


class DocumentWhole(Document):
    """A document with its page errors and generations."""

    page_errors: list[PageError]
    generations: list[Generation]


class PageLine(Shape):
    """How a page was read."""

    page: int
    label: str | None
    via: str | None
    language: str | None
    words: int
    characters: int
    width: float | None
    height: float | None
    seconds: float | None
    error: str | None


class Word(Shape):
    """A word with its box, in points from the top left."""

    x: float
    y: float
    width: float
    height: float
    text: str


class PageWhole(Shape):
    """A page with its text and words."""

    page: int
    label: str | None
    via: str | None
    language: str | None
    width: float | None
    height: float | None
    text: str
    words: list[Word]
    error: str | None


class Chunk(Shape):
    """A unit of search: a part of a page's text."""

    page: int
    ordinal: int
    start: int
    stop: int
    text: str
    language: str
    tokens: int


class UploadedFile(Shape):
    """A document that an upload made, or had made before."""

    id: int
    name: str
    state: str


class Uploaded(Shape):
    """The job of an upload, and its documents."""

    id: int
    documents: list[UploadedFile]


class Hit(Shape):
    """A passage that was found."""

    document_id: int
    name: str
    page: int
    score: float
    text: str
    highlights: list[list[int]]
    boxes: list[list[float]]


class Found(Shape):
    """The hits of a search, best first."""

    items: list[Hit]
    mode: str
    took_ms: float


class Corpus(Shape):
    """A named set of documents."""

    id: int
    name: str
    settings: dict[str, Any]
    documents: int


class CorpusWhole(Corpus):
    """A corpus with every setting of its pipeline."""

    pipeline: dict[str, Any]


class CorpusChanged(CorpusWhole):
    """A corpus after a change."""

    changed: list[str]


class Worker(Shape):
    """A process that runs tasks."""

    id: str
    host: str
    pid: int
    alive: bool
    running: int = Field(description="Tasks of this tenant that it runs.")
    state: str
    concurrency: int
    queues: list[str]
    started_at: str
    heartbeat_at: str
    broker: str | None = Field(description="What brings its doorbells, without the password.")
    alone_since: str | None = Field(description="Since when it has claimed without the broker.")


class Broker(Shape):
    """What brings the doorbells of Celery, and how it does."""

    url: str
    rung: dict[str, int] = Field(description="Doorbells rung so far, by queue.")
    rung_at: str | None
    looked_at: str | None
    failing_since: str | None
    error: str | None
    trouble: str | None = Field(description="What is wrong and what happens meanwhile.")


class Status(Shape):
    """Counts by state, and the workers."""

    home: str
    jobs: Counts
    tasks: Counts
    documents: Counts
    workers: list[Worker]
    paused: list[str]
    broker: Broker | None
    problems: list[str] = Field(description="What keeps work from going on.")


class Waiting(Shape):
    """Pending jobs of a platform and kind."""

    platform: str | None
    kind: str
    count: int


class SchedulerStatus(Shape):
    """What runs, what waits, and whether a worker lives."""

    running: list[Job]
    pending_counts: list[Waiting]
    worker_healthy: bool
