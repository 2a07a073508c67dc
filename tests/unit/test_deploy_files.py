"""What `quire deploy` writes: never over a change, valid, and only of things that exist."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml  # type: ignore[import-untyped]

from quire import settings
from quire.cli import deploy
from quire.errors import SchemaAhead
from tests.brokers import answers, free_port, valkey_program
from tests.docs.markdown import ROOT
from tests.waiting import until

pytest_plugins = ["tests.integration.cli.cli_command"]

#: Settings that the scale-out brings.
KNOWN = {name for name, _, _ in settings.described()}
OURS = ("migrate", "api", "worker", "scheduler", "flower")
OTHERS = ("postgres", "redis", "objects")


@pytest.fixture
def compose(quire, home: Path) -> dict[str, Any]:
    quire("deploy", "compose")
    found: dict[str, Any] = yaml.safe_load((home / "deploy" / "compose.yaml").read_text())
    return found


@pytest.fixture
def units(quire, home: Path) -> dict[str, configparser.ConfigParser]:
    quire("deploy", "systemd", "--program", Path(sys.executable).with_name("quire"))
    found = {}
    for path in sorted((home / "deploy").glob("quire*")):
        if path.suffix in (".service", ".timer", ".target"):
            found[path.name] = read_unit(path)
    return found


def read_unit(path: Path) -> configparser.ConfigParser:
    # A key may be given several times; only the last one is kept here.
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text())
    return parser


def is_command(words: list[str]) -> bool:
    """Tell whether the words are a command of ours whose help works."""
    from typer.main import get_command

    from quire.cli.commands import app

    command: Any = get_command(app)
    while words and not words[0].startswith("-") and hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    known = {option for each in command.params for option in each.opts}
    return all(word in known for word in words if word.startswith("--"))


# ---------------------------------------------------------------------- writing


@pytest.mark.parametrize("kind", ["compose", "systemd"])
def test_writing_again_changes_nothing_and_a_changed_file_is_not_overwritten(quire, home, kind):
    first = quire("deploy", kind, "--json").json
    assert {file["state"] for file in first["files"]} == {"written"}
    assert first["next"]
    texts = {file["name"]: (home / "deploy" / file["name"]).read_text() for file in first["files"]}
    again = quire("deploy", kind, "--json").json
    assert {file["state"] for file in again["files"]} == {"same", "kept"}
    name = next(iter(texts))
    (home / "deploy" / name).write_text("# mine\n")
    refused = quire("deploy", kind)
    assert refused.code == 2
    assert name in refused.err and "--force" in refused.err
    assert (home / "deploy" / name).read_text() == "# mine\n"
    assert quire("deploy", kind, "--force").code == 0
    for each, text in texts.items():
        assert (home / "deploy" / each).read_text() == text, each


def test_secrets_differ_fit_each_other_and_are_closed_to_others(quire, home):
    quire("deploy", "compose", "--folder", "a")
    quire("deploy", "compose", "--folder", "b")
    a, b = home / "a" / "secrets", home / "b" / "secrets"
    password = (a / "postgres_password").read_text().strip()
    assert len(password) >= 32
    assert password != (b / "postgres_password").read_text().strip()
    assert f":{password}@postgres" in (a / "database_url").read_text()
    assert (a / "redis_password").read_text().strip() in (a / "broker_url").read_text()
    assert stat.S_IMODE(a.stat().st_mode) == 0o700
    quire("deploy", "systemd", "--folder", "c")
    for path in (home / "c" / "secrets").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    keys = re.findall(r"SECRET\w*_KEY=(\S+)", "".join(
        (home / "c" / "secrets" / name).read_text() for name in ("objects.env", "objects-root.env")
    ))  # fmt: skip
    assert len(keys) == 2 and keys[0] == keys[1]
    for folder in "abc":
        assert (home / folder / ".gitignore").read_text().splitlines()[-1] == "secrets/"


def test_a_folder_that_cannot_be_written_is_refused(quire, home):
    (home / "taken").write_text("a file")
    refused = quire("deploy", "compose", "--folder", "taken/deploy")
    assert refused.code == 2
    assert "cannot be written" in refused.err


# ---------------------------------------------------------------------- compose


def test_everything_that_runs_is_in_the_compose_file(compose):
    assert set(compose["services"]) == {*OURS, *OTHERS}
    assert compose["services"]["flower"]["ports"] == ["127.0.0.1:5555:5555"]
    assert compose["services"]["api"]["ports"] == ["127.0.0.1:8750:8750"]
    published = [p for each in compose["services"].values() for p in each.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in published)


@pytest.mark.parametrize("name", [*OURS, *OTHERS])
def test_each_container_has_limits_a_health_check_and_is_restarted(compose, name):
    each = compose["services"][name]
    assert each["restart"] == ("on-failure" if name == "migrate" else "unless-stopped")
    assert {"cpus", "memory"} == set(each["deploy"]["resources"]["limits"])
    assert each["healthcheck"].get("test") or name == "migrate"
    image = each["image"]
    assert not image.endswith(":latest") and re.search(r":[\w.${}:-]+$", image)


@pytest.mark.parametrize("name", OURS)
def test_our_containers_run_commands_that_exist_and_settings_that_are_known(compose, name):
    each = compose["services"][name]
    if name != "flower":
        assert each["command"][0] == "quire" and is_command(each["command"][1:])
        assert name == "migrate" or is_command(each["healthcheck"]["test"][2:])
    given = {key.removesuffix("_FILE") for key in each["environment"] if key.startswith("QUIRE_")}
    assert given <= KNOWN
    assert each["read_only"] and each["cap_drop"] == ["ALL"]
    assert "build" not in each


def test_every_secret_is_a_file_that_was_written_and_read_where_it_is_mounted(compose, home):
    for name, given in compose["secrets"].items():
        assert (home / "deploy" / given["file"]).read_text().strip(), name
    for each in compose["services"].values():
        told = " ".join(
            [str(each.get(key, "")) for key in ("environment", "command", "entrypoint")]
        )
        named = set(re.findall(r"/run/secrets/(\w+)", told))
        assert named <= set(each.get("secrets", ())) <= set(compose["secrets"])


def test_no_secret_stands_in_the_compose_file(compose, home):
    text = (home / "deploy" / "compose.yaml").read_text() + (home / "deploy" / ".env").read_text()
    for path in (home / "deploy" / "secrets").iterdir():
        secret = path.read_text().strip()
        assert len(secret) < 10 or secret not in text


def test_workers_are_given_more_time_to_stop_than_they_take(compose):
    worker = compose["services"]["worker"]
    grace = float(worker["environment"]["QUIRE_STOP_GRACE"])
    assert float(worker["stop_grace_period"].removesuffix("s")) > grace + 10
    for name in ("api", "worker", "scheduler"):
        before = compose["services"][name]["depends_on"]
        assert before["migrate"] == {"condition": "service_completed_successfully"}


def test_stores_are_on_networks_without_a_way_out(compose):
    services, networks = compose["services"], compose["networks"]
    for name in OTHERS:
        assert all(networks[each]["internal"] for each in services[name]["networks"]), name
    for name in (*OURS, *OTHERS):
        assert services[name]["networks"], name
        assert "no-new-privileges:true" in services[name]["security_opt"], name
    assert set(services["migrate"]["networks"]) == {"database"}


def test_the_password_of_redis_is_asked_for_and_is_in_no_command_line(compose, tmp_path: Path):
    command = compose["services"]["redis"]["command"]
    (tmp_path / "valkey-server").symlink_to(valkey_program())
    (tmp_path / "redis_password").write_text("a long s3cret\n")
    script = re.sub(r"/run/secrets/|/tmp/", f"{tmp_path}/", command[2].replace("$$", "$"))
    port = free_port()
    popen = subprocess.Popen(
        [*command[:2], f"{script} --port {port} --bind 127.0.0.1 --dir {tmp_path}"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
    )
    try:
        until(lambda: answers(port), within=20)
        arguments = Path(f"/proc/{popen.pid}/cmdline").read_text()
        assert "valkey-server" in arguments and "s3cret" not in arguments
        assert stat.S_IMODE((tmp_path / "valkey.conf").stat().st_mode) == 0o600
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port).ping()
        assert redis.Redis(port=port, password="a long s3cret").ping()
    finally:
        popen.kill()
        popen.wait()


# ---------------------------------------------------------------------- systemd


def test_units_run_as_a_user_of_their_own_and_are_always_restarted(units):
    for name in ("quire-api", "quire-worker@", "quire-scheduler", "quire-flower"):
        unit = units[f"{name}.service"]["Service"]
        assert (unit["Restart"], unit["RestartSec"]) == ("always", "10")
        assert unit["NoNewPrivileges"] == "yes" and unit["ProtectSystem"] == "strict"
        assert unit["ProtectHome"] == "yes" and unit["MemoryMax"]
        if name == "quire-flower":
            assert (unit["DynamicUser"], unit["StateDirectory"]) == ("yes", "quire-flower")
            continue
        assert (unit["User"], unit["StateDirectory"]) == ("quire", "quire")
        assert int(unit["RestartPreventExitStatus"]) == SchemaAhead.exit_code
    worker = units["quire-worker@.service"]["Service"]
    assert (worker["KillMode"], worker["OOMPolicy"]) == ("mixed", "continue")
    assert int(worker["TimeoutStopSec"]) > 30 + 10


def test_units_run_commands_that_exist_with_settings_that_are_known(units, home):
    for name, unit in units.items():
        words = shlex.split(unit.get("Service", "ExecStart", fallback=""))
        if words and Path(words[0]).name == "quire":
            assert Path(words[0]).is_file() and is_command(words[1:]), name
    text = "".join(path.read_text() for path in (home / "deploy").glob("quire*"))
    assert {key.removesuffix("_FILE") for key in re.findall(r"\b(QUIRE_\w+)=", text)} <= KNOWN
    named = set(re.findall(r"LoadCredential=(\w+):/etc/quire/secrets/(\w+)", text))
    assert named and all((home / "deploy" / "secrets" / file).exists() for _, file in named)


def test_systemd_itself_finds_nothing_wrong_with_the_units(units, home):
    folder = home / "deploy"
    # What is not on this machine stands in for itself.
    text = (folder / "quire-objects.service").read_text()
    (folder / "quire-objects.service").write_text(text.replace("/usr/bin/versitygw", "/bin/true"))
    program = shutil.which("systemd-analyze")
    if program is not None:
        ended = subprocess.run(
            [program, "verify", "--man=no", *(str(folder / name) for name in units)],
            capture_output=True,
            text=True,
        )
        own = [line for line in ended.stderr.splitlines() if str(folder) in line]
        assert own == [], ended.stderr


def test_flower_sees_the_broker_and_neither_database_nor_files(compose, home, quire):
    flower = compose["services"]["flower"]
    assert set(flower["secrets"]) == {"broker_url", "flower_basic_auth"}
    told = " ".join(flower["environment"])
    assert not any(word in told for word in ("DATABASE", "BLOBS", "AWS"))
    assert not {"database", "objects"} & set(flower["networks"])
    quire("deploy", "systemd", "--folder", "units")
    text = (home / "units" / "quire-flower.service").read_text()
    assert "database_url" not in text and "objects.env" not in text


def test_units_that_cannot_see_the_program_say_so(quire, home):
    hidden = f"{deploy.HIDDEN[0]}/ann/venv/bin/quire"
    assert f"cannot see {hidden}" in quire("deploy", "systemd", "--program", hidden).out
    told = quire("deploy", "systemd", "--program", "/usr/local/bin/quire", "--force").out
    assert "cannot see" not in told


def test_the_script_that_installs_the_units_is_a_script_of_sh(units, home):
    script = home / "deploy" / "install.sh"
    assert script.stat().st_mode & 0o111
    assert subprocess.run(["sh", "-n", str(script)]).returncode == 0
    named = re.findall(r"(?:install|sysusers) .*?(\w+\.(?:conf|env))\b", script.read_text())
    assert {name for name in named if name != "quire.conf"} >= {"sysusers.conf", "redis.conf"}
    for name in ("sysusers.conf", "redis.conf", "postgresql.conf", "quire.env"):
        assert (home / "deploy" / name).is_file()


def test_command_script_and_page_enable_the_same_units_and_these_can_be_enabled(quire, home, units):
    told = [line for line in quire("deploy", "systemd").out.splitlines() if "enable" in line]
    enabled = [line.partition("--now ")[2].split() for line in told]
    script = (home / "deploy" / "install.sh").read_text()
    page = (ROOT / "docs" / "operations.md").read_text()
    for names in enabled:
        line = f"systemctl enable --now {' '.join(names)}"
        assert line in script and line in page
    files = [name if "." in name else f"{name}.service" for some in enabled for name in some]
    named = [re.sub(r"@\d+", "@", name) for name in files]
    # All but those that another one starts.
    assert set(named) == set(units) - {"quire-migrate.service", "quire-health.service"}
    assert all("WantedBy" in units[name]["Install"] for name in named)


# ---------------------------------------------------------------------- the image


def test_what_the_dockerfile_copies_is_there_and_not_ignored():
    text = (ROOT / "Dockerfile").read_text()
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    copied = [
        word
        for line in re.findall(r"^COPY (.*)$", text, re.M)
        if "--from" not in line
        for word in line.split()[:-1]
        if not word.startswith("--")
    ]
    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert set(copied) == allowed


def test_the_image_does_not_run_as_root_and_has_a_health_check():
    text = (ROOT / "Dockerfile").read_text()
    final = text.rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001:10001$", final, re.M)
    assert is_command(re.findall(r'HEALTHCHECK .* CMD \["quire", "(\w+)"\]', final))
    assert all("--require-hashes" in line for line in text.splitlines() if " -r " in line)
    given = set(re.findall(r"\b(QUIRE_\w+)=", text))
    assert given <= KNOWN


def test_the_image_installs_the_versions_of_the_lock():
    from tools import image_requirements as image

    remedy = "run .venv/bin/python tools/image_requirements.py"
    assert image.IMAGE.read_text() == image.text(), remedy
    assert "celery==" in image.text() and "pytest==" not in image.text()


def test_the_entry_point_reads_secrets_from_files(tmp_path: Path):
    (tmp_path / "key").write_text("s3cret key\n")
    ended = subprocess.run(
        [str(ROOT / "tools" / "entrypoint.sh"), "sh", "-c", 'printf %s "$AWS_SECRET_ACCESS_KEY"'],
        env={"AWS_SECRET_ACCESS_KEY_FILE": str(tmp_path / "key"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert (ended.stdout, ended.stderr) == ("s3cret key", "")


def test_a_command_that_passes_the_entry_point_by_goes_through_it():
    """`docker exec` runs what PATH finds, without the entry point and so without its secrets."""
    text = (ROOT / "Dockerfile").read_text()
    [place] = re.findall(r"^ENV PATH=([^:]+):/venv/bin:\$PATH", text, re.M)
    assert f"ln -s /usr/local/bin/quire-entrypoint {place}/quire" in text
    assert (
        "case $0 in */quire) set -- /venv/bin/quire"
        in (ROOT / "tools" / "entrypoint.sh").read_text()
    )
