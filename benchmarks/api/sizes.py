"""Sizes of the API measurements: a full run, and a quick one that only shows that they work."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ApiSizes:
    """Counts and durations of one run."""

    jobs: int = 1_000_000
    users: int = 50
    requests: int = 100
    page_requests: int = 30
    latencies: int = 60
    streams: int = 100
    events_per_second: float = 50.0
    stream_seconds: float = 20.0
    upload_bytes: int = 256 << 20
    upload_rounds: int = 5


FULL = ApiSizes()
QUICK = ApiSizes(
    jobs=30_000,
    requests=20,
    page_requests=8,
    latencies=10,
    streams=20,
    stream_seconds=4.0,
    upload_bytes=16 << 20,
    upload_rounds=2,
)
