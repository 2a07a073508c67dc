"""A Quire worker inside a Celery worker: Celery receives doorbells; Quire claims, runs, settles.

The Quire worker has a thread of its own beside Celery's, and its child processes. It starts
before Celery has reached its broker. Celery owns the signals: its warm shutdown drains the Quire
worker, its cold shutdown stops it at once.
"""

import logging
import os
import socket
import threading
import time
import uuid
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quire import log
from quire.celery import settings as celery_settings
from quire.celery.claim_gate import BrokerGate
from quire.errors import BadInput, QuireError
from quire.runtime.worker.loop import Worker
from quire.sandbox import confine
from quire.settings import Settings

if TYPE_CHECKING:
    from celery import Celery

#: Seconds that Celery has to exit after the Quire worker; a lost broker may block it.
EXIT_SECONDS = 10.0
#: Seconds until a repeated message of Celery is logged again.
REPEAT_SECONDS = 60.0


def make_app(settings: Settings) -> "Celery":
    """Make the Celery application whose workers embed a Quire worker."""
    app = celery_settings.make_app(settings)
    from celery import signals

    worker = EmbeddedWorker(settings)

    @app.task(name=celery_settings.RING)  # type: ignore[untyped-decorator]
    def ring(**_: object) -> None:
        """Open one claim slot; the arguments are for people."""
        worker.gate.deliver()

    @signals.setup_logging.connect(weak=False)  # type: ignore[untyped-decorator]
    def setup_logging(loglevel: int | str | None = None, **_: object) -> None:
        log.setup(as_json=settings.log_json, level=settings.log_level)
        for name in ("celery", "kombu"):
            logger = logging.getLogger(name)
            logger.handlers[:] = [_QuireLog()]
            logger.setLevel(loglevel or "WARNING")
            logger.propagate = False

    @signals.worker_shutting_down.connect(weak=False)  # type: ignore[untyped-decorator]
    def shutting_down(**_: object) -> None:
        worker.gate.request_stop()

    app.steps["worker"].add(_bootstep(worker))
    return app


def _bootstep(worker: "EmbeddedWorker") -> type[Any]:
    from celery import bootsteps

    class EmbeddedWorkerStep(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
        """Starts and stops the Quire worker with Celery's."""

        requires = ("celery.worker.components:Pool",)

        def start(self, parent: Any) -> None:
            worker.start(parent)

        def close(self, parent: Any) -> None:
            if not worker.gate.stop_requests:
                worker.gate.request_stop()

        def stop(self, parent: Any) -> None:
            worker.join()

        def terminate(self, parent: Any) -> None:
            while worker.gate.stop_requests < 2:
                worker.gate.request_stop()
            worker.join()

    return EmbeddedWorkerStep


def run(settings: Settings) -> int:
    """Run a Celery worker with an embedded Quire worker; returns the exit code."""
    celery_settings.check(settings)
    confine.check(settings.sandbox)
    app = make_app(settings)
    from celery.platforms import SecurityWarning

    # It warns about pickled messages; these are JSON.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    worker = app.Worker(
        hostname=f"quire-{uuid.uuid4().hex[:8]}@{socket.gethostname()}",
        loglevel="WARNING",
        quiet=True,
        # Workers coordinate through the database.
        without_mingle=True,
        without_gossip=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


class EmbeddedWorker:
    """The Quire worker and its thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.gate = BrokerGate(celery_settings.shown(settings.broker_url), settings.poll_interval)
        self._thread: threading.Thread | None = None

    def start(self, host: Any) -> None:
        """Start it with the concurrency and the queues of the Celery worker."""
        try:
            celery_settings.check(self._settings)
        except BadInput as error:
            log.trouble("worker.refused", error)
            raise SystemExit(2) from error
        if host.pool_cls.__module__ != "celery.concurrency.thread":
            log.event(
                "worker.refused", level="error",
                why=f"Celery's pool is {host.pool_cls.__module__}; only -P threads works, because "
                "tasks run in child processes of Quire",
            )  # fmt: skip
            raise SystemExit(2)
        consumed = host.app.amqp.queues.consume_from
        names = tuple(name.removeprefix(celery_settings.PREFIX) for name in consumed)
        settings = replace(self._settings, concurrency=host.concurrency, queues=names)
        self._thread = threading.Thread(target=self._run, args=(settings,), name="worker")
        self._thread.start()

    def join(self) -> None:
        """Wait until it has drained and returned its leases."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, settings: Settings) -> None:
        from celery.worker import state

        code = 1
        try:
            code = Worker(settings, self.gate).run()
        except QuireError as error:
            log.trouble("worker.failed", error)
        except BaseException as error:
            log.trouble("worker.failed", error)
            raise
        finally:
            self.gate.close()
            # Without the Quire worker Celery must exit too, even if its broker blocks it.
            state.should_stop = code
            timer = threading.Timer(EXIT_SECONDS, os._exit, (code,))
            timer.daemon = True
            timer.start()


class _QuireLog(logging.Handler):
    """Writes log records of Celery and kombu as Quire events, repeated ones once a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._repeat_at: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text, now = " ".join(record.getMessage().split()), time.monotonic()
        if now < self._repeat_at.get(text, 0.0):
            return
        self._repeat_at = {said: at for said, at in self._repeat_at.items() if at > now}
        self._repeat_at[text] = now + REPEAT_SECONDS
        log.event("celery", level=record.levelname.lower(), said=text)
