"""Writes the lock files: requirements pinned by hash that both uv and pip can install.

uv resolves once for all supported platforms. The files do not name the package index, so they are
the same with any mirror (docs/adr/0001).

    python tools/lock.py              keep existing pins if possible
    python tools/lock.py --upgrade    use the newest releases
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "requirements"
#: Extras that `make run` installs too; they are part of base.lock.
RUN_EXTRAS: tuple[str, ...] = ("ocr",)
#: hatchling needs `editables` for the editable install of setup.sh.
BUILD = ("editables",)
PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<rest>[^\\]+?)\s*\\?$", re.MULTILINE)


def main() -> None:
    """Compile the four lock files, then list the wheels that exist for base.lock."""
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("lock: uv is not on PATH. Install uv, then run `make lock` again.")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    flags = ["--upgrade"] if "--upgrade" in sys.argv[1:] else []
    with tempfile.TemporaryDirectory() as scratch:
        build = Path(scratch, "build.in")
        build.write_text("\n".join([*project["build-system"]["requires"], *BUILD]))
        extras = [f"--extra={name}" for name in RUN_EXTRAS]
        compile_lock(uv, "base.lock", ["pyproject.toml", *extras, *flags])
        everything = ["pyproject.toml", "--all-extras", "--group=dev"]
        compile_lock(uv, "dev.lock", [*everything, *within("base.lock"), *flags])
        # All are installed into one environment, so versions must agree.
        compile_lock(uv, "audit.lock", ["--group=audit", "--no-annotate", *flags])
        compile_lock(uv, "build.lock", [str(build), "--no-annotate", *within("dev.lock"), *flags])
        wheels = wheel_names(uv, Path(scratch), project["project"]["requires-python"])
    (LOCKS / "wheels.txt").write_text("".join(f"{name}\n" for name in wheels))


def within(lock: str) -> list[str]:
    """Return options that constrain a resolution to the versions of another lock file."""
    return ["--constraints", f"requirements/{lock}"]


def compile_lock(uv: str, name: str, arguments: list[str]) -> None:
    """Resolve `arguments` for every platform into requirements/`name`."""
    options = ["--universal", "--python-version=3.11", "--generate-hashes", "--no-header"]
    quiet = ["--no-emit-index-url", "--no-emit-find-links", "--quiet"]
    output = ["--output-file", f"requirements/{name}"]
    subprocess.run(
        [uv, "pip", "compile", *arguments, *options, *quiet, *output],
        cwd=ROOT,
        env=_without_local_sources(),
        check=True,
    )


def wheel_names(uv: str, scratch: Path, requires_python: str) -> list[str]:
    """Return the file names of all wheels of the releases that base.lock pins."""
    pins = [
        f"{pin['name']}=={pin['rest']}" for pin in PIN.finditer((LOCKS / "base.lock").read_text())
    ]
    listed = ", ".join(f'"{pin}"' for pin in pins)
    # Only uv.lock lists the files of a release. It also names the index, so it is temporary.
    (scratch / "pyproject.toml").write_text(
        f'[project]\nname = "wheels"\nversion = "0"\nrequires-python = "{requires_python}"\n'
        f"dependencies = [{listed}]\n"
    )
    subprocess.run([uv, "lock", "--quiet"], cwd=scratch, env=_without_local_sources(), check=True)
    locked = tomllib.loads((scratch / "uv.lock").read_text())
    files = [wheel["url"] for package in locked["package"] for wheel in package.get("wheels", [])]
    return sorted(url.rsplit("/", 1)[1] for url in files)


def _without_local_sources() -> dict[str, str]:
    # A local folder may contain wheels that nobody else can download.
    return {name: value for name, value in os.environ.items() if name != "UV_FIND_LINKS"}


if __name__ == "__main__":
    main()
