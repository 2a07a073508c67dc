"""`quire deploy`: writes files that run Quire on servers, with Docker Compose or systemd.

The templates are in `deployment/`. A file that was changed by hand is never overwritten without
--force, and a secret never.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from quire import secret_key
from quire.cli import console, options
from quire.errors import Conflict, Refused

TEMPLATES = Path(__file__).with_name("deployment")

app = options.Group("Write files that run Quire on servers.", no_args_is_help=True)
Folder = Annotated[Path, options.option("FOLDER", "Folder to write to.")]
Force = Annotated[
    bool, options.flag("Overwrite files that were changed. Secrets are kept.", "--force")
]
Program = Annotated[
    Path | None,
    options.option(
        "FILE",
        "The `quire` program that the units run. Default: the one running now.",
        show_default=False,
    ),
]

UNITS = (
    "quire.target", "quire-migrate.service", "quire-api.service", "quire-worker@.service",
    "quire-scheduler.service", "quire-flower.service", "quire-objects.service",
    "quire-health.service", "quire-health.timer",
)  # fmt: skip
#: Units to enable: Quire itself, then those that are optional (a local S3 server, Flower).
ENABLED = (
    "quire.target quire-api quire-scheduler quire-worker@1 quire-health.timer",
    "quire-objects quire-flower",
)
#: Folders that `ProtectHome=yes` hides.
HIDDEN = ("/home", "/root", "/run/user")


class File(NamedTuple):
    """One file to write, with its permissions."""

    text: str
    mode: int = 0o644


@app.command()
def compose(
    folder: Folder = Path("deploy"), force: Force = False, json: options.Json = False
) -> None:
    """Write a Compose file and its secrets: Quire, PostgreSQL, Redis, S3 and Flower.

    Files that were changed are overwritten only with --force, secrets never.
    """
    from quire import __version__

    words = {"version": __version__}
    files = {
        "compose.yaml": _template("compose/compose.yaml", **words),
        ".env": _template("compose/env", **words),
        ".gitignore": _template("compose/gitignore"),
    }
    _write(folder, files, _compose_secrets(folder), force, json, [
        f"docker build -t quire:{__version__} .          # in a checkout of Quire",
        f"docker compose -f {folder / 'compose.yaml'} up -d",
        f"docker compose -f {folder / 'compose.yaml'} logs api   # the link that signs you in",
    ])  # fmt: skip


@app.command()
def systemd(
    folder: Folder = Path("deploy"),
    program: Program = None,
    force: Force = False,
    json: options.Json = False,
) -> None:
    """Write systemd units, a script that installs them, and secrets.

    Files that were changed are overwritten only with --force, secrets never.
    """
    own = (program or Path(sys.executable).with_name("quire")).absolute()
    hidden = [
        f"Install Quire outside {folder}: the units cannot see {own}."
        for folder in HIDDEN
        if own.is_relative_to(folder)
    ]
    words = {"program": str(own), "celery": str(own.with_name("celery"))}
    files = {name: _template(f"systemd/{name}", **words) for name in UNITS}
    for name in ("sysusers.conf", "quire.env"):
        files[name] = _template(f"systemd/{name}")
    own_units, other_units = ENABLED
    files["install.sh"] = _template("systemd/install.sh", own=own_units, others=other_units)
    files["postgresql.conf"] = _template("systemd/limits.conf", memory="4G")
    files["redis.conf"] = _template("systemd/limits.conf", memory="384M")
    files[".gitignore"] = _template("compose/gitignore")
    _write(folder, files, _systemd_secrets(), force, json, [
        *hidden,
        f"sudo {folder / 'install.sh'}",
        *(f"sudo systemctl enable --now {some}" for some in ENABLED),
        "sudo journalctl -u quire-api          # the link that signs you in",
    ])  # fmt: skip


def _template(name: str, **words: str) -> File:
    text = (TEMPLATES / name).read_text()
    for word, value in words.items():
        text = text.replace(f"@{word.upper()}@", value)
    return File(text, 0o755 if name.endswith(".sh") else 0o644)


def _compose_secrets(folder: Path) -> dict[str, File]:
    password = _known_secret(folder, "postgres_password")
    redis = _known_secret(folder, "redis_password")
    texts = {
        "postgres_password": password,
        "redis_password": redis,
        "database_url": f"postgresql://quire:{password}@postgres:5432/quire",
        "broker_url": f"redis://:{redis}@redis:6379/0",
        "secret_key": secret_key.new_key(),
        "objects_access_key": "quire",
        "objects_secret_key": _known_secret(folder, "objects_secret_key"),
        "flower_basic_auth": f"quire:{_known_secret(folder, 'flower_password')}",
    }
    return {f"secrets/{name}": File(f"{text}\n") for name, text in texts.items()}


def _systemd_secrets() -> dict[str, File]:
    database, broker, key, flower = (_new_secret() for _ in range(4))
    texts = {
        "database_url": f"postgresql://quire:{database}@127.0.0.1:5432/quire",
        "broker_url": f"redis://:{broker}@127.0.0.1:6379/0",
        "secret_key": secret_key.new_key(),
        "objects.env": f"AWS_ACCESS_KEY_ID=quire\nAWS_SECRET_ACCESS_KEY={key}",
        "objects-root.env": f"ROOT_ACCESS_KEY=quire\nROOT_SECRET_KEY={key}",
        "flower.env": f"FLOWER_BASIC_AUTH=quire:{flower}",
    }
    return {f"secrets/{name}": File(f"{text}\n", 0o600) for name, text in texts.items()}


def _known_secret(folder: Path, name: str) -> str:
    """Return the secret that an earlier run wrote, or a new one."""
    path = folder / "secrets" / name
    return path.read_text().strip() if path.exists() else _new_secret()


def _new_secret() -> str:
    import secrets

    return secrets.token_urlsafe(24)


def _write(
    folder: Path,
    files: Mapping[str, File],
    secrets: Mapping[str, File],
    force: bool,
    json: bool,
    then: Sequence[str],
) -> None:
    written = write_files(folder, files, secrets, force=force)
    if json:
        named = [{"name": name, "state": how} for name, how in written.items()]
        console.as_json({"folder": str(folder), "files": named, "next": list(then)})
        return
    for name, how in written.items():
        console.say(f"{how:8} {folder / name}")
    console.say()
    console.say("Next:")
    for line in then:
        console.say(f"  {line}")


def write_files(
    folder: Path, files: Mapping[str, File], secrets: Mapping[str, File], *, force: bool
) -> dict[str, str]:
    """Write all files or none; secrets only if they do not exist yet.

    Returns what was done with each: written, same (it was already there) or kept (a secret).
    """
    known = {name: (folder / name).exists() for name in (*files, *secrets)}
    same = {
        name for name in files if known[name] and (folder / name).read_text() == files[name].text
    }
    changed = [name for name in files if known[name] and name not in same]
    if changed and not force:
        raise Conflict(
            f"{folder}: {', '.join(changed)} was changed and would be overwritten. Nothing was "
            "written. Use --force to overwrite, or --folder to name another folder."
        )
    try:
        for name, file in files.items():
            if name not in same:
                _write_file(folder / name, file)
        # The folder is private; a container's user reads the file through its mount.
        (folder / "secrets").mkdir(exist_ok=True, mode=0o700)
        for name, file in secrets.items():
            if not known[name]:
                _write_file(folder / name, file)
    except OSError as error:
        raise Refused(
            f"{folder}: cannot be written ({error.strerror}). Name another folder with --folder."
        ) from error
    kept = {name: "kept" if known[name] else "written" for name in secrets}
    return {name: "same" if name in same else "written" for name in files} | kept


def _write_file(path: Path, file: File) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)  # a secret is never readable by others, not even for a moment
    path.write_text(file.text)
    path.chmod(file.mode)
