"""The `quire` command. One module per group of commands; rich and Typer are used only here.

Nothing is imported before it is needed: the demonstration's job kinds live in this package too,
and the child process that runs them has to stay small.
"""

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from quire.cli import console
    from quire.errors import QuireError

    console.never_fail_on_odd_characters()
    try:
        from quire.cli.commands import app

        app(prog_name="quire")
    except QuireError as error:
        console.complain(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        console.drop_output()
        sys.exit(console.CLOSED_PIPE)
    finally:
        console.flush()
