"""Which chunks count, as a part of other statements."""

from typing import Any, NamedTuple

import sqlalchemy as sa


class Among(NamedTuple):
    """Selects ids of chunks; `given` are its parameters."""

    select: sa.Select[Any]
    given: dict[str, Any]
