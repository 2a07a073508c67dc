"""Write the lock: hash-pinned requirement files that uv and pip both install from.

uv resolves once for all supported platforms. Nothing written here names the index that
answered, so the files are the same behind any mirror (docs/adr/0001).

    python tools/lock.py              keep the pins that still fit
    python tools/lock.py --upgrade    take the newest releases
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
#: Extras that `make run` installs beside the base dependencies; they are part of base.lock.
RUN_EXTRAS: tuple[str, ...] = ("ocr",)
#: What setup.sh builds the editable install with: hatchling asks for editables when it runs.
BUILD = ("editables",)
PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<rest>[^\\]+?)\s*\\?$", re.MULTILINE)


def main() -> None:
    """Compile the three locks, then list the wheels that exist for the base lock."""
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
        # All of them meet in one environment, so a package has one version in all of them.
        compile_lock(uv, "build.lock", [str(build), "--no-annotate", *within("dev.lock"), *flags])
        wheels = wheel_names(uv, Path(scratch), project["project"]["requires-python"])
    (LOCKS / "wheels.txt").write_text("".join(f"{name}\n" for name in wheels))


def within(lock: str) -> list[str]:
    """The options that keep a resolution to the versions of another lock."""
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
    """The file names of all wheels of the releases that base.lock pins."""
    pins = [
        f"{pin['name']}=={pin['rest']}" for pin in PIN.finditer((LOCKS / "base.lock").read_text())
    ]
    listed = ", ".join(f'"{pin}"' for pin in pins)
    # uv.lock is the one place where uv tells which files a release has. It also names hosts,
    # so it is read here and thrown away.
    (scratch / "pyproject.toml").write_text(
        f'[project]\nname = "wheels"\nversion = "0"\nrequires-python = "{requires_python}"\n'
        f"dependencies = [{listed}]\n"
    )
    subprocess.run([uv, "lock", "--quiet"], cwd=scratch, env=_without_local_sources(), check=True)
    locked = tomllib.loads((scratch / "uv.lock").read_text())
    files = [wheel["url"] for package in locked["package"] for wheel in package.get("wheels", [])]
    return sorted(url.rsplit("/", 1)[1] for url in files)


def _without_local_sources() -> dict[str, str]:
    # A local folder of wheels may hold a build that nobody else can get.
    return {name: value for name, value in os.environ.items() if name != "UV_FIND_LINKS"}


if __name__ == "__main__":
    main()
