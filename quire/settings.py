"""Every setting: name, default, topic and one sentence.

A setting comes from an argument, else from QUIRE_*, else from `quire.toml` in the home.
QUIRE_X_FILE names a file that holds the value of QUIRE_X, as Docker and systemd pass secrets.
A home that was found, and not named, is judged by `quire.home` before anything in it counts.
"""

import ipaddress
import itertools
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from quire import home as homes
from quire import secret_key
from quire.errors import BadInput

HOME = Path(".quire")


def _setting(default: Any, sentence: str, topic: str = "") -> Any:
    return field(default=default, metadata={"doc": sentence, "topic": topic})


@dataclass(frozen=True, slots=True)
class Settings:
    """The values in effect. The first setting of each group names the topic of the group."""

    home: Path = _setting(  # noqa: RUF009
        HOME,
        "Folder for the embedded database, stored files, scratch files and locks.",
        "Home and database",
    )
    database_url: str = _setting(
        "", "URL of a PostgreSQL database. Empty: the embedded SQLite database in the home."
    )
    sqlite_synchronous: str = _setting(
        "full",
        "SQLite durability: full survives a power failure, normal may lose the last commits.",
    )
    plugins: tuple[str, ...] = _setting((), "Plugin files or modules to load, comma-separated.")

    tenant: str = _setting("default", "Tenant that commands act for.", "Command line")
    user: str = _setting("", "User that commands act as. Empty: the name of the system user.")
    url: str = _setting(
        "", "URL of a Quire server. If set, commands use its API instead of the database."
    )
    token: str = _setting("", "API token for that server.")

    concurrency: int = _setting(
        0,
        "Child processes per worker. 0: one per core, at least 2. With several tenants, the last "
        "free one is kept for a tenant that has nothing running there.",
        "Workers and queues",
    )
    queues: tuple[str, ...] = _setting(("default",), "Queues a worker serves, comma-separated.")
    routes: tuple[str, ...] = _setting(
        (), "Queues for job kinds, as KIND=QUEUE, comma-separated. Overrides @job(queue=)."
    )
    broker_url: str = _setting(
        "",
        "Redis or RabbitMQ URL for delivery through Celery. Empty: workers claim by themselves.",
    )
    celery_remote_control: bool = _setting(
        False, "Let `celery inspect` and `celery control` command workers through the broker."
    )
    poll_interval: float = _setting(5.0, "Seconds between polls of an idle worker.")
    heartbeat_interval: float = _setting(10.0, "Seconds between renewals of a worker's leases.")
    lease_seconds: float = _setting(60.0, "Seconds until a lease expires without renewal.")
    sweep_interval: float = _setting(
        10.0, "Seconds between checks for dead workers and expired leases."
    )
    stop_grace: float = _setting(
        30.0, "Seconds a draining worker gives running tasks before it kills and requeues them."
    )
    child_max_tasks: int = _setting(10_000, "Tasks after which a child process is replaced.")
    child_max_rss: int = _setting(
        1 << 30, "Resident memory, in bytes, above which an idle child process is replaced."
    )

    user_policy: str = _setting(
        "all",
        "What happens when a user with an active job submits another: all (both run), queue "
        "(it waits), replace (the first is stopped) or reject.",
        "Jobs",
    )
    payload_max_bytes: int = _setting(1 << 20, "Maximum size of a job's payload, in bytes of JSON.")
    aging_seconds: float = _setting(
        600.0, "Seconds of waiting after which a task gains one priority level."
    )

    keep_completed_days: float = _setting(
        30.0, "Days to keep completed and cancelled jobs.", "Retention"
    )
    keep_failed_days: float = _setting(90.0, "Days to keep failed and stopped jobs.")
    keep_events_days: float = _setting(30.0, "Days to keep the events of finished jobs.")
    keep_audit_days: float = _setting(365.0, "Days to keep the audit log.")
    keep_generations_hours: float = _setting(
        24.0, "Hours to keep replaced and failed generations of documents."
    )

    fetch_max_bytes: int = _setting(4 << 30, "Maximum size of a fetched file, in bytes.", "Sources")
    fetch_allow_private_addresses: bool = _setting(
        False, "Allow fetches from private, loopback and link-local addresses."
    )
    gdrive_credentials: str = _setting(
        "", "Path of a Google service account key or OAuth token file, for Google Drive."
    )
    gdrive_endpoint: str = _setting("", "URL of the Google Drive API. Empty: Google's own.")
    bucket_endpoint: str = _setting(
        "", "URL of an S3-compatible server. Empty: the provider's own."
    )
    source_credentials: str = _setting(
        "",
        "Credentials of buckets as a source, as NAME=VALUE with spaces between: AWS_ACCESS_KEY_ID, "
        "AWS_SECRET_ACCESS_KEY and so on. shared: those of QUIRE_BLOBS. Empty: those of the "
        "environment, but never with QUIRE_BLOBS at the same provider.",
    )
    source_endpoint: str = _setting(
        "", "URL of an S3-compatible server for these credentials. Empty: the provider's own."
    )

    blobs: str = _setting(
        "",
        "Bucket for stored files: s3://, gs:// or az://BUCKET/PREFIX. Empty: the home.",
        "Stored files",
    )
    blob_cache_bytes: int = _setting(
        10 << 30, "Size of each machine's local cache of that bucket, in bytes."
    )
    blob_presigned_urls: bool = _setting(
        False, "Redirect downloads to presigned URLs of the bucket, if it supports them."
    )

    embed_url: str = _setting("", "Base URL of an OpenAI-compatible embeddings API.", "Embeddings")
    embed_api_key: str = _setting("", "API key for it.")
    embed_dimensions: int = _setting(0, "Length of the model's vectors. 0: as it answers.")
    embed_requests_per_minute: float = _setting(
        0.0, "Rate limit for requests to it, per home and machine. 0: no limit."
    )
    embed_tokens_per_minute: float = _setting(
        0.0, "Rate limit for (estimated) tokens sent to it, per home and machine. 0: no limit."
    )

    rerank_url: str = _setting(
        "",
        "Base URL of a Cohere- or Jina-compatible rerank API, which orders the best hits of a "
        "search. Empty: off.",
        "Reranking",
    )
    rerank_key: str = _setting("", "API key for it.")
    rerank_model: str = _setting(
        "", "Model that it is asked for. Without a URL: folder of an ONNX cross-encoder."
    )

    api_host: str = _setting(
        "127.0.0.1", "Address the API and the dashboard listen on.", "API and dashboard"
    )
    api_port: int = _setting(8750, "Port the API and the dashboard listen on.")
    public_url: str = _setting(
        "", "URL under which browsers reach the dashboard, for sign-in links. Empty: as asked."
    )
    trusted_proxies: tuple[str, ...] = _setting(
        (),
        "Addresses or networks of reverse proxies whose X-Forwarded-For is believed, "
        "comma-separated.",
    )
    api_auth: bool = _setting(
        True, "Require a token or a session. If false, only requests from this machine are served."
    )
    api_requests_per_minute: int = _setting(
        600, "Rate limit for requests, per user or address. 0: no limit."
    )
    api_max_streams: int = _setting(200, "Maximum number of open event streams per API process.")
    api_max_connections: int = _setting(
        1000, "Maximum number of open connections per API process; one address has a quarter."
    )
    session_days: float = _setting(14.0, "Days until a dashboard session expires.")

    oidc_issuer: str = _setting(
        "",
        "Issuer URL of an OpenID provider, with which users sign in to the dashboard. Needs "
        "QUIRE_PUBLIC_URL and the extra oidc. Empty: by links only.",
        "Single sign-on",
    )
    oidc_client_id: str = _setting("", "Id under which this server is known to the provider.")
    oidc_client_secret: str = _setting(
        "", "Secret of the client; QUIRE_OIDC_CLIENT_SECRET_FILE names a file with it."
    )
    oidc_scopes: tuple[str, ...] = _setting(
        ("openid", "email"), "Scopes that the provider is asked for, comma-separated."
    )
    oidc_allow: tuple[str, ...] = _setting(
        (),
        "Who may sign in, and what new users become: CLAIM:VALUE=TENANT/ROLE, comma-separated; the "
        "first that matches counts, `domain` is that of the e-mail address. Empty: existing users "
        "of the tenant.",
    )
    oidc_create_users: bool = _setting(
        False,
        "Add a user at the first sign-in, as QUIRE_OIDC_ALLOW says. If false, only known "
        "users sign in.",
    )

    sandbox: str = _setting(
        "auto",
        "Reading files in a box: auto (as far as this machine can), require (refuse to start "
        "without Landlock and seccomp) or off.",
        "Security",
    )
    secret_key: str = _setting(
        "",
        "Key that seals passwords and signatures of source URLs; `quire secret key` prints one. "
        "Several, comma-separated: the first seals, all open. Empty: the file secret.key in the "
        "home, which is made with the embedded database only.",
    )

    log_level: str = _setting(
        "info", "Lowest level to log: debug, info, warning or error.", "Logging"
    )
    log_json: bool = _setting(False, "Write log lines as JSON.")

    @property
    def for_children(self) -> dict[str, Any]:
        """The settings that handlers in child processes need, as JSON."""
        names = (
            "gdrive_credentials", "gdrive_endpoint", "bucket_endpoint", "blobs", "blob_cache_bytes",
            "fetch_allow_private_addresses",
            "fetch_max_bytes", "embed_url", "embed_api_key", "embed_dimensions",
            "embed_requests_per_minute", "embed_tokens_per_minute", "sqlite_synchronous",
            "lease_seconds", "sandbox", "secret_key", "source_credentials", "source_endpoint",
        )  # fmt: skip
        return {
            "home": str(self.home),
            "url": self.database,
            **{n: getattr(self, n) for n in names},
        }

    @property
    def queue_by_kind(self) -> dict[str, str]:
        """The queue of each routed job kind."""
        return dict(each.split("=") for each in self.routes)

    @property
    def database(self) -> str:
        """The URL of the database in use."""
        return self.database_url or f"sqlite:///{self.home / 'quire.db'}"


