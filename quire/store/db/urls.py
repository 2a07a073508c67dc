"""Where a database is: its URL as the driver takes it, and as it may be shown.

A URL may name several hosts, as libpq's may: a server and its standbys. Whoever of them can be
written to is the one that is used.
"""

import re
from urllib.parse import quote

import sqlalchemy as sa

from quire.errors import BadInput

# Up to the last @: people forget to encode one, and what is hidden too much harms nobody.
_IN_AUTHORITY = re.compile(r"(://[^/@:?#]*):(?:[^?]*@|[^@]*@)")
_IN_QUERY = re.compile(r"((?:password|sslpassword)=)[^&]*", re.IGNORECASE)
_BEHIND_HOSTS = re.compile(r"[/?]")
_HOST = re.compile(r"(?:\[(.*)\]|([^:]*))(?::(\d*))?")


def without_password(url: str) -> str:
    """Return a database URL with its password hidden."""
    return _IN_QUERY.sub(r"\1***", _IN_AUTHORITY.sub(r"\1:***@", url))


def driver_url(url: str) -> sa.URL:
    """Name the driver, and of several hosts want one that can be written to, unless told else."""
    scheme, _, rest = url.partition("://")
    scheme = "postgresql+psycopg" if scheme in ("postgresql", "postgres") else scheme
    try:
        made = sa.make_url(f"{scheme}://{_hosts_in_query(rest)}")
    except (ValueError, sa.exc.ArgumentError) as error:
        # Not shown: it may hold a password.
        raise BadInput(
            "QUIRE_DATABASE_URL: it cannot be read. It looks like postgresql://user:password@host"
            ":5432/quire, or with several hosts host1:5432,host2:5432. In a password, write what "
            "is not a letter or digit as %XX."
        ) from error
    hosts = made.query.get("host", "")
    is_one = isinstance(hosts, str) and "," not in hosts
    if is_one or "target_session_attrs" in made.query:
        return made  # the only server can still be read when it cannot be written to
    # A standby answers what it is asked and refuses what it is told, and another may be at hand.
    return made.update_query_dict({"target_session_attrs": "read-write"})


def plain_url(engine: sa.Engine) -> str:
    """Return the URL as the driver itself takes it."""
    return engine.url.set(drivername="postgresql").render_as_string(hide_password=False)


def _hosts_in_query(rest: str) -> str:
    """Write several hosts as SQLAlchemy wants them."""
    authority = _BEHIND_HOSTS.split(rest, maxsplit=1)[0]
    who, at, hosts = authority.rpartition("@")
    if "," not in hosts:
        return rest
    path, _, query = rest[len(authority) :].partition("?")
    each = [_HOST.fullmatch(host) for host in hosts.split(",")]
    if not all(each):
        raise ValueError("not a host and a port")
    names = ",".join(quote(host[1] or host[2]) for host in each if host)
    ports = ",".join(host[3] or "" for host in each if host)
    parts = [f"host={names}", f"port={ports}" if ports.strip(",") else "", query]
    return f"{who}{at}{path or '/'}?{'&'.join(filter(None, parts))}"
