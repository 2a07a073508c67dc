"""The `quire` command: one module per group of commands. Only this package uses rich and Typer.

Commands import what they run inside their functions, which keeps `quire --help` fast.
"""

import gc
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from quire.cli import console
    from quire.errors import QuireError

    gc.set_threshold(20_000)  # importing creates many objects, and none of them is garbage
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
