"""What commands talk to with QUIRE_URL: a server, through its API. See `LocalBackend`."""

from collections.abc import Mapping, Sequence
from typing import Any

from quire.client import Client
from quire.clock import iso
from quire.errors import Refused
from quire.model.records import Submission

Json = dict[str, Any]


class RemoteBackend:
    """A server, through its API."""

    def __init__(self, client: Client) -> None:
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

    def submit(self, submissions: Sequence[Submission], key: str | None) -> list[int]:
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

    def _submit(self, submission: Submission, key: str | None) -> int:
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
