"""URLs of databases: several hosts, and no password where people look."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg.conninfo
import pytest
import sqlalchemy as sa

from quire.errors import BadInput
from quire.store.db import urls


def given_to_driver(url: str) -> Mapping[str, object]:
    """What libpq makes of a URL that went through SQLAlchemy, as for the connection that hears."""
    engine = sa.create_engine(urls.driver_url(url))
    found = psycopg.conninfo.conninfo_to_dict(urls.plain_url(engine))
    _, pooled = engine.dialect.create_connect_args(engine.url)
    pooled = {name: str(pooled[name]) for name in pooled if name != "context"}
    if pooled.get("port", "").strip(",") == "":  # the usual ones
        pooled.pop("port", None)
    assert found == pooled
    return found


@pytest.mark.parametrize(
    ("url", "hosts", "ports"),
    [
        ("postgresql://u@one:5433,two:5434/quire", "one,two", "5433,5434"),
        ("postgres://u@one,two/quire", "one,two", None),
        ("postgresql+psycopg://u@one,two:5434/quire", "one,two", ",5434"),
        ("postgresql://u@[::1]:5433,127.0.0.1:5434/quire", "::1,127.0.0.1", "5433,5434"),
        ("postgresql://u@/quire?host=one,two&port=5433,5434", "one,two", "5433,5434"),
        ("postgresql://u@/quire?host=%2Fa,%2Fb", "/a,/b", None),
        ("postgresql://u@one:5433/quire", "one", "5433"),
    ],
)
def test_a_url_may_name_several_hosts(url: str, hosts: str, ports: str | None):
    found = given_to_driver(url)
    assert (found["host"], found.get("port")) == (hosts, ports)
    assert (found["user"], found["dbname"]) == ("u", "quire")


def test_a_server_that_can_be_written_to_is_wanted_unless_the_url_says_other():
    wanted = "target_session_attrs"
    assert given_to_driver("postgresql://u@one,two/quire")[wanted] == "read-write"
    assert wanted not in given_to_driver("postgresql://u@one/quire")  # it can still be read
    url = "postgresql://u@one,two/quire?target_session_attrs=any&sslmode=require"
    assert (given_to_driver(url)[wanted], given_to_driver(url)["sslmode"]) == ("any", "require")


def test_a_password_goes_to_the_server_and_to_nobody_else():
    url = "postgresql://u:se%2Ccret@one:5433,two:5434/quire"
    assert given_to_driver(url)["password"] == "se,cret"
    assert urls.without_password(url) == "postgresql://u:***@one:5433,two:5434/quire"
    url = "postgresql://one,two/quire?user=u&password=secret&sslmode=require"
    assert given_to_driver(url)["password"] == "secret"
    assert "secret" not in urls.without_password(url)


@pytest.mark.parametrize("password", ["se,cret", "7,cret", "se/cret", "se?cret"])
def test_a_password_that_was_not_encoded_is_no_host_and_is_not_shown(password: str):
    url = f"postgresql://u:{password}@one:5433/quire"
    found = given_to_driver(url)
    assert (found["host"], found["password"]) == ("one", password)
    assert urls.without_password(url) == "postgresql://u:***@one:5433/quire"


def test_all_of_a_password_with_an_at_sign_is_hidden():
    shown = urls.without_password("postgresql://u:se@cr@et@one,two/quire?sslmode=require")
    assert shown == "postgresql://u:***@one,two/quire?sslmode=require"


@pytest.mark.parametrize("hosts", ["one:x", "one:1,two:x", "one:1:2,two"])
def test_a_url_that_cannot_be_read_is_refused_without_its_password(hosts: str):
    with pytest.raises(BadInput, match="QUIRE_DATABASE_URL") as refused:
        urls.driver_url(f"postgresql://u:secret@{hosts}/quire")
    assert "secret" not in str(refused.value)
