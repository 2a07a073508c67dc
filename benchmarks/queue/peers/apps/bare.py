"""No queue: what the database allows a loop with two commits a job, a claim and an end."""

from collections.abc import Sequence

from benchmarks.queue import bare
from benchmarks.queue.peers import given, marks

_queues: list[bare.Queue] = []


def create() -> None:
    """Create the table."""
    _queues.append(bare.connect(given.DATABASE))
    _queues[0].create()


def submit(numbers: Sequence[int], seconds: float) -> None:
    """Insert one by one; the database numbers them."""
    for _ in numbers:
        _queues[0].insert()


def submit_many(numbers: Sequence[int]) -> None:
    """Insert with one statement."""
    _queues[0].insert_many(len(numbers))


def main() -> None:
    """Claim, leave a mark and end until nothing is left."""
    queue = bare.connect(given.DATABASE)
    while (number := queue.claim()) is not None:
        marks.run(number, 0.0)
        queue.finish(number)


if __name__ == "__main__":
    main()