def load(environ: Mapping[str, str] = os.environ, **given: Any) -> Settings:
    """Read the settings: arguments first, then QUIRE_*, then `quire.toml` in the home."""
    _refuse_renamed(environ)
    home = homes.choose(given.get("home") or environ.get("QUIRE_HOME"))
    table = _toml(home)
    values: dict[str, Any] = {"home": home.path}
    of_file: set[str] = set()
    for each in fields(Settings):
        name, key = each.name, f"QUIRE_{each.name.upper()}"
        if name == "home":
            continue
        if given.get(name) is not None:
            values[name] = given[name]
        elif (text := _given_by(environ, key)) is not None:
            values[name] = _parsed(key, text, each.default)
        elif name in table:
            values[name] = _parsed(f"quire.toml: {name}", table[name], each.default)
            of_file.add(name)
    if not home.is_named:
        values |= _of_found(home, of_file, values)
    return _checked(Settings(**values))


def _refuse_renamed(environ: Mapping[str, str]) -> None:
    for (old, new), suffix in itertools.product(RENAMED.items(), ("", "_FILE")):
        if (name := f"QUIRE_{old.upper()}{suffix}") in environ:
            raise BadInput(f"{name} was renamed to QUIRE_{new.upper()}{suffix}. Set that instead.")


