"""How fast jobs are submitted and drained: no-op jobs, submitted before the workers start."""

from typing import NamedTuple

from benchmarks.figures import rate
from benchmarks.queue.peers import marks
from benchmarks.queue.peers.rows import Row
from benchmarks.queue.peers.site import Servers, opened
from benchmarks.queue.peers.sizes import Sizes


class Throughput(NamedTuple):
    """Jobs a second."""

    one_by_one: float
    in_bulk: float | None
    drain: float


def measure(row: Row, servers: Servers, sizes: Sizes) -> Throughput:
    """Fill a queue, then drain it. The rate leaves out the first tenth, and so the start."""
    count = max(int(row.jobs * sizes.share), 40)
    singles = min(sizes.singles, count // 2) if row.has_bulk else count
    in_bulk = None
    with opened(row, servers) as site:
        site.submit(0, 1)
        one_by_one = singles / site.submit(1, singles).seconds
        if row.has_bulk:
            rest = count - singles
            in_bulk = rest / site.submit(singles + 1, rest, is_bulk=True).seconds
        site.start()
        site.wait_for_marks(count + 1)
        return Throughput(one_by_one, in_bulk, rate([one.at for one in marks.read(site.marks)]))
