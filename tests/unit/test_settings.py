"""Settings: from arguments, the environment and quire.toml, in this order."""

from pathlib import Path

import pytest

from quire import settings
from quire.errors import BadInput


def load(home: Path, environ: dict[str, str] | None = None, **given):
    return settings.load({"QUIRE_HOME": str(home), **(environ or {})}, **given)


def test_the_defaults_are_those_of_the_design(tmp_path):
    s = load(tmp_path)
    assert (s.heartbeat_interval, s.lease_seconds, s.sweep_interval) == (10.0, 60.0, 10.0)
    assert (s.poll_interval, s.user_policy, s.concurrency) == (5.0, "all", 0)
    assert s.database == f"sqlite:///{tmp_path / 'quire.db'}"


def test_arguments_go_before_the_environment_and_that_before_the_file(tmp_path):
    (tmp_path / "quire.toml").write_text('user = "file"\ntenant = "file"\nconcurrency = 2\n')
    environ = {"QUIRE_USER": "environ", "QUIRE_TENANT": "environ"}
    s = load(tmp_path, environ, user="given")
    assert (s.user, s.tenant, s.concurrency) == ("given", "environ", 2)


def test_values_of_the_environment_get_their_type(tmp_path):
    environ = {
        "QUIRE_CONCURRENCY": "4",
        "QUIRE_POLL_INTERVAL": "0.5",
        "QUIRE_LOG_JSON": "yes",
        "QUIRE_QUEUES": "a, b,,c",
        "QUIRE_DATABASE_URL": "postgresql://x/y",
    }
    s = load(tmp_path, environ)
    assert (s.concurrency, s.poll_interval, s.log_json) == (4, 0.5, True)
    assert s.queues == ("a", "b", "c")
    assert s.database == "postgresql://x/y"


def test_kinds_are_given_queues_by_a_list_of_pairs(tmp_path):
    s = load(tmp_path, {"QUIRE_ROUTES": "ingest.range=pages, mail=slow"})
    assert s.queue_by_kind == {"ingest.range": "pages", "mail": "slow"}
    assert load(tmp_path).queue_by_kind == {}


def test_a_list_in_the_file_is_a_list(tmp_path):
    (tmp_path / "quire.toml").write_text('plugins = ["a.py", "b"]\n')
    assert load(tmp_path).plugins == ("a.py", "b")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("QUIRE_CONCURRENCY", "many"),
        ("QUIRE_CONCURRENCY", "-1"),
        ("QUIRE_CONCURRENCY", "1025"),
        ("QUIRE_POLL_INTERVAL", "soon"),
        ("QUIRE_LOG_JSON", "maybe"),
        ("QUIRE_QUEUES", ","),
        ("QUIRE_QUEUES", "a b"),
        ("QUIRE_ROUTES", "ingest.range"),
        ("QUIRE_ROUTES", "ingest.range=a=b"),
        ("QUIRE_ROUTES", "ingest.range=a,ingest.range=b"),
        ("QUIRE_USER_POLICY", "first"),
        ("QUIRE_SQLITE_SYNCHRONOUS", "off"),
        ("QUIRE_LOG_LEVEL", "loud"),
        ("QUIRE_HEARTBEAT_INTERVAL", "60"),
        ("QUIRE_HEARTBEAT_INTERVAL", "0"),
        ("QUIRE_LEASE_SECONDS", "nan"),
        ("QUIRE_RERANK_URL", "http://127.0.0.1:9"),  # without a model
        ("QUIRE_RERANK_URL", "ftp://127.0.0.1:9"),
        ("QUIRE_RERANK_MODEL", "no-such-folder"),
    ],
)
def test_a_bad_value_is_refused_by_name(tmp_path, name, value):
    with pytest.raises(BadInput, match=name):
        load(tmp_path, {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("QUIRE_POLL_INTERVAL", "nan"),
        ("QUIRE_POLL_INTERVAL", "-1"),
        ("QUIRE_SWEEP_INTERVAL", "0"),
        ("QUIRE_PAYLOAD_MAX_BYTES", "-1"),
    ],
)
def test_a_number_out_of_range_is_refused_by_name(tmp_path, name, value):
    with pytest.raises(BadInput, match=name):
        load(tmp_path, {name: value})