def _given_by(environ: Mapping[str, str], key: str) -> str | None:
    """Return the value of a variable, or of the file KEY_FILE names, or None."""
    named = environ.get(f"{key}_FILE")
    if not named:
        return environ.get(key)
    if key in environ:
        raise BadInput(f"{key}: set twice, as {key} and as {key}_FILE. Unset one of them.")
    try:
        text = Path(named).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise BadInput(
            f"{key}_FILE: {named} cannot be read ({reason}). Nothing was started. Name a file "
            "that this user can read."
        ) from error
    if not text:
        raise BadInput(f"{key}_FILE: {named} is empty. Write the value of {key} to it.")
    return text


def _checked(s: Settings) -> Settings:
    for name, known in _CHOICES.items():
        if (value := getattr(s, name)) not in known:
            raise BadInput(f"QUIRE_{name.upper()}: {value!r} is not one of {', '.join(known)}.")
    if not 0 < s.heartbeat_interval < s.lease_seconds:
        raise BadInput(
            f"QUIRE_HEARTBEAT_INTERVAL ({s.heartbeat_interval:g} s) must be above 0 and below "
            f"QUIRE_LEASE_SECONDS ({s.lease_seconds:g} s). Otherwise leases expire while in use."
        )
    if not 0 <= s.concurrency <= 1024:
        raise BadInput(f"QUIRE_CONCURRENCY: {s.concurrency} is not between 0 and 1024.")
    for each in fields(s):
        value, least = getattr(s, each.name), _LEAST.get(each.name, 0)
        # NaN compares false to everything, so this form refuses it too.
        if isinstance(each.default, int | float) and not least <= value < 1e12:
            raise BadInput(f"QUIRE_{each.name.upper()}: {value:g} is below {least:g}.")
    secret_key.parse(s.secret_key, "QUIRE_SECRET_KEY")
    _check_urls(s)
    _check_sign_on(s)
    _check_queues(s)
    return s


