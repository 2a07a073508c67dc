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
    counted = Counter(cell.state for cell in cells)
    counts = {state: counted[state] for state in _ORDER if counted[state]}
    return {
        "cells": cells,
        "cell_counts": counts,
        "cell_words": ", ".join(f"{count} {state}" for state, count in counts.items()),
        "has_more_cells": len(rows) > MOST_RANGES,
    }


def counted(tasks: Mapping[str, int]) -> dict[str, Any]:
    """Return one block per state, for a job with very many tasks."""
    counts = {state: tasks[state] for state in _ORDER if tasks.get(state)}
    cells = [Cell(0, 1, count, state) for state, count in counts.items()]
    return {
        "cells": cells,
        "cell_counts": counts,
        "cell_words": ", ".join(f"{count} {state}" for state, count in counts.items()),
        "has_more_cells": False,
    }
