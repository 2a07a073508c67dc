"""Ranges of pages made ready to be drawn: the blocks, and how many stand how."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from quire.control.queries import MOST_RANGES
from quire.web.charts import Cell

#: Tasks of a job above which its ranges are not drawn one by one.
MOST = 1000
_ORDER = ("done", "running", "ready", "blocked", "failed", "lost", "cancelled", "skipped")


def shown(rows: Sequence[Any]) -> dict[str, Any]:
    """Return what a template needs to draw ranges."""
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
    """Return what is drawn for a job of very many tasks: one block for each state."""
    counts = {state: tasks[state] for state in _ORDER if tasks.get(state)}
    cells = [Cell(0, 1, count, state) for state, count in counts.items()]
    return {
        "cells": cells,
        "cell_counts": counts,
        "cell_words": ", ".join(f"{count} {state}" for state, count in counts.items()),
        "has_more_cells": False,
    }
