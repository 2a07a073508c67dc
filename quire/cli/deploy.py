"""`quire deploy`: files that run Quire on servers, by Docker Compose or by systemd."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quire.cli import console, options

if TYPE_CHECKING:
    from quire.cli.deploying import File

app = typer.Typer(
    help="Write files that run Quire on servers.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)
Folder = Annotated[Path, typer.Option(metavar="FOLDER", help="Where to write them.")]
Force = Annotated[
    bool, typer.Option("--force", help="Overwrite files that were changed; secrets are kept.")
]
Program = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The `quire` that the units run; if not named, the one that runs now."
    ),
]

UNITS = (
    "quire.target", "quire-migrate.service", "quire-api.service", "quire-worker@.service",
    "quire-scheduler.service", "quire-flower.service", "quire-objects.service",
    "quire-health.service", "quire-health.timer",
)  # fmt: skip


#: What is to be enabled: Quire itself, and what may be elsewhere (S3) or is for people (Flower).
ENABLED = (
    "quire.target quire-api quire-scheduler quire-worker@1 quire-health.timer",
    "quire-objects quire-flower",
)


@app.command()
def compose(
    folder: Folder = Path("deploy"), force: Force = False, json: options.Json = False
) -> None:
    """Write a Compose file and its secrets: Quire, PostgreSQL, Redis, S3 and Flower.

    Files that were changed are not overwritten without --force, secrets never.
    """
    from quire import __version__
    from quire.cli.deploying import template

    words = {"version": __version__}
    files = {
        "compose.yaml": template("compose/compose.yaml", **words),
        ".env": template("compose/env", **words),
        ".gitignore": template("compose/gitignore"),
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

    Files that were changed are not overwritten without --force, secrets never.
    """
    from quire.cli.deploying import template

    own = (program or Path(sys.executable).with_name("quire")).absolute()
    words = {"program": str(own), "celery": str(own.with_name("celery"))}
    files = {name: template(f"systemd/{name}", **words) for name in UNITS}
    for name in ("sysusers.conf", "quire.env"):
        files[name] = template(f"systemd/{name}")
    own_units, other_units = ENABLED
    files["install.sh"] = template("systemd/install.sh", own=own_units, others=other_units)
    files["postgresql.conf"] = template("systemd/limits.conf", memory="4G")
    files["redis.conf"] = template("systemd/limits.conf", memory="384M")
    files[".gitignore"] = template("compose/gitignore")
    _write(folder, files, _systemd_secrets(folder), force, json, [
        f"sudo {folder / 'install.sh'}",
        *(f"sudo systemctl enable --now {some}" for some in ENABLED),
        "sudo journalctl -u quire-api          # the link that signs you in",
    ])  # fmt: skip


def _compose_secrets(folder: Path) -> "dict[str, File]":
    from quire.cli.deploying import File, known_secret

    password, redis = (
        known_secret(folder, "postgres_password"),
        known_secret(folder, "redis_password"),
    )
    texts = {
        "postgres_password": password,
        "redis_password": redis,
        "database_url": f"postgresql://quire:{password}@postgres:5432/quire",
        "broker_url": f"redis://:{redis}@redis:6379/0",
        "objects_access_key": "quire",
        "objects_secret_key": known_secret(folder, "objects_secret_key"),
        "flower_basic_auth": f"quire:{known_secret(folder, 'flower_password')}",
    }
    return {f"secrets/{name}": File(f"{text}\n") for name, text in texts.items()}


def _systemd_secrets(folder: Path) -> "dict[str, File]":
    from quire.cli.deploying import File, known_secret

    fresh = [known_secret(folder, f"of {at}") for at in range(4)]
    database, broker, key, flower = fresh
    texts = {
        "database_url": f"postgresql://quire:{database}@127.0.0.1:5432/quire",
        "broker_url": f"redis://:{broker}@127.0.0.1:6379/0",
        "objects.env": f"AWS_ACCESS_KEY_ID=quire\nAWS_SECRET_ACCESS_KEY={key}",
        "objects-root.env": f"ROOT_ACCESS_KEY=quire\nROOT_SECRET_KEY={key}",
        "flower.env": f"FLOWER_BASIC_AUTH=quire:{flower}",
    }
    return {f"secrets/{name}": File(f"{text}\n", 0o600) for name, text in texts.items()}


def _write(
    folder: Path,
    files: "Mapping[str, File]",
    kept: "Mapping[str, File]",
    force: bool,
    json: bool,
    then: Sequence[str],
) -> None:
    from quire.cli import deploying

    written = deploying.write(folder, files, kept, force=force)
    if json:
        named = [{"name": one.name, "state": one.how} for one in written]
        console.as_json({"folder": str(folder), "files": named, "next": list(then)})
        return
    for one in written:
        console.say(f"{one.how:8} {folder / one.name}")
    console.say()
    for line in then:
        console.say(f"  {line}")
