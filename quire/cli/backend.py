"""What commands talk to: the local database, or a server through its API.

`session.connect` chooses one. Both return the same JSON. Commands that need more than this protocol
open the database with `session.open_app`, which refuses to run against a server.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from quire.errors import NotFound, Refused

if TYPE_CHECKING:
    from quire.app import App
    from quire.client import Client
    from quire.model.records import Submission
    from quire.text.embed.embedder import Embedder

Json = dict[str, Any]


class Backend(Protocol):
    """What both can do."""

    def status(self) -> Json:
        """Return counts by state, and the workers."""
        ...

    def page_of_jobs(self, **filters: Any) -> Json:
        """List jobs, newest first."""
        ...

    def job(self, job_id: int) -> Json:
        """Return a job, or raise NotFound."""
        ...

    def whole_job(self, job_id: int) -> Json:
        """Return a job with its files (failed ones first), tasks and runs."""
        ...

    def act(self, verb: str, job_id: int, **options: Any) -> None:
        """Stop, resume, cancel, retry, reprioritise or delete a job."""
        ...

    def explain(self, job_id: int, task_id: int | None) -> Json:
        """Explain a job, or one of its tasks."""
        ...

    def last_job_id(self) -> int:
        """Return the id of the newest job, or 0."""
        ...

    def submit(self, submissions: Sequence["Submission"], key: str | None) -> list[int]:
        """Submit jobs and return their ids."""
        ...

    def any_worker(self) -> bool:
        """Tell whether a worker is alive."""
        ...

    def search(self, query: str, **how: Any) -> Json:
        """Search the documents."""
        ...

    def page_of_documents(self, **filters: Any) -> Json:
        """List documents, newest first."""
        ...

    def document(self, document_id: int) -> Json:
        """Return a document, or raise NotFound."""
        ...


class LocalBackend:
    """The database of this home."""

    def __init__(self, app: "App") -> None:
        self.app = app
        self._tenant = app.settings.tenant

    def status(self) -> Json:
        """Return counts by state, and the workers."""
        from quire.control import queries
        from quire.store.db import urls

        settings = self.app.settings
        database = urls.without_password(settings.database)
        found = queries.status(self.app.caller)
        return {"home": str(settings.home), "database": database, **found}

    def page_of_jobs(self, **filters: Any) -> Json:
        """List jobs, newest first."""
        from quire.control import queries

        return queries.jobs(self.app.caller, **filters)

    def job(self, job_id: int) -> Json:
        """Return a job, or raise NotFound."""
        return job_of(self.app, job_id)

    def whole_job(self, job_id: int) -> Json:
        """Return a job with its files (failed ones first), tasks and runs."""
        from quire.control import queries

        return queries.job_details(self.app.caller, job_id)

    def act(self, verb: str, job_id: int, **options: Any) -> None:
        """Stop, resume, cancel, retry, reprioritise or delete a job."""
        from quire.control import jobs

        jobs.one(self.app.caller, verb, job_id, **options)

    def explain(self, job_id: int, task_id: int | None) -> Json:
        """Explain a job, or one of its tasks."""
        from quire.control.explain import job as explaining

        answer = explaining.explain_job(self.app.caller, job_id)
        if task_id is not None:
            answer = explaining.explain_task(self.app.caller, task_id)
            if answer["job_id"] != job_id:
                raise NotFound(f"task {task_id}: job {job_id} has no such task.")
        return answer

    def last_job_id(self) -> int:
        """Return the id of the newest job, or 0."""
        from quire.control import queries

        return queries.last_job_id(self.app.caller)

    def submit(self, submissions: Sequence["Submission"], key: str | None) -> list[int]:
        """Submit jobs, all or none."""
        return self.app.submit_many(submissions, key=key)

    def any_worker(self) -> bool:
        """Tell whether a worker is alive."""
        return any_worker(self.app)

    def search(self, query: str, **how: Any) -> Json:
        """Search the documents."""
        from quire.control import search as control

        return control.search(self.app.db, self._tenant, query, embedder=self._embedder, **how)

    def _embedder(self, name: str) -> "Embedder":
        from dataclasses import asdict

        from quire.ingest.resources import embedder_of
        from quire.model.pipeline import Pipeline

        return embedder_of(asdict(self.app.settings), Pipeline(embedder=name))

    def page_of_documents(self, **filters: Any) -> Json:
        """List documents, newest first."""
        from quire.control import queries

        return queries.documents(self.app.caller, **filters)

    def document(self, document_id: int) -> Json:
        """Return a document, or raise NotFound."""
        from quire.control import queries

        return queries.document(self.app.caller, document_id)


def job_of(app: "App", job_id: int) -> Json:
    """Return a job of this tenant, or raise NotFound."""
    from quire.control import queries

    return queries.job(app.caller, job_id)


def any_worker(app: "App") -> bool:
    """Tell whether a worker of this database is alive."""
    from quire.control import queries

    return queries.any_worker_alive(app.caller)


class RemoteBackend:
    """A server, through its API."""

    def __init__(self, client: "Client") -> None:
        self.client = client

    def status(self) -> Json:
        """Return counts by state, and the workers."""
        return {"database": self.client.url, **self.client.status()}

    def page_of_jobs(self, **filters: Any) -> Json:
        """List jobs, newest first."""
        return self.client.page_of_jobs(**_with_state(filters))

    def job(self, job_id: int) -> Json:
        """Return a job, or raise NotFound."""
        return self.client.job(job_id)

    def whole_job(self, job_id: int) -> Json:
        """Return a job with its files, tasks and runs."""
        one = self.job(job_id)
        one["file_list"] = self.client.part_of_job(job_id, "files", limit=50)
        one["task_list"] = self.client.part_of_job(job_id, "tasks", limit=50)
        one["attempts"] = self.client.part_of_job(job_id, "attempts", limit=100)["items"]
        return one

    def act(self, verb: str, job_id: int, **options: Any) -> None:
        """Stop, resume, cancel, retry, reprioritise or delete a job."""
        getattr(self.client, verb)(job_id, **options)

    def explain(self, job_id: int, task_id: int | None) -> Json:
        """Explain a job, or one of its tasks."""
        return self.client.explain(job_id, task=task_id)

    def last_job_id(self) -> int:
        """Return the id of the newest job, or 0."""
        page = self.client.page_of_jobs(limit=1)
        return page["items"][0]["id"] if page["items"] else 0

    def submit(self, submissions: Sequence["Submission"], key: str | None) -> list[int]:
        """Submit jobs one by one; with a key, a repeated call continues where the first stopped."""
        if any(submission.ref for submission in submissions):
            raise Refused(
                "--file: lines that refer to each other are submitted in one transaction, which "
                "needs the database. Nothing was submitted. Unset QUIRE_URL."
            )
        return [
            self._submit(submission, None if key is None else f"{key}#{n}" if n else key)
            for n, submission in enumerate(submissions)
        ]

    def _submit(self, submission: "Submission", key: str | None) -> int:
        from quire.clock import iso

        more: Json = {
            "priority": submission.priority,
            "run_at": iso(submission.run_at),
            "after": list(submission.after),
            "after_failure": submission.after_failure,
            "platform": submission.platform,
            "account": submission.account,
            "cost": submission.cost,
            "max_attempts": submission.max_attempts,
        }
        return self.client.submit(submission.kind, dict(submission.payload), key=key, **more)

    def any_worker(self) -> bool:
        """Tell whether a worker is alive."""
        return any(each["alive"] for each in self.client.status()["workers"])

    def search(self, query: str, **how: Any) -> Json:
        """Search the documents."""
        where: Mapping[str, str] = how.pop("where")
        documents = list(how.pop("documents")) or None
        return self.client.search(query, where=where, document=documents, **how)

    def page_of_documents(self, **filters: Any) -> Json:
        """List documents, newest first."""
        return self.client.page_of_documents(**_with_state(filters))

    def document(self, document_id: int) -> Json:
        """Return a document, or raise NotFound."""
        return self.client.document(document_id)


def _with_state(filters: Mapping[str, Any]) -> Json:
    return {("state" if name == "states" else name): value for name, value in filters.items()}


@contextlib.contextmanager
def remote(url: str, token: str) -> Iterator[RemoteBackend]:
    """Connect to a server."""
    from quire.client import Client

    with Client(url, token) as client:
        yield RemoteBackend(client)