def _check_urls(s: Settings) -> None:
    if s.public_url and not s.public_url.startswith(("http://", "https://")):
        raise BadInput(f"QUIRE_PUBLIC_URL: {s.public_url!r} is not an http or https URL.")
    if s.rerank_url and not (s.rerank_url.startswith(("http://", "https://")) and s.rerank_model):
        raise BadInput(
            "QUIRE_RERANK_URL: expected an http or https URL, and QUIRE_RERANK_MODEL with it."
        )
    if s.rerank_model and not s.rerank_url and not Path(s.rerank_model).is_dir():
        raise BadInput(
            f"QUIRE_RERANK_MODEL: {s.rerank_model} is not a folder. Name the folder of an ONNX "
            "cross-encoder, or set QUIRE_RERANK_URL for a model of a server."
        )
    for each in s.trusted_proxies:
        try:
            ipaddress.ip_network(each)
        except ValueError as error:
            raise BadInput(
                f"QUIRE_TRUSTED_PROXIES: {each!r} is not an address or a network, as in 10.0.0.5 "
                "or 10.0.0.0/24."
            ) from error
    if s.blobs and not s.blobs.lower().startswith(("s3://", "gs://", "az://")):
        raise BadInput(f"QUIRE_BLOBS: {s.blobs!r} is not an s3://, gs:// or az:// URL of a bucket.")
    if s.broker_url and s.broker_url.partition("://")[0] not in BROKERS:
        # The URL is not shown: it may contain a password.
        raise BadInput(
            f"QUIRE_BROKER_URL: the URL must start with {'://, '.join(BROKERS)}://, as in "
            "redis://host:6379/0 or amqp://user:password@host:5672//."
        )


def _check_sign_on(s: Settings) -> None:
    if not s.oidc_issuer:
        return
    if not is_secure(s.oidc_issuer):
        raise BadInput(f"QUIRE_OIDC_ISSUER: {s.oidc_issuer!r} is not an https URL.")
    for name in ("oidc_client_id", "public_url"):
        if not getattr(s, name):
            raise BadInput(f"QUIRE_{name.upper()}: is empty. QUIRE_OIDC_ISSUER needs it.")
    if s.oidc_create_users and not s.oidc_allow:
        raise BadInput(
            "QUIRE_OIDC_CREATE_USERS: needs QUIRE_OIDC_ALLOW, or everybody whom the provider knows "
            "could sign in. Set it, for example to domain:example.org=default/member."
        )


