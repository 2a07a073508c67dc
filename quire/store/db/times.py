"""How times of the database are written for others."""

from datetime import UTC, datetime


def iso(at: float | None) -> str | None:
    """Write a time as ISO 8601 in UTC, to the millisecond."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat("T", "milliseconds")[:-6] + "Z"
