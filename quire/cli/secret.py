"""`quire secret`: the key that seals passwords and signatures of source URLs."""

from typing import Annotated

from quire import format, secret_key
from quire.cli import console, options, session
from quire.control import secrets

app = options.Group("Manage the key that seals secrets of source URLs.", no_args_is_help=True)

Forget = Annotated[
    bool,
    options.flag("Delete secrets whose key is lost. Jobs that need them fail.", "--forget"),
]


@app.command()
def key() -> None:
    """Print a new key, for QUIRE_SECRET_KEY. Nothing is stored."""
    console.say(secret_key.new_key())


@app.command()
def show(json: options.Json = False) -> None:
    """Show where the key comes from, and how many secrets each key seals."""
    with session.open_app() as opened:
        found = secrets.shown(opened.caller)
    sealed = ", ".join(f"{name}: {count:,}" for name, count in found["sealed"].items()) or "none"
    keys = ", ".join(found["keys"]) or "none"
    said = f"Keys: {keys} (from {found['from']}). Sealed secrets by key: {sealed}."
    console.answer(found, said, json=json)


@app.command()
def rotate(forget: Forget = False, json: options.Json = False) -> None:
    """Seal all secrets with a new key of the home, or the first of QUIRE_SECRET_KEY. Audited."""
    with session.open_app() as opened:
        done = secrets.rotate(opened.caller, forget=forget)
    gone = f" {format.count(done['forgotten'], 'secret')} forgotten." if forget else ""
    said = f"{format.count(done['sealed'], 'secret')} sealed with the key {done['key']}.{gone}"
    console.answer(done, said, json=json)
