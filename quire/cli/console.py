"""Prints lines, JSON, tables and live views."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from quire import format

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

#: The exit code shells report for a program killed by SIGPIPE.
CLOSED_PIPE = 141
#: Width of output that does not go to a terminal: wide enough not to cut anything useful.
WIDTH_IN_FILES = 160
REFRESH_SECONDS = 0.5
REFRESH_IN_FILES = 2.0
#: Colours by the tone of a state, as rich names them.
_COLOURS = {
    "wait": "yellow",
    "run": "cyan",
    "good": "green",
    "warn": "yellow",
    "bad": "red",
    "idle": "bright_black",
}


def colour(state: str) -> str:
    """Return the colour of a state of a job, task or document."""
    return _COLOURS[format.tone(state)]


@contextlib.contextmanager
def _quiet_end() -> Iterator[None]:
    """Exit the command if the reader of its output has gone."""
    try:
        yield
    except BrokenPipeError:
        drop_output()
        raise typer.Exit(CLOSED_PIPE) from None


def say(text: str = "") -> None:
    """Print one line."""
    with _quiet_end():
        typer.echo(text)


def note(text: str) -> None:
    """Print a remark on standard error, so that it does not get into a pipe."""
    typer.echo(text, err=True)


def complain(text: str) -> None:
    """Print an error on one line, in red on a terminal."""
    typer.secho(" ".join(text.split()), err=True, fg=typer.colors.RED)


def as_json(value: Any, *, on_one_line: bool = False) -> None:
    """Print a value as JSON: indented for people, on one line for programs."""
    short = on_one_line or not sys.stdout.isatty()
    say(json.dumps(value, indent=None if short else 2, default=str))


def answer(value: Any, text: str, *, json: bool) -> None:
    """Print what was done: as JSON if that is asked for, otherwise as text."""
    if json:
        as_json(value)
    else:
        say(text)


def facts(shown: Mapping[str, Any], indent: str = "  ") -> "Table":
    """Make a table of names and values; empty values are left out."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    for name, value in shown.items():
        if value:
            made.add_row(f"{indent}{name}", value)
    return made


def state(name: str) -> "Text":
    """Return the name of a state of a job, task or document, in its colour."""
    from rich.text import Text

    return Text(name.replace("_", " "), style=colour(name))


def rich_console() -> "Console":
    """Return rich's console on standard output."""
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            # Rich would exit with 1, which here means that some work failed.
            drop_output()
            raise typer.Exit(CLOSED_PIPE)

    width = None if sys.stdout.isatty() else WIDTH_IN_FILES
    return Ours(width=width, highlight=False, markup=False, soft_wrap=False)


def show(what: "RenderableType") -> None:
    """Print a table or another rich renderable."""
    console = rich_console()
    if console.is_terminal:
        console.print(what)
        return
    # Rich pads lines with spaces, which do not belong in a file or a pipe.
    with console.capture() as drawn:
        console.print(what)
    say("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def table(
    rows: Sequence[Mapping[str, Any]],
    *,
    right: Iterable[str] = (),
    wide: str = "",
    more: int = 0,
) -> "Table":
    """Make a table; each row maps the titles of the columns to its cells.

    Columns in `right` are right-aligned; `wide` takes the remaining width. `more` rows were left
    out, which a last line says.
    """
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in rows[0] if rows else ():
        made.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=name != wide,
            overflow="ellipsis",
            ratio=1 if name == wide else None,
        )
    for row in rows:
        made.add_row(*(_cell(value, is_wide=name == wide) for name, value in row.items()))
    if more:
        made.add_row("…", f"{more:,} more")
    return made


def _cell(value: Any, *, is_wide: bool) -> "str | Text":
    from rich.text import Text

    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    # On a narrow terminal rich would shorten every column, ids included.
    return Text(value, no_wrap=True, overflow="ellipsis") if is_wide else value


def listing(
    items: Sequence[Any],
    row: Callable[[Any], Mapping[str, Any]],
    *,
    json: bool,
    empty: str,
    **how: Any,
) -> None:
    """Print a complete list: as JSON, as a table with a row for each item, or that it is empty."""
    if json:
        as_json({"items": items, "next": None})
    elif not items:
        say(empty)
    else:
        show(table([row(each) for each in items], **how))


def present(
    read: Callable[[], Any],
    draw: Callable[[Any], "RenderableType"],
    *,
    json: bool,
    watch: bool,
    is_over: Callable[[Any], bool] = lambda value: False,
) -> None:
    """Print what `read` returns; with `watch`, again and again until it is over, or Ctrl-C."""
    if watch and not json and sys.stdout.isatty():
        from rich.live import Live

        with Live(draw(value := read()), console=rich_console(), auto_refresh=False) as live:
            while not is_over(value):
                time.sleep(REFRESH_SECONDS)
                live.update(draw(value := read()), refresh=True)
        return
    before = None
    while True:
        value = read()
        if not json:
            show(draw(value))
        elif value != before:
            as_json(value, on_one_line=watch)
        if not watch or is_over(value):
            return
        before = value
        sys.stdout.flush()
        time.sleep(REFRESH_SECONDS if json else REFRESH_IN_FILES)
        if not json:
            say()


def drop_output() -> None:
    """Discard further output: its reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def flush() -> None:
    """Flush standard output. A closed pipe is not an error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