def test_a_file_that_is_not_toml_is_refused(tmp_path):
    (tmp_path / "quire.toml").write_text("user = \n")
    with pytest.raises(BadInput, match=r"quire\.toml"):
        load(tmp_path)


def test_an_unknown_setting_in_the_file_is_refused_by_name(tmp_path):
    (tmp_path / "quire.toml").write_text("speed = 9\n")
    with pytest.raises(BadInput, match="speed"):
        load(tmp_path)


@pytest.mark.parametrize(("old", "new"), settings.RENAMED.items())
def test_an_old_name_is_refused_and_the_new_one_named(tmp_path, old, new):
    before, after = f"QUIRE_{old.upper()}", f"QUIRE_{new.upper()}"
    with pytest.raises(BadInput, match=f"^{before} was renamed to {after}. Set that instead.$"):
        load(tmp_path, {before: "1"})
    with pytest.raises(BadInput, match=f"^{before}_FILE was renamed to {after}_FILE"):
        load(tmp_path, {f"{before}_FILE": "/dev/null"})
    assert settings.unknown({before: "1"}) == []
    (tmp_path / "quire.toml").write_text(f"{old} = 1\n")
    with pytest.raises(BadInput, match=rf"quire\.toml: {old} was renamed to {new}\."):
        load(tmp_path)


def test_every_new_name_of_a_renamed_setting_exists():
    known = {name for name, _, _ in settings.described()}
    assert {f"QUIRE_{new.upper()}" for new in settings.RENAMED.values()} <= known


def test_a_bad_value_in_the_file_is_refused_by_name(tmp_path):
    (tmp_path / "quire.toml").write_text('concurrency = "many"\n')
    with pytest.raises(BadInput, match="concurrency"):
        load(tmp_path)


def test_variables_that_are_no_settings_are_named_with_the_nearest_that_is_one():
    environ = {
        "QUIRE_FOO": "1", "QUIRE_CONCURENCY": "4", "QUIRE_HOME": "x", "QUIRE_TOKEN_FILE": "x",
        "QUIRE_HOME_FILE": "x", "PATH": "x", "QUIRE_PARENT_FD": "3", "QUIRE_TEST_RUN": "x",
        "QUIRE_SERVICE_HOST": "10.0.0.1", "QUIRE_PORT_8750_TCP_ADDR": "10.0.0.1",
        "QUIRE_PORT": "tcp://10.0.0.1:8750", "QUIRE_API_SERVICE_PORT_HTTP": "8750",
    }  # fmt: skip
    found = dict(settings.unknown(environ))
    assert set(found) == {"QUIRE_FOO", "QUIRE_CONCURENCY", "QUIRE_HOME_FILE"}
    assert found["QUIRE_CONCURENCY"] == "QUIRE_CONCURRENCY"
    assert found["QUIRE_FOO"] is None


def test_every_setting_is_described():
    names = [name for name, _, _ in settings.described()]
    assert "QUIRE_HOME" in names
    assert all(sentence.endswith(".") for _, _, sentence in settings.described())


def test_the_nearest_home_above_the_working_folder_is_used(tmp_path, monkeypatch):
    (tmp_path / ".quire").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert settings.load({}).home == tmp_path / ".quire"


def test_a_value_may_come_from_a_file_of_its_own(tmp_path):
    (tmp_path / "secret").write_text("postgresql://quire:pa ss@host/quire\n")
    s = load(tmp_path, {"QUIRE_DATABASE_URL_FILE": str(tmp_path / "secret")})
    assert s.database_url == "postgresql://quire:pa ss@host/quire"


def test_a_value_that_is_given_twice_is_refused(tmp_path):
    (tmp_path / "secret").write_text("x")
    given = {"QUIRE_TOKEN": "y", "QUIRE_TOKEN_FILE": str(tmp_path / "secret")}
    with pytest.raises(BadInput, match="QUIRE_TOKEN: set twice"):
        load(tmp_path, given)


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "cannot be read"), (b" \n", "is empty"), (b"\xff", "not text")]
)
def test_a_secret_that_cannot_be_read_is_refused_by_name(tmp_path, content, reason):
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    with pytest.raises(BadInput, match="QUIRE_TOKEN_FILE") as refused:
        load(tmp_path, {"QUIRE_TOKEN_FILE": str(tmp_path / "secret")})
    assert reason in str(refused.value)
