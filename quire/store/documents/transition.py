"""Transitions of documents and generations: the only statements that change their `state`.

The states that a move starts from are in the WHERE clause and its target is the new state; both
come from the tables in `quire.model.states`. Callers say which rows, and what else changes.
"""

from typing import Any

import sqlalchemy as sa

from quire.model.states import DOCUMENT_MOVES, GENERATION_MOVES, Move
from quire.store.db.schema.documents import documents, generations
from quire.store.db.schema.queue import is_state


def move_documents(move: str, *where: sa.ColumnElement[bool], **changes: Any) -> sa.Update:
    """Return the UPDATE that makes a move of DOCUMENT_MOVES."""
    return _update(documents, DOCUMENT_MOVES[move], where, changes)


def move_generations(move: str, *where: sa.ColumnElement[bool], **changes: Any) -> sa.Update:
    """Return the UPDATE that makes a move of GENERATION_MOVES."""
    return _update(generations, GENERATION_MOVES[move], where, changes)


def _update(
    table: sa.Table, move: Move, where: tuple[sa.ColumnElement[bool], ...], changes: dict[str, Any]
) -> sa.Update:
    is_source = is_state(table.c.state, *sorted(move.sources))
    return sa.update(table).where(*where, is_source).values(state=str(move.target), **changes)
