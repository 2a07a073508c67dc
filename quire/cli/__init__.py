"""The `quire` command: one module per group of commands. Only this package uses rich and Typer.

Commands import what they run inside their functions, which keeps `quire --help` fast.
"""

import contextlib
import gc
import os
import sys

from quire.home import UMASK


def main() -> None:
    """Run the command line and exit with its code."""
    os.umask(UMASK)  # of this process and all that it starts: no file is for other users
    gc.set_threshold(20_000)  # importing creates many objects, and none of them is garbage
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot encode is written as an escape.
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if os.environ.keys() & {"QUIRE_PARENT_FD", "QUIRE_SUPERVISE"}:
        from quire.cli import processes

        if (code := processes.run_managed()) is not None:
            sys.exit(code)
    from quire.cli import console
    from quire.errors import QuireError
    from quire.url_secrets import masked

    try:
        from quire.cli.commands import app

        app(prog_name="quire")
    except QuireError as error:
        console.complain(masked(str(error)))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        console.drop_output()
        sys.exit(console.CLOSED_PIPE)
    finally:
        console.flush()
