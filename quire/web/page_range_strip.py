"""Page ranges prepared for drawing: the blocks, and counts by state."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from quire.control.queries import MOST_RANGES
from quire.web.charts import Cell

#: With more tasks than this, a job is drawn as one block per state.
MOST = 1000
_ORDER = ("done", "running", "ready", "blocked", "failed", "lost", "cancelled", "skipped")


def shown(rows: Sequence[Any]) -> dict[str, Any]:
    """Return what a template needs to draw page ranges."""
    cells = [
        Cell(
            row.document_id, row.from_page, row.to_page, row.state, row.progress, row.name[:120]
        )
        for row in rows[:MOST_RANGES]
    ]  # fmt: skip
    return _drawn(cells, Counter(cell.state for cell in cells), len(rows) > MOST_RANGES)


def counted(tasks: Mapping[str, int]) -> dict[str, Any]:
    """Return one block per state, for a job with very many tasks."""
    return _drawn([Cell(0, 1, tasks[state], state) for state in _ORDER if tasks.get(state)], tasks)


def _drawn(cells: list[Cell], by_state: Mapping[str, int], more: bool = False) -> dict[str, Any]:
    counts = {state: by_state[state] for state in _ORDER if by_state.get(state)}
    words = ", ".join(f"{count} {state}" for state, count in counts.items())
    return {"cells": cells, "cell_counts": counts, "cell_words": words, "has_more_cells": more}
