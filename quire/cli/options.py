"""Options, arguments and command groups that several commands share."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from quire.errors import BadInput, NotFound

F = TypeVar("F", bound=Callable[..., Any])

#: The largest id that both databases can hold.
LARGEST_ID = 2**63 - 1
#: As in `quire.model.records`, which `--help` does not load.
DEFAULT_PRIORITY = 5
#: The largest page of a listing.
LARGEST_PAGE = 1000


def option(metavar: str, help: str, *names: str, **how: Any) -> Any:
    """Declare an option that takes a value."""
    return typer.Option(*names, metavar=metavar, help=help, **how)


def flag(help: str, *names: str, **how: Any) -> Any:
    """Declare an option without a value."""
    return typer.Option(*names, help=help, **how)


def argument(metavar: str, help: str, **how: Any) -> Any:
    """Declare an argument."""
    return typer.Argument(metavar=metavar, help=help, **how)


def id_of(noun: str, listing: str) -> Callable[[str], int]:
    """Return a parser of the ids of something that the command `listing` lists."""

    def parse(text: str) -> int:
        text = str(text)
        if not (text.isascii() and text.isdigit()):
            raise BadInput(
                f"{noun} {text[:40]}: not a {noun} id. Ids are positive whole numbers. "
                f"`{listing}` lists them."
            )
        # Checked before `int`, which refuses thousands of digits.
        if len(text) > 19 or not 1 <= int(text) <= LARGEST_ID:
            raise NotFound(f"{noun} {text[:40]}: no such {noun}. `{listing}` lists them.")
        return int(text)

    return parse


job_id = id_of("job", "quire jobs")
document_id = id_of("document", "quire documents")


def cursor(text: str | None) -> int | None:
    """Parse the cursor of a listing."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BadInput(f"--cursor: {text[:40]!r} is not the `next` of an earlier page.")
    return int(text)


def limit(number: int) -> int:
    """Check the page size of a listing."""
    if not 1 <= number <= LARGEST_PAGE:
        raise BadInput(f"--limit: {number} is not between 1 and {LARGEST_PAGE:,}.")
    return number


def pairs(given: Sequence[str] | None) -> dict[str, str]:
    """Parse settings given as KEY=VALUE."""
    found: dict[str, str] = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise BadInput(f"{text!r}: not KEY=VALUE, as in chunk_tokens=200.")
        found[name.strip()] = value
    return found


JobId = Annotated[int, argument("JOB", "Id of the job.", parser=job_id)]
DocumentId = Annotated[int, argument("DOCUMENT", "Id of the document.", parser=document_id)]
Limit = Annotated[int, option("N", f"Items to list, at most {LARGEST_PAGE:,}.")]
Cursor = Annotated[str | None, option("CURSOR", "Continue after the previous page.")]
Set = Annotated[
    list[str] | None,
    option("KEY=VALUE", "Pipeline setting. `quire corpus show` lists them. Repeatable.", "--set"),
]
Json = Annotated[bool, flag("Print JSON.", "--json")]
Yes = Annotated[bool, flag("Do not ask for confirmation.", "--yes", "-y")]
Plugins = Annotated[
    list[str] | None,
    option(
        "FILE",
        "Plugin file or module to load, in addition to QUIRE_PLUGINS. Repeatable.",
        "--plugin",
    ),
]

States = Annotated[
    list[str] | None,
    option(
        "STATE",
        "Only jobs in this state: pending, running, completed, failed, stopped or cancelled. "
        "Repeatable.",
        "--state",
    ),
]
Kind = Annotated[str | None, option("KIND", "Only jobs of this kind.", "--kind")]
Platform = Annotated[str | None, option("NAME", "Only jobs of this platform.", "--platform")]
Account = Annotated[str | None, option("NAME", "Only jobs of this account.", "--account")]
User = Annotated[str | None, option("NAME", "Only jobs of this user.", "--user")]


class _PlainValues:
    """Accepts the values that need no conversion; leaves the others to Typer.

    Typer converts every value with pydantic, even a missing one, and takes 70 ms to import it.
    """

    def __init__(self, parameter: Any) -> None:
        self._parameter, self._type = parameter, parameter.type_descriptor

    @staticmethod
    def use_for(parameters: Iterable[Any]) -> None:
        for each in parameters:
            if hasattr(each, "type_descriptor"):  # since Typer 0.29
                each._runtime_param = _PlainValues(each)

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        is_many = param.multiple or param.nargs == -1
        if value is None:
            return () if is_many else None
        wanted, given = self._type.annotation, self._type.parameter_info
        if given.parser:
            return [given.parser(each) for each in value] if is_many else given.parser(value)
        if wanted in (str, list[str]):
            return list(value) if is_many else value
        if type(value) is wanted:  # the default
            return value
        if wanted is int and given.min is given.max is None and value.isascii() and value.isdigit():
            return int(value)
        self._parameter._runtime_param = None
        return self._parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)


class Verbs(TyperGroup):
    """A group of commands."""

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        """Parse the options of the group."""
        _PlainValues.use_for(self.get_params(context))
        return super().parse_args(context, args)


class Command(TyperCommand):
    """A command whose help writes arguments the usual way: `QUERY...`, not `{QUERY}...`."""

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        """Parse arguments and options."""
        _PlainValues.use_for(self.get_params(context))
        return super().parse_args(context, args)

    def collect_usage_pieces(self, context: Any) -> list[str]:
        """List the parts of the usage line."""
        pieces = super().collect_usage_pieces(context)
        return [piece.replace("{", "").replace("}", "") for piece in pieces]

    def format_options(self, context: Any, formatter: Any) -> None:
        """Write arguments and options as two lists."""
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for each in self.get_params(context):
            if (row := each.get_help_record(context)) is None:
                continue
            if each.param_type_name == "argument":
                name = f"{each.metavar}{'' if each.nargs == 1 else '...'}"
                rows["Arguments"].append((name, row[1].removesuffix("  [required]")))
            else:
                rows["Options"].append(row)
        for title, lines in rows.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


class Group(typer.Typer):
    """A group of commands with our help format."""

    def __init__(self, help: str, cls: type[Verbs] = Verbs, **how: Any) -> None:
        super().__init__(
            cls=cls,
            help=help,
            rich_markup_mode=None,
            context_settings={"help_option_names": ["--help", "-h"]},
            **how,
        )

    def command(self, name: str | None = None, **how: Any) -> Callable[[F], F]:
        """Register a command, as Typer does."""
        return super().command(name, cls=Command, **how)


class OfIds(Verbs):
    """Verbs on something with an id: `quire job 10` suggests `quire job show 10`."""

    def resolve_command(self, context: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """Find the command, or suggest the one that was probably meant."""
        if args[0] not in self.commands and self.is_name(args[0]):
            named = f"{context.command_path} show {shlex.quote(args[0])}"
            raise BadInput(
                f"{context.command_path}: {args[0]!r} is not one of its commands "
                f"({', '.join(self.commands)}). Did you mean: {named}"
            )
        return super().resolve_command(context, args)

    def is_name(self, text: str) -> bool:
        """Tell whether a word names a thing rather than a misspelt verb."""
        return text.isdigit()


class OfNames(OfIds):
    """Verbs on something with a name."""

    def is_name(self, text: str) -> bool:
        """Tell whether a word names a thing rather than a misspelt verb."""
        return not text.startswith("-") and not get_close_matches(text, self.commands)
