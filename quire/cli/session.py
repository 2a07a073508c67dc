"""Opens what a command works on: the settings, the local database, or a remote server.

Settings, plugins and the database are imported when a command runs, which keeps `--help` fast.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quire.errors import BadInput, Refused, install_hint

if TYPE_CHECKING:
    from quire.app import App
    from quire.cli.local import LocalBackend
    from quire.cli.remote import RemoteBackend
    from quire.settings import Settings

    Backend = LocalBackend | RemoteBackend


def load_settings(plugins: Sequence[str] | None = None, **given: Any) -> "Settings":
    """Read the settings. Options win; plugins named by an option are added to QUIRE_PLUGINS."""
    from quire import settings

    found = settings.load(**given)
    return replace(found, plugins=(*found.plugins, *(plugins or ())))


def load_plugins() -> None:
    """Load plugins, so that this process knows their parsers and sources."""
    from quire import plugins

    plugins.equip(plugins.load(load_settings().plugins))


#: Schemes of sources that need an extra: the package that is looked for, and the extra.
SOURCE_EXTRAS = {
    "s3": ("obstore", "s3"),
    "gs": ("obstore", "s3"),
    "az": ("obstore", "s3"),
    "gdrive": ("googleapiclient", "gdrive"),
}


def check_extras(settings: "Settings", sources: Sequence[str] = ()) -> None:
    """Refuse settings and sources that need a package that is not installed."""
    for source in sources:
        package, extra = SOURCE_EXTRAS.get(source.partition(":")[0], ("", ""))
        if package and not _is_installed(package):
            raise BadInput(
                f"source {source}: it needs a package that is not installed. Nothing was "
                f"submitted. Install it with `{install_hint(extra)}`."
            )
    if settings.broker_url:
        from quire.celery import settings as celery_settings

        celery_settings.check(settings)
    if settings.blobs and not _is_installed("obstore"):
        raise BadInput(
            "QUIRE_BLOBS: the client for buckets is not installed. Install it with "
            f"`{install_hint('s3')}`, or unset QUIRE_BLOBS to keep files in the home."
        )


def _is_installed(name: str) -> bool:
    """Look for a package without importing it: only child processes need it."""
    import importlib.util

    with contextlib.suppress(ImportError):
        return importlib.util.find_spec(name) is not None
    return False


@contextlib.contextmanager
def open_app() -> Iterator["App"]:
    """Open an existing home, without plugins: only commands that run or submit jobs need them."""
    with _opened(replace(load_settings(), plugins=()), create=False) as app:
        yield app


@contextlib.contextmanager
def create_app(plugins: Sequence[str] | None = None, **given: Any) -> Iterator["App"]:
    """Open the home with its plugins, and create it if it is missing."""
    with _opened(load_settings(plugins, **given), create=True) as app:
        yield app


@contextlib.contextmanager
def connect(
    plugins: Sequence[str] | None = None, *, create: bool = False, **given: Any
) -> Iterator["Backend"]:
    """Connect to the server in QUIRE_URL, or open the home with `open_app` or `create_app`."""
    settings = load_settings()
    if not settings.url:
        from quire.cli.local import LocalBackend

        with create_app(plugins, **given) if create else open_app() as app:
            yield LocalBackend(app)
        return
    if refused := [f"--{name}" for name, value in given.items() if value is not None]:
        raise Refused(
            f"{refused[0]}: a server acts only for the user of the token. Nothing was changed. "
            "Set QUIRE_TOKEN to that user's token."
        )
    from quire.cli.remote import RemoteBackend

    with RemoteBackend(settings.url, settings.token) as server:
        yield server


@contextlib.contextmanager
def _opened(settings: "Settings", *, create: bool) -> Iterator["App"]:
    from quire.app import App

    refuse_remote(settings)
    app = App(settings, create=create)
    try:
        yield app
    finally:
        app.close()


def refuse_remote(settings: "Settings") -> None:
    """Refuse a command that needs the database when QUIRE_URL names a server."""
    if settings.url:
        raise Refused(
            f"server {settings.url}: this command needs the database, not the API. Run it on the "
            "server's machine, or unset QUIRE_URL."
        )
