"""Groups of commands about one thing, for people who name the thing and forget the verb."""

import shlex
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

from quire.errors import BadInput


class OfIds(TyperGroup):
    """Verbs on what has an id: `quire job 10` is answered with `quire job show 10`."""

    def resolve_command(self, context: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """Find the command, or say which one was probably meant."""
        if args[0] not in self.commands and self.is_name(args[0]):
            named = f"{context.command_path} show {shlex.quote(args[0])}"
            raise BadInput(
                f"{context.command_path}: {args[0]!r} is not one of its commands "
                f"({', '.join(self.commands)}). Did you mean: {named}"
            )
        return super().resolve_command(context, args)

    def is_name(self, text: str) -> bool:
        """Tell whether a word names a thing, and is no verb written wrongly."""
        return text.isdigit()


class OfNames(OfIds):
    """Verbs on what has a name."""

    def is_name(self, text: str) -> bool:
        """Tell whether a word names a thing, and is no verb written wrongly."""
        return not text.startswith("-") and not get_close_matches(text, self.commands)
