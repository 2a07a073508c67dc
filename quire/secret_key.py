"""The key that seals secrets before they are stored: from QUIRE_SECRET_KEY, or in the home.

A *ring* has one key or more: the first seals, all open, so that a key can be replaced while
processes run. What is sealed says which key it needs.
"""

import base64
import binascii
import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from quire.errors import BadInput, SecretUnavailable
from quire.home import make_folder

#: The file of an installation on one machine, one key a line.
FILE = "secret.key"
_BYTES, _NONCE_BYTES = 32, 12
_SEPARATOR = re.compile(r"[\s,]+")


class Key(NamedTuple):
    """A key and its public name."""

    id: str
    bytes: bytes


@dataclass(frozen=True, slots=True, repr=False)
class Ring:
    """The keys of an installation."""

    keys: tuple[Key, ...]
    origin: str

    @property
    def first(self) -> Key:
        """The key that seals."""
        return self.keys[0]

    def seal(self, secret: bytes, about: str) -> tuple[str, bytes]:
        """Encrypt a secret; returns the id of the key, too. It opens for the same `about` only."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE_BYTES)
        sealed = AESGCM(self.first.bytes).encrypt(nonce, secret, about.encode())
        return self.first.id, nonce + sealed

    def open(self, key_id: str, sealed: bytes, about: str) -> bytes:
        """Decrypt a secret, or raise SecretUnavailable."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = next((each for each in self.keys if each.id == key_id), None)
        if key is None:
            raise SecretUnavailable(
                f"secrets: sealed with the key {key_id}, but this machine has "
                f"{', '.join(each.id for each in self.keys)} (from {self.origin}). Set "
                "QUIRE_SECRET_KEY to the same value on every machine, then retry the job."
            )
        try:
            nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            return AESGCM(key.bytes).decrypt(nonce, rest, about.encode())
        except InvalidTag as error:
            raise SecretUnavailable(
                "secrets: a sealed secret was changed in the database, or moved there from another "
                "place. Submit the source again, with its password or signature."
            ) from error


def new_key() -> str:
    """Return a new random key, as QUIRE_SECRET_KEY takes it."""
    return base64.urlsafe_b64encode(os.urandom(_BYTES)).decode()


def parse(text: str, origin: str) -> Ring:
    """Read keys; raise BadInput, which does not show them, if one is malformed."""
    keys = []
    for each in filter(None, _SEPARATOR.split(text)):
        try:
            raw = base64.b64decode(each.replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if len(raw) != _BYTES:
            raise BadInput(
                f"{origin}: expected keys of {_BYTES} bytes in base64, separated by commas. `quire "
                "secret key` prints a new one. Nothing was started."
            )
        keys.append(Key(hashlib.sha256(b"quire key id" + raw).hexdigest()[:8], raw))
    return Ring(tuple(keys), origin)


def load(settings: Mapping[str, Any]) -> Ring:
    """Return the keys of this installation; on SQLite, the first call makes one."""
    if (found := find(settings)) is not None:
        return found
    path = Path(settings["home"]) / FILE
    if not str(settings.get("url") or "sqlite:").startswith("sqlite:"):
        raise SecretUnavailable(
            "secrets: a source URL has a password or signature, and there is no key to seal it "
            "with. Set QUIRE_SECRET_KEY to the same value on every machine (`quire secret key` "
            "prints one), then submit or retry the job."
        )
    _write(path, new_key(), replace=False)  # another process may be faster
    return _of_file(path)


def find(settings: Mapping[str, Any]) -> Ring | None:
    """Return the keys of this installation, if it has any."""
    if given := str(settings.get("secret_key") or ""):
        return parse(given, "QUIRE_SECRET_KEY")
    try:
        return _of_file(Path(settings["home"]) / FILE)
    except FileNotFoundError:
        return None


def add_to_file(home: Path) -> Ring:
    """Put a new key before the one that seals now, and drop those before it."""
    path = home / FILE
    keys = [line for line in path.read_text().split() if line]
    _write(path, "\n".join([new_key(), *keys[:1]]), replace=True)
    return _of_file(path)


def _of_file(path: Path) -> Ring:
    try:
        ring = parse(path.read_text(), str(path))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SecretUnavailable(
            f"secrets: the key {path} cannot be read ({error.strerror}). Run as the user of the "
            "home, or set QUIRE_SECRET_KEY."
        ) from error
    if not ring.keys:
        raise SecretUnavailable(
            f"secrets: the file {path} holds no key. Restore it from a backup, or set "
            "QUIRE_SECRET_KEY."
        )
    return ring


def _write(path: Path, text: str, *, replace: bool) -> None:
    """Write the file in one step: of two processes that make a key, one wins."""
    make_folder(path.parent)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f"{FILE}.")  # mode 0600
    try:
        with os.fdopen(number, "w") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        if replace:
            Path(name).replace(path)
            return
        with contextlib.suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
