"""Opens what a command works on, and closes it again."""

import contextlib
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quire import settings as settings_module
from quire.errors import BadInput, Refused
from quire.settings import Settings

if TYPE_CHECKING:
    from quire.app import App
    from quire.cli.backend import Reach


def chosen(plugins: Sequence[str] | None = None, **given: Any) -> Settings:
    """Read the settings: options first; plugins named by an option come on top."""
    settings = settings_module.load(**given)
    return replace(settings, plugins=(*settings.plugins, *(plugins or ())))


def equip() -> None:
    """Make the parsers and sources of plugins known to commands that list, read or check them."""
    from quire import plugins as loading

    loading.equip(loading.load(chosen().plugins))


def equipped(settings: Settings) -> None:
    """Refuse settings for which a package is missing here, before anything is started."""
    if settings.broker_url:
        from quire.celery import settings as celery_settings

        celery_settings.check(settings)
    if settings.blobs and not _is_installed("obstore"):
        raise BadInput(
            "QUIRE_BLOBS: the client of buckets is not installed. Install it with "
            "`pip install 'quire[s3]'`, or unset QUIRE_BLOBS to keep files in the home."
        )


def _is_installed(name: str) -> bool:
    """Look for a package without loading it: only children need it."""
    with contextlib.suppress(ImportError):
        return importlib.util.find_spec(name) is not None
    return False


@contextlib.contextmanager
def reading() -> Iterator["App"]:
    """Open an existing home without plugins, which only those need who run or submit jobs."""
    with _opened(replace(settings_module.load(), plugins=()), create=False) as app:
        yield app


@contextlib.contextmanager
def writing(plugins: Sequence[str] | None = None, **given: Any) -> Iterator["App"]:
    """Open the home with its plugins; it is made if missing."""
    with _opened(chosen(plugins, **given), create=True) as app:
        yield app


@contextlib.contextmanager
def reaching(
    plugins: Sequence[str] | None = None, *, create: bool = False, **given: Any
) -> Iterator["Reach"]:
    """Open the server that QUIRE_URL names, else the home as `reading` or `writing` would."""
    from quire.cli import backend

    settings = settings_module.load()
    if not settings.url:
        with writing(plugins, **given) if create else reading() as app:
            yield backend.Here(app)
        return
    if refused := [f"--{name}" for name, value in given.items() if value is not None]:
        raise Refused(
            f"{refused[0]}: a server acts for the user of the token alone. Nothing was changed; "
            "use that user's token in QUIRE_TOKEN."
        )
    with backend.far(settings.url, settings.token) as server:
        yield server


@contextlib.contextmanager
def _opened(settings: Settings, *, create: bool) -> Iterator["App"]:
    from quire.app import App

    if settings.url:
        raise Refused(
            f"server {settings.url}: this command needs the database, not its API. Run it on "
            "the machine of the server, or unset QUIRE_URL."
        )
    app = App(settings, create=create)
    try:
        yield app
    finally:
        app.close()
