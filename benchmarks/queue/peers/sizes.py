"""Sizes of the comparison with other queues."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts and durations of one run."""

    #: Drains of each queue, alternating.
    rounds: int = 3
    #: Share of a row's own number of jobs that it drains.
    share: float = 1.0
    #: Jobs submitted one by one, where the rest can be submitted in bulk.
    singles: int = 2_000
    pickup_rounds: int = 2
    pickups: int = 40
    settle_seconds: float = 3.0
    kills: int = 6
    #: Jobs of the crash test, and how long each takes.
    killed_jobs: int = 120
    job_seconds: float = 0.2
    #: Work between the first job after a start and the next kill.
    work_seconds: float = 1.0
    #: How long to wait after the last start for jobs to come back.
    watch_seconds: float = 90.0


FULL = Sizes()
QUICK = Sizes(
    rounds=1,
    share=0.02,
    singles=100,
    pickup_rounds=1,
    pickups=8,
    settle_seconds=0.5,
    kills=1,
    killed_jobs=10,
    job_seconds=0.1,
    work_seconds=0.2,
    watch_seconds=20.0,
)
