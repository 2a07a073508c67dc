"""The job kind of `quire demo`: each job writes one row, so that what happened can be counted."""

import time
from typing import Any

from quire.model.contracts import job

TABLE = "demo_ledger"
SECONDS = 0.04


@job("ledger", retries=2)
def ledger(ctx: Any, entry: int) -> None:
    """Work for a moment, then write the entry and the task's end in one commit."""
    time.sleep(SECONDS)
    with ctx.fenced() as transaction:
        transaction.execute(
            f"INSERT INTO {TABLE} (job_id, entry) VALUES (:job, :entry)",  # noqa: S608
            {"job": ctx.job_id, "entry": entry},
        )
        transaction.finish({"entry": entry})