def is_secure(url: str) -> bool:
    """Tell whether a URL is https, or http on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    is_here = host == "localhost" or host in ("127.0.0.1", "::1")
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_here))


def _check_queues(s: Settings) -> None:
    for each in s.routes:
        if not _ROUTE.fullmatch(each):
            raise BadInput(
                f"QUIRE_ROUTES: {each!r} is not KIND=QUEUE, as in ingest.range=pages. Names "
                "consist of letters, digits, '.', '-' and '_'."
            )
    kinds = [each.partition("=")[0] for each in s.routes]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise BadInput(f"QUIRE_ROUTES: {kind} has more than one queue. Name one.")
    for queue in s.queues:
        if not _QUEUE.fullmatch(queue):
            raise BadInput(
                f"QUIRE_QUEUES: {queue!r} is not a queue name. Names consist of letters, "
                "digits, '.', '-' and '_'."
            )
    if not s.queues:
        raise BadInput("QUIRE_QUEUES: no queue is named, so a worker would never run anything.")


#: The least value of numbers; of all others it is 0.
_LEAST: dict[str, float] = {
    "sweep_interval": 0.05,
    "poll_interval": 0.05,
    "aging_seconds": 1.0,
    "payload_max_bytes": 1,
    "fetch_max_bytes": 1,
    "blob_cache_bytes": 1 << 20,
    "session_days": 0.001,
    "api_max_connections": 4,
}
_QUEUE = re.compile(r"[\w.-]+")
_ROUTE = re.compile(r"[\w.-]+=[\w.-]+")
#: Former names of settings and what they are called now.
RENAMED = {
    "api_rate": "api_requests_per_minute",
    "api_streams": "api_max_streams",
    "blob_links": "blob_presigned_urls",
    "embed_key": "embed_api_key",
    "fetch_private": "fetch_allow_private_addresses",
    "kind_queues": "routes",
    "payload_limit": "payload_max_bytes",
}
BROKERS = ("redis", "rediss", "amqp", "amqps")
POLICIES = ("all", "queue", "replace", "reject")
_CHOICES = {
    "user_policy": POLICIES,
    "sqlite_synchronous": ("full", "normal"),
    "sandbox": ("auto", "require", "off"),
    "log_level": ("debug", "info", "warning", "error"),
}


def described() -> list[tuple[str, Any, str]]:
    """List the name, default and sentence of every setting."""
    return [(f"QUIRE_{f.name.upper()}", f.default, f.metadata["doc"]) for f in fields(Settings)]


def by_topic() -> dict[str, list[str]]:
    """Group the names of the settings by topic, in the order in which they are shown."""
    topics: dict[str, list[str]] = {}
    topic = ""
    for each in fields(Settings):
        topic = each.metadata["topic"] or topic
        topics.setdefault(topic, []).append(f"QUIRE_{each.name.upper()}")
    return topics


def unknown(environ: Mapping[str, str] = os.environ) -> list[tuple[str, str | None]]:
    """List QUIRE_* variables that are not settings, each with the closest name that is one."""
    from difflib import get_close_matches

    known = {name for name, _, _ in described()}
    known |= {f"{name}_FILE" for name in known - {"QUIRE_HOME"}}
    found = [
        name
        for name in sorted(environ)
        if name.startswith("QUIRE_")
        and name not in known | _OTHERS
        and not _SERVICE.search(name)
        and name.removeprefix("QUIRE_").removesuffix("_FILE").lower() not in RENAMED
    ]
    # Compared without the common prefix, or any two would be close.
    short = {name.removeprefix("QUIRE_"): name for name in known}
    near = {name: get_close_matches(name.removeprefix("QUIRE_"), short, 1) for name in found}
    return [(name, short[best[0]] if best else None) for name, best in near.items()]


#: Variables that are not settings: of the supervisor for its processes, and of the tests.
_OTHERS = {"QUIRE_PARENT_FD", "QUIRE_TEST_RUN", "QUIRE_REQUIRE_ALL"}
#: Kubernetes sets QUIRE_SERVICE_HOST and the like in every container if a service is named quire.
_SERVICE = re.compile(r"_SERVICE_(HOST|PORT)(_|$)|_PORT(_\d+_(TCP|UDP).*)?$")


def _toml(home: homes.Home) -> dict[str, Any]:
    text, path = home.read_toml(), home.toml
    if text is None:
        return {}
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: not valid TOML ({error}). Nothing was started.") from error
    known = {f.name for f in fields(Settings)} - {"home"}
    for old in RENAMED.keys() & table.keys():
        raise BadInput(f"{path}: {old} was renamed to {RENAMED[old]}. Set that instead.")
    if unknown := sorted(set(table) - known):
        raise BadInput(
            f"{path}: unknown setting {', '.join(unknown)}. Known: {', '.join(sorted(known))}."
        )
    home.require_trusted(table)
    return table


def _of_found(home: homes.Home, of_file: set[str], values: dict[str, Any]) -> dict[str, Any]:
    """Return what the file of a home that was found means, or refuse what it may not decide."""
    for secret, receiver in homes.SENT_TO.items():
        is_sent = bool(values.get(secret) and values.get(receiver))
        if is_sent and receiver in of_file and secret not in of_file:
            raise BadInput(
                f"QUIRE_{secret.upper()}: would be sent to the server that {home.toml} names, and "
                "that file was found, not named. Nothing was sent. If you trust it, set "
                f"QUIRE_{receiver.upper()} with it, or QUIRE_HOME={home.path}."
            )
    if "plugins" not in of_file:
        return {}
    # Files beside the home, not those of the folder that the user happens to stand in.
    beside = [str(home.path.parent / n) if n.endswith(".py") else n for n in values["plugins"]]
    return {"plugins": tuple(beside)}


def _parsed(name: str, raw: Any, default: Any) -> Any:
    try:
        if isinstance(default, bool):
            return _BOOLEANS[str(raw).lower()]
        if isinstance(default, tuple):
            parts = raw.split(",") if isinstance(raw, str) else raw
            return tuple(part.strip() for part in parts if part.strip())
        return type(default)(raw)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        wanted = _TYPES.get(type(default), "valid value")
        raise BadInput(f"{name}: {raw!r} is not a {wanted}.") from error


_TYPES: dict[type, str] = {
    bool: "boolean (true or false)", int: "whole number", float: "number", tuple: "list",
}  # fmt: skip
_BOOLEANS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(
    ("0", "false", "no", "off", ""), False
)
