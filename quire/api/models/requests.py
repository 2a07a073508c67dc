"""What requests carry: ids, cursors, texts and bodies, each within what a database can hold."""

from typing import Annotated, Any

from fastapi import Header, Path, Query
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    model_validator,
)

from quire.control.submission_checks import LONGEST
from quire.model.contracts import ATTEMPTS
from quire.text.synonyms import MAX_CHARS

LARGEST_ID = 2**63 - 1
MAX_LIMIT = 1000
#: No NUL, which PostgreSQL cannot store or compare.
PLAIN = r"^[^\x00]*$"

JobId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="Id of the job.")]
DocumentId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="Id of the document.")]
PageNumber = Annotated[int, Path(ge=1, le=2**31 - 1, description="Number of the page, from 1.")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Number of items per page.")]
Cursor = Annotated[
    int | None,
    Query(ge=0, le=LARGEST_ID, description="`next` of the previous page."),
]
Text = Annotated[str | None, Query(max_length=LONGEST, pattern=PLAIN)]
LongText = Annotated[str | None, Query(max_length=4000, pattern=PLAIN)]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=LONGEST,
        description="Requests with the same key and body have effect once within 24 hours.",
    ),
]
States = Annotated[
    list[str] | None,
    Query(description="One or more states, separated by commas; may be repeated.", max_length=20),
]

Short = Annotated[str, Field(min_length=1, max_length=LONGEST, pattern=PLAIN)]
Id = Annotated[StrictInt, Field(ge=1, le=LARGEST_ID)]
Priority = Annotated[StrictInt, Field(ge=1, le=10, description="1 (highest) to 10 (lowest).")]


class RequestModel(BaseModel):
    """A JSON body. Unknown fields are rejected, because they are likely typos."""

    model_config = ConfigDict(extra="forbid")


class Submit(RequestModel):
    """A job to be made."""

    kind: Short = Field(examples=["wait"])
    payload: dict[str, Any] = Field(default_factory=dict, examples=[{"seconds": 5}])
    priority: Priority = 5
    run_at: AwareDatetime | None = Field(None, description="Not before this time.")
    after: list[Id] = Field(default_factory=list, max_length=1000, description="Jobs before it.")
    after_failure: str = Field(
        "cancel", pattern="^(cancel|run)$", description="What a failure of one of these does."
    )
    platform: Short | None = None
    account: Short | None = None
    #: At least 1: in the fair order, jobs that cost next to nothing would go before all others.
    cost: Annotated[float, Field(ge=1, le=1e9, allow_inf_nan=False)] = 1.0
    max_attempts: Annotated[StrictInt, Field(ge=1, le=1000)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _name_the_renamed(cls, body: Any) -> Any:
        if isinstance(body, dict) and "max_retries" in body:
            raise ValueError(ATTEMPTS.format(old="max_retries"))
        return body


class StopReason(RequestModel):
    """Why a job is stopped or cancelled; shown with the job."""

    why: Annotated[str, Field(max_length=1000, pattern=PLAIN)] | None = None


class RetryOptions(RequestModel):
    """Which part of a job to run again."""

    only_failed: StrictBool = False
    document_id: Id | None = None


class NewPriority(RequestModel):
    """The new priority of a job."""

    priority: Priority


class Filter(RequestModel):
    """Which jobs; an omitted field matches any."""

    state: list[str] = Field(default_factory=list, max_length=20)
    kind: Short | None = None
    platform: Short | None = None
    account: Short | None = None
    user: Short | None = None


class Bulk(RequestModel):
    """An action on all jobs that match and whose state allows it."""

    verb: str = Field(pattern="^(stop|resume|cancel|retry|delete)$", examples=["stop"])
    filter: Filter = Field(default_factory=Filter)
    only_failed: Annotated[StrictBool, Field(description="For retry: only failed tasks.")] = False


Setting = Annotated[str, Field(max_length=1000)] | StrictInt | StrictBool
Settings = Annotated[dict[str, Setting], Field(max_length=50)]


class NewCorpus(RequestModel):
    """A corpus to create."""

    name: Annotated[str, Field(min_length=1, max_length=100)] = Field(examples=["letters"])
    settings: Settings = Field(default_factory=dict, examples=[{"chunk_tokens": 200}])


class CorpusChange(RequestModel):
    """New values of settings of a corpus."""

    settings: Settings = Field(examples=[{"chunk_tokens": 200}])


class Synonyms(RequestModel):
    """A list of synonyms: CSV, or the name of one that is part of Quire."""

    csv: Annotated[str, Field(max_length=MAX_CHARS)] | None = Field(
        None, examples=["capex,capital expenditure"]
    )
    list: Short | None = Field(None, description="`finance`, instead of `csv`.")


class CorpusReindex(RequestModel):
    """Options for indexing a corpus again."""

    dry_run: Annotated[
        StrictBool, Field(description="Only say what it would cost; nothing is submitted.")
    ] = False


class Reindex(RequestModel):
    """Options for indexing a document again."""

    settings: Settings = Field(default_factory=dict)
    force: Annotated[
        StrictBool, Field(description="Also while it is being indexed; cancels that.")
    ] = False
    priority: Priority = 5
