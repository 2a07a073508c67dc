"""Writes the files of `quire deploy`: from templates beside this module, never over a change."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from quire.errors import Conflict, Refused

TEMPLATES = Path(__file__).with_name("deployment")


class File(NamedTuple):
    """One file to write: its text, and who may read it."""

    text: str
    mode: int = 0o644


class Written(NamedTuple):
    """What became of one file: written, same (it was there already) or kept (a secret)."""

    name: str
    how: str


def template(name: str, **words: str) -> File:
    """Read a template and fill in its words."""
    text = (TEMPLATES / name).read_text()
    for word, value in words.items():
        text = text.replace(f"@{word.upper()}@", value)
    return File(text, 0o755 if name.endswith(".sh") else 0o644)


def write(
    folder: Path, files: Mapping[str, File], kept: Mapping[str, File], *, force: bool
) -> list[Written]:
    """Write files, all or none; those that are `kept` only where they are not there yet."""
    changed = [
        name
        for name, file in files.items()
        if (folder / name).exists() and (folder / name).read_text() != file.text
    ]
    if changed and not force:
        raise Conflict(
            f"{folder}: {', '.join(changed)} would be overwritten and is not as Quire writes it. "
            "Nothing was written; --force overwrites, --folder names another folder."
        )
    try:
        return [_written(folder, name, file) for name, file in files.items()] + [
            _kept(folder, name, file) for name, file in kept.items()
        ]
    except OSError as error:
        raise Refused(
            f"{folder}: cannot be written ({error.strerror}). Name another folder with --folder."
        ) from error


def _written(folder: Path, name: str, file: File) -> Written:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    is_same = path.exists() and path.read_text() == file.text
    if not is_same:
        path.write_text(file.text)
        path.chmod(file.mode)
    return Written(name, "same" if is_same else "written")


def _kept(folder: Path, name: str, file: File) -> Written:
    path = folder / name
    # The folder is closed to others; a container's user reads the file through its mount.
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists():
        return Written(name, "kept")
    path.touch(mode=0o600)
    path.write_text(file.text)
    path.chmod(file.mode)
    return Written(name, "written")


def known_secret(folder: Path, name: str, made: str | None = None) -> str:
    """Return a secret that was written before, else a fresh one."""
    path = folder / "secrets" / name
    return path.read_text().strip() if path.exists() else made or secrets.token_urlsafe(24)
