"""Sizes of the queue measurements: a full run, and a quick one that only shows that they work."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts and durations of one run."""

    singles: int = 2_000
    bulk: int = 100_000
    bulk_batch: int = 10_000
    drain: int = 40_000
    drain_rounds: int = 3
    bare_drain: int = 6_000
    owners: int = 50
    pickups: int = 80
    waiting: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    not_due: int = 1_000_000
    claims: int = 100
    batch_claims: int = 30
    batch: int = 64
    recoveries: int = 5
    stops: int = 30
    large: int = 200_000
    idle_seconds: float = 10.0
    per_owner: int = 200
    cancelled: int = 10_000
    workers: tuple[int, ...] = (1, 2, 5, 10)
    waiting_seconds: float = 8.0
    delivered: int = 20_000
    purged: int = 10_000
    delivery_rounds: int = 3
    #: URL of the broker.
    broker: str | None = None


FULL = Sizes()
QUICK = Sizes(
    singles=100,
    bulk=10_000,
    bulk_batch=5_000,
    drain=5_000,
    drain_rounds=1,
    bare_drain=400,
    pickups=12,
    waiting=(1_000, 30_000),
    not_due=30_000,
    claims=30,
    batch_claims=10,
    recoveries=1,
    stops=3,
    large=5_000,
    idle_seconds=2.0,
    per_owner=20,
    cancelled=1_000,
    workers=(1, 4),
    waiting_seconds=2.0,
    delivered=4_000,
    purged=2_000,
    delivery_rounds=1,
)
