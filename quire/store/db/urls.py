"""Database URLs: for the driver, and with the password hidden.

A URL may name several hosts, as in libpq: a primary and its standbys. The writable one is used.
"""

import re
from urllib.parse import quote

import sqlalchemy as sa

from quire.errors import BadInput

# Up to the last @: an unencoded @ in a password is common, and hiding too much is harmless.
_IN_AUTHORITY = re.compile(r"(://[^/@:?#]*):(?:[^?]*@|[^@]*@)")
_IN_QUERY = re.compile(r"((?:password|sslpassword)=)[^&]*", re.IGNORECASE)
_BEHIND_HOSTS = re.compile(r"[/?]")
_HOST = re.compile(r"(?:\[(.*)\]|([^:]*))(?::(\d*))?")


def without_password(url: str) -> str:
    """Return a database URL with the password masked."""
    return _IN_QUERY.sub(r"\1***", _IN_AUTHORITY.sub(r"\1:***@", url))


def driver_url(url: str) -> sa.URL:
    """Set the driver; with several hosts, prefer a writable one unless the URL says otherwise."""
    scheme, _, rest = url.partition("://")
    scheme = "postgresql+psycopg" if scheme in ("postgresql", "postgres") else scheme
    try:
        made = sa.make_url(f"{scheme}://{_hosts_in_query(rest)}")
    except (ValueError, sa.exc.ArgumentError) as error:
        # Not shown: it may hold a password.
        raise BadInput(
            "QUIRE_DATABASE_URL: not a valid URL. Expected postgresql://user:password@host:5432"
            "/quire, or several hosts as host1:5432,host2:5432. Percent-encode special characters "
            "in the password (%XX)."
        ) from error
    hosts = made.query.get("host", "")
    is_one = isinstance(hosts, str) and "," not in hosts
    if is_one or "target_session_attrs" in made.query:
        return made  # a single server stays readable when it becomes read-only
    # A standby accepts reads but refuses writes; another host may be the primary.
    return made.update_query_dict({"target_session_attrs": "read-write"})


def plain_url(engine: sa.Engine) -> str:
    """Return the URL in libpq's form."""
    return engine.url.set(drivername="postgresql").render_as_string(hide_password=False)


def _hosts_in_query(rest: str) -> str:
    """Move several hosts into the query, as SQLAlchemy expects them."""
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
