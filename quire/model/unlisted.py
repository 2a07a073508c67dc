"""Sources that could not be listed: how the job that asked for them says so."""

from collections.abc import Sequence

#: Sources that are named in a job's error; its result has all of them.
FEW = 3


def words(reasons: Sequence[str], total: int) -> str:
    """Say how many of the sources of a job could not be listed, and why the first could not."""
    if total == 1 and reasons:
        return reasons[0]
    more = f"; and {len(reasons) - FEW:,} more" if len(reasons) > FEW else ""
    first = "; ".join(reason.rstrip(".") for reason in reasons[:FEW])
    return f"{len(reasons):,} of {total:,} sources could not be listed: {first}{more}."
