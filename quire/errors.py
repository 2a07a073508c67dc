"""Every error Quire raises. The class decides on retries, the HTTP status and the exit code.

QuireError
├── Transient               the same work may succeed later: retried with backoff
│   ├── DatabaseUnavailable   the database is unreachable, locked, full or read-only
│   │   └── Unconfirmed           the connection was lost during COMMIT; it may have succeeded
│   ├── BlobsUnavailable      the bucket of stored files does not answer; costs no attempt
│   ├── FetchFailed           a download failed: network, disk, or the file changed
│   └── WorkerStartFailed     a worker or its child processes cannot be started
├── Permanent               the same work will fail again: never retried
│   ├── Refused               a request that cannot be carried out
│   │   ├── BadInput            an invalid value
│   │   ├── UnknownKind         no handler for this job kind
│   │   ├── NotFound            no such object in this tenant
│   │   ├── Conflict            the current state does not allow it, or a key was reused
│   │   ├── Transferred         the database was transferred, or a transfer into it is unfinished
│   │   ├── UserBusy            the user's policy is `reject` and another job is active
│   │   ├── NotSignedIn         no token or session, or an expired one
│   │   ├── Forbidden           the role, or the scopes of the token, do not allow it
│   │   ├── TooLarge            a request body or an upload exceeds its limit
│   │   └── TooMany             the rate limit, or the limit of open streams, is exceeded
│   ├── Overtaken             the document has a newer generation, or was deleted
│   ├── Unreadable            a file is damaged, protected or not supported
│   ├── SourceRefused         a source, or one of our limits, denies access to the file
│   │   └── Gone                the file no longer exists
│   ├── Damaged               a checksum or a size does not match
│   ├── SecretUnavailable     the key of a sealed secret is missing or wrong, or it was deleted
│   ├── SchemaAhead           the database needs a newer version of Quire
│   └── PluginFailed          a plugin cannot be loaded
├── Stopped                 the job was stopped or cancelled; raised by `ctx.check()`
└── LeaseLost               another worker holds the task; writes of this one are rejected
"""


class QuireError(Exception):
    """What went wrong, and what to do about it."""

    exit_code = 1


class Transient(QuireError):
    """The same work may succeed later. Raise it in a handler to be retried."""

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DatabaseUnavailable(Transient):
    """The database is unreachable, locked, full or read-only."""


class Unconfirmed(DatabaseUnavailable):
    """The connection or the disk was lost during COMMIT: the change may have been made."""


class BlobsUnavailable(Transient):
    """The bucket of stored files does not answer. Waiting for it costs no attempt."""


class FetchFailed(Transient):
    """A download failed: the network, the disk, or the file changed meanwhile."""


class WorkerStartFailed(Transient):
    """A worker, or its child processes, could not be started."""


class Permanent(QuireError):
    """The same work would fail again. Raise it in a handler to fail at once."""


class Refused(Permanent):
    """A request cannot be carried out. Nothing was changed."""

    exit_code = 2


class BadInput(Refused):
    """A value is invalid."""


class UnknownKind(Refused):
    """There is no handler for this job kind."""


class NotFound(Refused):
    """There is no such object in this tenant."""


class Conflict(Refused):
    """The current state does not allow the request."""


class Transferred(Refused):
    """The database was transferred to another one, or a transfer into it is not finished."""

    #: EX_CONFIG, as of `SchemaAhead`.
    exit_code = 78


class UserBusy(Refused):
    """The user's policy is `reject` and another of their jobs is active."""


class NotSignedIn(Refused):
    """The request has no token or session, or an expired one."""


class Forbidden(Refused):
    """The user's role, or the scopes of the token, do not allow the request."""


class TooLarge(Refused):
    """A request body or an upload exceeds its limit."""


class TooMany(Refused):
    """The rate limit, or the limit of open streams, is exceeded."""

    def __init__(self, message: str = "", *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overtaken(Permanent):
    """The document has a newer generation, or was deleted."""


class Unreadable(Permanent):
    """A file, or one of its pages, is damaged, protected or not supported."""


class SourceRefused(Permanent):
    """A source, or one of our limits, denies access to the file."""


class Gone(SourceRefused):
    """The file no longer exists."""


class Damaged(Permanent):
    """A checksum or a size does not match."""


class SecretUnavailable(Permanent):
    """A password cannot be sealed or opened: its key is missing or wrong, or it was deleted."""


class SchemaAhead(Permanent):
    """The database needs a newer version of Quire."""

    #: EX_CONFIG: tells supervisors not to restart what can never work.
    exit_code = 78


class PluginFailed(Permanent):
    """A plugin could not be loaded."""

    exit_code = 2


class Stopped(QuireError):
    """The job was stopped or cancelled while this task ran."""


class LeaseLost(QuireError):
    """Another worker holds the task now. Nothing of this run was written."""


#: The HTTP status and the title of an error. The first class that matches decides; an error that
#: matches none is an internal error.
STATUS: dict[type[QuireError], tuple[int, str]] = {
    NotSignedIn: (401, "Not signed in"),
    Forbidden: (403, "Not allowed"),
    TooLarge: (413, "Too large"),
    TooMany: (429, "Too many requests"),
    NotFound: (404, "Not found"),
    Gone: (410, "Gone"),
    SourceRefused: (502, "Storage or source refused"),
    Conflict: (409, "Conflict"),
    UserBusy: (409, "Another job is active"),
    BadInput: (422, "Invalid request"),
    UnknownKind: (422, "Unknown job kind"),
    DatabaseUnavailable: (503, "Database unavailable"),
    SecretUnavailable: (503, "Secret unavailable"),
    Unreadable: (422, "Unreadable file"),
    Refused: (409, "Refused"),
    Transient: (503, "Temporarily unavailable"),
}


def install_hint(extra: str) -> str:
    """Return the pip command that installs an extra into this installation."""
    import sys
    from pathlib import Path

    checkout = Path(__file__).parents[1]
    is_checkout = (checkout / "pyproject.toml").is_file()
    what = f"-e '{checkout}[{extra}]'" if is_checkout else f"'quire[{extra}]'"
    return f"{sys.executable} -m pip install {what}"
