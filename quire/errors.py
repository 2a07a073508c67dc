"""Every error Quire raises. The class decides whether work is retried and how a command exits.

QuireError
├── Transient               the same work may succeed later: retried with backoff
│   ├── DatabaseUnavailable   the database cannot be reached, is locked, full or read-only
│   │   └── Unconfirmed           it went away during a COMMIT, which may have happened
│   ├── BlobsUnavailable      the bucket of blobs does not answer; waiting costs no attempt
│   ├── FetchFailed           a file could not be brought now: network, disk, or it changed
│   └── WorkerStartFailed     a worker or its children cannot be started
├── Permanent               the same work will fail again: never retried
│   ├── Refused               a request that cannot be carried out as asked
│   │   ├── BadInput            a value outside what is accepted
│   │   ├── UnknownKind         no handler of that name
│   │   ├── NotFound            no such job, task or worker for this tenant
│   │   ├── Conflict            the state does not allow it, or a key was used for another body
│   │   ├── UserBusy            the user's policy is `reject` and another job is active
│   │   ├── NotSignedIn         no token or session, or one that has ended
│   │   ├── Forbidden           signed in, but the role or the token's scopes do not allow it
│   │   ├── TooLarge            a body or an upload above its limit
│   │   └── TooMany             more requests or streams than one may have
│   ├── Overtaken             a newer generation of the document is at work, or it was deleted
│   ├── Unreadable            a file that cannot be read: damaged, protected, not supported
│   ├── SourceRefused        a source, or a limit of ours, does not give the file
│   │   └── Gone                it is no longer there
│   ├── Damaged              bytes are not what they were or were said to be
│   ├── SchemaAhead          the database needs a later Quire than this one
│   └── PluginFailed          a plugin cannot be loaded
├── Stopped                 the job was stopped or cancelled; raised by `ctx.check()`
└── LeaseLost               another holder has the task: what this one wrote is refused
"""


class QuireError(Exception):
    """What went wrong, and what to do about it."""

    exit_code = 1


class Transient(QuireError):
    """The same work may succeed later; raise it in a handler to be retried."""

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DatabaseUnavailable(Transient):
    """The database cannot be reached, is locked, full or read-only."""


class Unconfirmed(DatabaseUnavailable):
    """The database went away while a change was committed: it may have happened."""


class BlobsUnavailable(Transient):
    """The bucket that blobs are kept in does not answer; waiting for it costs no attempt."""


class FetchFailed(Transient):
    """A file could not be brought now: the network or the disk failed, or it changed."""


class WorkerStartFailed(Transient):
    """A worker, or the children of one, could not be started."""


class Permanent(QuireError):
    """The same work will fail again; raise it in a handler to fail at once."""


class Refused(Permanent):
    """A request that cannot be carried out as asked; nothing was changed."""

    exit_code = 2


class BadInput(Refused):
    """A value outside what is accepted."""


class UnknownKind(Refused):
    """No handler of that name is known."""


class NotFound(Refused):
    """No such job, task or worker for this tenant."""


class Conflict(Refused):
    """The present state does not allow it."""


class UserBusy(Refused):
    """The user's policy is `reject` and another of their jobs is active."""


class NotSignedIn(Refused):
    """The request carries no token or session, or one that has ended."""


class Forbidden(Refused):
    """The requester's role, or the scopes of the token, do not allow it."""


class TooLarge(Refused):
    """A body or an upload is above its limit."""


class TooMany(Refused):
    """More requests or open streams than one requester may have."""

    def __init__(self, message: str = "", *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overtaken(Permanent):
    """A newer generation of the document is at work, or the document was deleted."""


class Unreadable(Permanent):
    """A file, or a page of it, cannot be read: damaged, protected or of no supported type."""


class SourceRefused(Permanent):
    """A source, or a limit of ours, does not give the file."""


class Gone(SourceRefused):
    """What was listed is no longer there."""


class Damaged(Permanent):
    """Bytes are not what they were, or not what they were said to be."""


class SchemaAhead(Permanent):
    """The database needs a later Quire than this one."""

    #: One of its own, so that supervisors do not start again what can never work.
    exit_code = 78


class PluginFailed(Permanent):
    """A plugin could not be loaded."""

    exit_code = 2


class Stopped(QuireError):
    """The job was stopped or cancelled while this task ran."""


class LeaseLost(QuireError):
    """The task has another holder now; nothing of this run was written."""


def install_hint(extra: str) -> str:
    """Return the pip command that installs an extra into this installation."""
    import sys
    from pathlib import Path

    checkout = Path(__file__).parents[1]
    is_checkout = (checkout / "pyproject.toml").is_file()
    what = f"-e '{checkout}[{extra}]'" if is_checkout else f"'quire[{extra}]'"
    return f"{sys.executable} -m pip install {what}"
