"""What commands talk to without QUIRE_URL: the database of this home.

`RemoteBackend`, which is the client of the API, has the same methods with the same JSON.
`session.connect` chooses one. Commands that need more open the database with `session.open_app`,
which refuses to run against a server.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from quire.app import App
from quire.control import queries
from quire.model.records import Submission
from quire.store.db import urls

if TYPE_CHECKING:
    from quire.text.embed.embedder import Embedder

Json = dict[str, Any]


class LocalBackend:
    """The database of this home."""

    def __init__(self, app: App) -> None:
        self.app = app

    def status(self) -> Json:
        """Return counts by state, and the workers."""
        settings = self.app.settings
        database = urls.without_password(settings.database)
        found = queries.status(self.app.caller)
        return {"home": str(settings.home), "database": database, **found}

    def page_of_jobs(self, *, state: Sequence[str] | None, **filters: Any) -> Json:
        """List jobs, newest first."""
        return queries.jobs(self.app.caller, states=state, **filters)

    def job(self, job_id: int) -> Json:
        """Return a job, or raise NotFound."""
        return queries.job(self.app.caller, job_id)

    def whole_job(self, job_id: int) -> Json:
        """Return a job with its files (failed ones first), tasks and runs."""
        return queries.job_details(self.app.caller, job_id)

    def act(self, verb: str, job_id: int, **options: Any) -> None:
        """Stop, resume, cancel, retry, reprioritise or delete a job."""
        from quire.control import jobs

        jobs.one(self.app.caller, verb, job_id, **options)

    def explain(self, job_id: int, *, task: int | None) -> Json:
        """Explain a job, or one of its tasks."""
        from quire.control.explain import job as explaining

        return explaining.explain_job(self.app.caller, job_id, task_id=task)

    def last_job_id(self) -> int:
        """Return the id of the newest job, or 0."""
        return queries.last_job_id(self.app.caller)

    def submit_many(self, submissions: Sequence[Submission], key: str | None) -> list[int]:
        """Submit jobs, all or none."""
        return self.app.submit_many(submissions, key=key)

    def any_worker(self) -> bool:
        """Tell whether a worker is alive."""
        return queries.any_worker_alive(self.app.caller)

    def search(self, query: str, *, document: Sequence[int] | None, **how: Any) -> Json:
        """Search the documents."""
        from quire.control import search
        from quire.ingest.resources import reranker_of

        def embedder(name: str) -> "Embedder":
            from quire.ingest.resources import embedder_of
            from quire.model.pipeline import Pipeline

            return embedder_of(asdict(self.app.settings), Pipeline(embedder=name))

        return search.search(
            self.app.db,
            self.app.settings.tenant,
            query,
            documents=document or (),
            embedder=embedder,
            reranker=reranker_of(asdict(self.app.settings)),
            **how,
        )

    def page_of_documents(self, *, state: Sequence[str] | None, **filters: Any) -> Json:
        """List documents, newest first."""
        return queries.documents(self.app.caller, states=state, **filters)

    def document(self, document_id: int) -> Json:
        """Return a document, or raise NotFound."""
        return queries.document(self.app.caller, document_id)
