"""The composition root: `App` connects settings, database, plugins and `control`."""

import functools
import getpass
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from quire import settings as settings_module
from quire.control.caller import Caller
from quire.errors import DatabaseUnavailable, QuireError, Refused
from quire.model.contracts import in_queues
from quire.model.records import Submission
from quire.runtime import wakeup
from quire.runtime.worker import liveness
from quire.settings import Settings
from quire.store import open_database
from quire.store.db import migrate
from quire.store.db.engine import Database

if TYPE_CHECKING:
    from quire.plugins import Registry


class App:
    """Quire as a library: `App().submit("greet", name="Ada")`."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        create: bool = True,
        patient: bool = False,
        **given: Any,
    ) -> None:
        self.settings = settings or settings_module.load(**given)
        self.db = self._open(create, patient)

    @functools.cached_property
    def registry(self) -> "Registry":
        """The job kinds this process knows, loaded on first use."""
        from quire import plugins

        registry = plugins.load(self.settings.plugins)
        for kind in in_queues(list(registry.kinds.values()), self.settings.queue_by_kind):
            registry.put(kind)
        return registry

    def _open(self, create: bool, patient: bool) -> Database:
        s = self.settings
        db = open_database(
            s.database, synchronous=s.sqlite_synchronous, lease_seconds=s.lease_seconds
        )
        try:
            self._prepare(db, create)
        except DatabaseUnavailable:
            # A server starts anyway, and answers 503 until the database is back.
            if not patient:
                db.close()
                raise
        except QuireError:
            db.close()
            raise
        return db

    def _prepare(self, db: Database, create: bool) -> None:
        s = self.settings
        if db.is_embedded and create:
            db.migrate(alive=liveness.is_alive)
            return
        if not db.exists():
            raise DatabaseUnavailable(
                f"home {s.home}: there is no Quire database here yet. Start with `quire ingest "
                "FOLDER` or `quire up`, or name another folder with QUIRE_HOME."
            )
        with db.read() as conn:
            missing = migrate.check(conn)
        if missing:
            raise Refused(
                f"database: {missing} schema migrations of this version of Quire are missing. "
                "Nothing was changed. Run `quire migrate` first."
            )

    @property
    def user(self) -> str:
        """The user that requests are made as."""
        return self.settings.user or getpass.getuser()

    @functools.cached_property
    def caller(self) -> Caller:
        """The user and tenant of the settings, as verbs and queries take them."""
        s = self.settings
        return Caller(
            self.db,
            tenant=s.tenant,
            user=self.user,
            policy=s.user_policy,
            known=lambda: self.registry.kinds,
            payload_limit=s.payload_max_bytes,
            settings=s.for_children,
            ring=lambda: wakeup.wake(s.home),
            is_alive=liveness.is_alive,
        )

    def submit(self, kind: str, /, **payload: Any) -> int:
        """Submit one job. The keys of its payload become the handler's arguments."""
        [job_id] = self.submit_many([Submission(kind, payload)])
        return job_id

    def submit_many(
        self, submissions: Sequence[Submission], *, key: str | None = None
    ) -> list[int]:
        """Submit many jobs in one transaction."""
        from quire.control import jobs

        return jobs.submit(self.caller, submissions, key=key)

    def close(self) -> None:
        """Close the database."""
        self.db.close()
