"""The home: which folder it is, whether it may be trusted, and that only its user reads it.

A home that was named may hold anything. One that was found, from the current folder upwards, may
have been put there by somebody else: its `quire.toml` names Python code to run, and servers that
passwords are sent to. So it is used only if nobody but its user, or root, could have written it.
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from quire.errors import BadInput

#: Nobody but the user: for folders, for files, and as the umask of every process.
FOLDER_MODE, FILE_MODE, UMASK = 0o700, 0o600, 0o077
#: Settings that run code or say where data and secrets go.
TRUSTED_ONLY = frozenset({
    "plugins", "url", "token", "database_url", "broker_url", "blobs", "bucket_endpoint",
    "gdrive_credentials", "gdrive_endpoint", "embed_url", "embed_api_key", "secret_key",
    "rerank_url", "rerank_key", "rerank_model",
    "source_credentials", "source_endpoint",
})  # fmt: skip
#: Secrets, and the setting that says where each of them is sent.
SENT_TO = {
    "token": "url",
    "embed_api_key": "embed_url",
    "rerank_key": "rerank_url",
    "gdrive_credentials": "gdrive_endpoint",
    "oidc_client_secret": "oidc_issuer",
    "source_credentials": "source_endpoint",
}


@dataclass(frozen=True, slots=True)
class Home:
    """A home, and whether the user named it."""

    path: Path
    is_named: bool

    @property
    def toml(self) -> Path:
        """Its file of settings."""
        return self.path / "quire.toml"

    def read_toml(self) -> str | None:
        """Return the text of its file of settings, or None; refuse the file of a stranger."""
        try:
            with self.toml.open("rb") as file:
                if not self.is_named:
                    _require_own(self.toml, os.fstat(file.fileno()), self.path)
                return file.read().decode()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise BadInput(
                f"{self.toml}: cannot be read ({error.strerror}). Nothing was started. Run as the "
                "user of the home, or name another one with QUIRE_HOME."
            ) from error
        except UnicodeDecodeError as error:
            raise BadInput(
                f"{self.toml}: not valid TOML ({error}). Nothing was started."
            ) from error

    def require_trusted(self, table: Mapping[str, object]) -> None:
        """Refuse settings that only an own or a named home may have."""
        asked = sorted(TRUSTED_ONLY & table.keys())
        if asked and not self.is_named and self.toml.stat().st_uid != os.geteuid():
            raise BadInput(
                f"{self.toml}: sets {', '.join(asked)}, and belongs to {_user(0)}, not to you. "
                "Such settings are taken from your own home, or from one that you name. Nothing "
                f"was started. If you trust it, set QUIRE_HOME={self.path}."
            )


def choose(named: str | os.PathLike[str] | None) -> Home:
    """Return the home that was named, else the nearest `.quire`, else the user's data folder."""
    if named:
        return Home(Path(named).absolute(), is_named=True)
    return found(_nearest())


def found(path: Path) -> Home:
    """Return a home that nobody named, or refuse one that somebody else may write."""
    try:
        link, folder = path.lstat(), path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Home(path.absolute(), is_named=False)
    if stat.S_ISLNK(link.st_mode):
        _require_owner(path, link, path)
    _require_own(path, folder, path)
    return Home(path.absolute(), is_named=False)


def make_folder(path: Path) -> None:
    """Create a folder, and what is missing above it, for its user only."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True, mode=FOLDER_MODE)


def open_to_others(path: Path) -> list[Path]:
    """List what other users of the machine can read or write: the home, and what is in it.

    A folder that is closed closes all below it: nothing deeper than the entries of an open home is
    looked at. A program that uses Quire may have another umask for the files in it.
    """
    found = [each for each, mode in _own_entries(path) if mode & UMASK]
    return found if path in found else []


def close_to_others(path: Path) -> int:
    """Take the rights of other users from the home and what is in it; returns how many changed."""
    changed = [(each, mode) for each, mode in _own_entries(path) if mode & UMASK]
    for each, mode in changed:
        with contextlib.suppress(FileNotFoundError):  # temporary files come and go
            each.chmod(mode & ~UMASK)
    return len(changed)


def _own_entries(path: Path) -> Iterator[tuple[Path, int]]:
    """Yield the home and its entries that are files and folders of this user, with their modes."""
    if not path.is_dir():
        return
    for each in (path, *sorted(path.iterdir())):
        try:
            info = each.lstat()
        except FileNotFoundError:
            continue
        is_plain = stat.S_ISDIR(info.st_mode) or stat.S_ISREG(info.st_mode)
        if is_plain and (info.st_uid == os.geteuid() or os.geteuid() == 0):
            yield each, stat.S_IMODE(info.st_mode)


def _nearest() -> Path:
    for folder in [Path.cwd(), *Path.cwd().parents]:
        if (folder / ".quire").is_dir():
            return folder / ".quire"
    from platformdirs import user_data_path

    return user_data_path("quire")


def _require_own(path: Path, info: os.stat_result, home: Path) -> None:
    _require_owner(path, info, home)
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadInput(
            f"{path}: other users may write it (mode {stat.S_IMODE(info.st_mode):o}), so what it "
            "says is not trusted. Nothing was started. If it is yours, run `chmod go-w "
            f"{path}`. If you trust it as it is, set QUIRE_HOME={home}."
        )


def _require_owner(path: Path, info: os.stat_result, home: Path) -> None:
    if info.st_uid not in (0, os.geteuid()):
        raise BadInput(
            f"{path}: belongs to {_user(info.st_uid)}, and you are {_user(os.geteuid())}. A home "
            "that was found is used only if it belongs to you or root. Nothing was started. If "
            f"you trust it, set QUIRE_HOME={home}; else name another folder with QUIRE_HOME."
        )


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
