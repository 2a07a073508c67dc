"""What rerankers read of a query and a passage, and what their scores mean."""

import math
from collections.abc import Sequence

#: Characters of a passage and of a query that are read.
MAX_CHARS, MAX_QUERY_CHARS = 2_000, 1_000


def scaled(scores: Sequence[float]) -> list[float]:
    """Return scores from 0 to 1: what a model gives beyond that are logits."""
    if all(0 <= score <= 1 for score in scores):
        return list(scores)
    return list(map(logistic, scores))


def logistic(logit: float) -> float:
    """Return a score from 0 to 1."""
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, logit))))
