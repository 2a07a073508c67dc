"""Commands in a folder of somebody else run none of their code, and close what they store."""

import os
import stat

import pytest

pytest_plugins = ["tests.integration.cli.cli_command"]


@pytest.fixture
def _at_home_nowhere(quire, monkeypatch):
    monkeypatch.delenv("QUIRE_HOME")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
@pytest.mark.usefixtures("_at_home_nowhere")
def test_no_command_runs_the_plugins_of_a_home_of_somebody_else(quire, home, monkeypatch):
    witness = home / "ran"
    (home / ".quire").mkdir()
    (home / ".quire" / "x.py").write_text(f"open({str(witness)!r}, 'w')")
    (home / ".quire" / "quire.toml").write_text('plugins = [".quire/x.py"]\n')
    os.chown(home / ".quire", 65534, 65534)
    (home / "below").mkdir()
    (home / "below" / "a.txt").write_text("words")
    for arguments in (["ingest", "--dry-run", "a.txt"], ["submit", "noop"], ["status"]):
        monkeypatch.chdir(home)
        assert quire(*arguments).code == 2
        monkeypatch.chdir(home / "below")
        ended = quire(*arguments)
        assert ended.code == 2
        assert f"QUIRE_HOME={home / '.quire'}" in ended.err
    assert not witness.exists()


def test_no_process_imports_modules_of_the_current_folder(quire, home, monkeypatch):
    there = home / "theirs"
    there.mkdir()
    (there / "tomllib.py").write_text("open('ran', 'w')\nraise SystemExit('of somebody else')")
    (there / "a.txt").write_text("words")
    monkeypatch.chdir(there)
    assert quire("ingest", "a.txt").code == 0
    assert not (there / "ran").exists()


def test_doctor_says_that_others_can_read_the_home_and_repairs_it(quire, home):
    assert quire("submit", "noop").code == 0
    assert stat.S_IMODE((home / "quire.db").stat().st_mode) == 0o600
    assert quire("doctor").code == 0
    home.chmod(0o755)
    (home / "quire.db").chmod(0o644)
    ended = quire("doctor")
    assert ended.code == 1
    assert "home.modes: violated in " in ended.out
    mended = quire("doctor", "--repair")
    assert mended.code == 0
    assert "home.modes: repaired in " in mended.out
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
