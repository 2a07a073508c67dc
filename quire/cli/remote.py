"""What commands talk to with QUIRE_URL: a server, through its API. See `LocalBackend`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from quire.client import Client
from quire.clock import iso
from quire.errors import Refused
from quire.model.records import Submission

Json = dict[str, Any]


class RemoteBackend(Client):
    """The client, with what only commands ask for."""

    def status(self) -> Json:
        """Return counts by state, and the workers."""
        return {"database": self.url, **super().status()}

    def whole_job(self, job_id: int) -> Json:
        """Return a job with its files, tasks and runs."""
        one = self.job(job_id)
        one["file_list"] = self.part_of_job(job_id, "files", limit=50)
        one["task_list"] = self.part_of_job(job_id, "tasks", limit=50)
        one["attempts"] = self.part_of_job(job_id, "attempts", limit=100)["items"]
        return one

    def act(self, verb: str, job_id: int, **options: Any) -> None:
        """Stop, resume, cancel, retry, reprioritise or delete a job."""
        getattr(self, verb)(job_id, **options)

    def last_job_id(self) -> int:
        """Return the id of the newest job, or 0."""
        page = self.page_of_jobs(limit=1)
        return page["items"][0]["id"] if page["items"] else 0

    def submit_many(self, submissions: Sequence[Submission], key: str | None) -> list[int]:
        """Submit jobs one by one; with a key, a repeated call continues where the first stopped."""
        if any(submission.ref for submission in submissions):
            raise Refused(
                "--file: lines that refer to each other are submitted in one transaction, which "
                "needs the database. Nothing was submitted. Unset QUIRE_URL."
            )
        ids = []
        for number, submission in enumerate(submissions):
            fields = {**asdict(submission), "run_at": iso(submission.run_at)}
            del fields["ref"]
            ids.append(self.submit(key=f"{key}#{number}" if key and number else key, **fields))
        return ids

    def any_worker(self) -> bool:
        """Tell whether a worker is alive."""
        return any(each["alive"] for each in self.status()["workers"])
