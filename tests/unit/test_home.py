"""The home: one that was found is used only if nobody else could have written it."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire import home as homes
from quire import settings
from quire.app import App
from quire.errors import BadInput
from quire.fetch.blobs.folder import BlobFolder

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that every user may look into, with one below it to stand in."""
    folder = Path(tempfile.mkdtemp(prefix="quire-ground-"))
    folder.chmod(0o755)
    for each in (folder / "below", folder / "below" / "here"):
        each.mkdir()
        each.chmod(0o755)
    monkeypatch.chdir(folder / "below" / "here")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def own(ground: Path) -> Path:
    """A home above the current folder, of this user."""
    return a_home(ground)


def a_home(folder: Path, text: str = 'plugins = ["mine.py"]\n') -> Path:
    home = folder / ".quire"
    home.mkdir(mode=0o700)
    (home / "quire.toml").write_text(text)
    (home / "quire.toml").chmod(0o600)
    return home


@contextlib.contextmanager
def acting_as(uid: int) -> Iterator[None]:
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_found_home_of_the_user_is_used(own):
    found = settings.load({})
    assert found.home == own


def test_plugin_files_of_a_found_home_are_those_beside_it_wherever_the_user_stands(own):
    Path("mine.py").write_text("raise SystemExit('of somebody else')")
    assert settings.load({}).plugins == (str(own.parent / "mine.py"),)


@as_root
@pytest.mark.parametrize("of", ["folder", "file"])
def test_a_found_home_of_somebody_else_is_refused_and_the_message_says_how_to_trust_it(own, of):
    os.chown(own if of == "folder" else own / "quire.toml", NOBODY, NOBODY)
    with pytest.raises(BadInput, match=rf"belongs to \S+, and you are root.*QUIRE_HOME={own}"):
        settings.load({})
    assert settings.load({"QUIRE_HOME": str(own)}).plugins == ("mine.py",)


@as_root
def test_the_users_data_folder_is_judged_as_a_found_home_is(ground, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(ground))
    home = ground / "quire"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    with pytest.raises(BadInput, match="belongs to"):
        settings.load({})


@pytest.mark.parametrize("mode", [0o020, 0o002])
@pytest.mark.parametrize("of", ["folder", "file"])
def test_a_found_home_that_others_may_write_is_refused(own, of, mode):
    path = own if of == "folder" else own / "quire.toml"
    path.chmod(path.stat().st_mode | mode)
    with pytest.raises(BadInput, match="other users may write it"):
        settings.load({})
    assert settings.load({"QUIRE_HOME": str(own)}).home == own


@as_root
@pytest.mark.parametrize("of", ["link", "target"])
def test_a_link_to_a_home_is_judged_as_well_as_where_it_leads(ground, tmp_path, of):
    (ground / "elsewhere").mkdir()
    target = a_home(ground / "elsewhere")
    link = ground / ".quire"
    link.symlink_to(target)
    assert settings.load({}).home == link
    if of == "link":
        os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    else:
        os.chown(target, NOBODY, NOBODY)
    with pytest.raises(BadInput, match="belongs to"):
        settings.load({})


@as_root
def test_a_found_home_of_root_runs_no_code_and_names_no_server_for_another_user(ground):
    home = a_home(ground, 'plugins = ["x.py"]\nconcurrency = 3\n')
    home.chmod(0o755)
    (home / "quire.toml").chmod(0o644)
    with acting_as(NOBODY), pytest.raises(BadInput, match="sets plugins, and belongs to root"):
        settings.load({})
    (home / "quire.toml").write_text("concurrency = 3\n")
    with acting_as(NOBODY):
        assert settings.load({}).concurrency == 3


@pytest.mark.parametrize(
    ("secret", "receiver"),
    [
        ("token", "url"),
        ("embed_api_key", "embed_url"),
        ("gdrive_credentials", "gdrive_endpoint"),
        ("rerank_key", "rerank_url"),
    ],
)
def test_a_secret_of_the_environment_never_goes_to_a_server_of_a_found_file(
    ground, secret, receiver
):
    home = a_home(ground, f'{receiver} = "http://127.0.0.1:9"\n')
    environ = {f"QUIRE_{secret.upper()}": "s3cr3t"}
    with pytest.raises(BadInput, match=f"QUIRE_{secret.upper()}: would be sent") as refused:
        settings.load(environ)
    assert "s3cr3t" not in str(refused.value)
    if secret == "rerank_key":  # which is nothing without a model
        environ["QUIRE_RERANK_MODEL"] = "cross"
    named = {**environ, f"QUIRE_{receiver.upper()}": "http://127.0.0.1:9"}
    assert getattr(settings.load(named), secret) == "s3cr3t"
    assert getattr(settings.load({**environ, "QUIRE_HOME": str(home)}), secret) == "s3cr3t"


@as_root
def test_other_users_cannot_read_what_quire_stores(ground):
    before = os.umask(0o022)
    try:
        home = ground / "home"
        App(home=home).close()
        blobs = BlobFolder(home / "blobs")
        part = blobs.part_path("memo")
        part.write_bytes(b"memo")
        digest = "1dcd7a6dbb1fce1b3a9a8a4b0ddc5d8f64cd3ab3a2a3e3bd2cb3d6c5e5c0f1a2"
        with contextlib.suppress(Exception):
            blobs.put(part, digest)  # of other bytes: only the folders matter here
        (ground / "open.txt").write_text("for all")
    finally:
        os.umask(before)
    assert stat.S_IMODE((home / "quire.db").stat().st_mode) == 0o600
    folders = [home, *(each for each in home.rglob("*") if each.is_dir())]
    assert {stat.S_IMODE(each.stat().st_mode) for each in folders} == {0o700}
    with acting_as(NOBODY):
        assert (ground / "open.txt").read_text() == "for all"
        with pytest.raises(PermissionError):
            (home / "quire.db").read_bytes()
        with pytest.raises(PermissionError):
            list(home.iterdir())


def test_an_old_home_is_closed_with_what_is_in_it(own):
    (own / "blobs").mkdir()
    for each, mode in ((own, 0o755), (own / "blobs", 0o755), (own / "quire.toml", 0o644)):
        each.chmod(mode)
    (own / "link").symlink_to("/")
    assert homes.open_to_others(own) == [own, own / "blobs", own / "quire.toml"]
    assert homes.close_to_others(own) == 3
    assert homes.open_to_others(own) == []
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (own, own / "blobs", own / "quire.toml")]
    assert modes == [0o700, 0o700, 0o600]
