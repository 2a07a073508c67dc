"""The Celery application, with a reason for each setting. Its messages are doorbells.

A message makes a worker claim the head of a queue in the database. Its arguments (kind, job,
task, number) are for Flower and for people; they decide nothing.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quire.errors import BadInput, install_hint
from quire.settings import Settings

if TYPE_CHECKING:
    from celery import Celery

#: The only Celery task: its messages are the doorbells.
RING = "quire.ring"
PREFIX = "quire."
#: Longer than any task. Must be the same in all programs on one Redis: the shortest one wins.
VISIBILITY_SECONDS = 12 * 3600
#: A message is held for 600 s at most (`claim_gate.ACK_SECONDS`); RabbitMQ's default is 30 min.
CONSUMER_MILLISECONDS = 3600 * 1000
DELIVERIES = 20


def check(settings: Settings) -> None:
    """Raise BadInput for settings that cannot work, before anything is started."""
    if not settings.database_url:
        raise BadInput(
            "QUIRE_BROKER_URL: delivery by Celery needs PostgreSQL, but SQLite is in use. "
            "Set QUIRE_DATABASE_URL, or unset QUIRE_BROKER_URL: SQLite needs no broker."
        )
    try:
        import celery  # noqa: F401

        if not is_rabbit(settings):
            import redis  # noqa: F401
    except ImportError as error:
        name = "the Redis client of Celery" if error.name == "redis" else "Celery"
        raise BadInput(
            f"QUIRE_BROKER_URL: {name} is not installed. Install it with "
            f"`{install_hint('celery')}`, or unset QUIRE_BROKER_URL."
        ) from error


def shown(url: str) -> str:
    """Return a broker URL without user and password."""
    scheme, _, rest = url.partition("://")
    address = rest.rpartition("@")[2].partition("?")[0]
    return f"{scheme}://{address}"


def is_rabbit(settings: Settings) -> bool:
    """Tell whether the broker is RabbitMQ; else it is Redis."""
    return settings.broker_url.startswith("amqp")


def queue_of(name: str, settings: Settings) -> Any:
    """Return the broker queue of a Quire queue; every program must declare it the same way."""
    import kombu

    make: Any = kombu.Queue  # type: ignore[attr-defined]
    arguments: Mapping[str, Any] | None = None
    if is_rabbit(settings):
        arguments = {
            # Replicated, and survives the restart of a node.
            "x-queue-type": "quorum",
            # Drop a message after so many redeliveries. Tasks count their attempts themselves.
            "x-delivery-limit": DELIVERIES,
            # Since RabbitMQ 3.11.15; older nodes use their own setting.
            "x-consumer-timeout": CONSUMER_MILLISECONDS,
        }
    return make(PREFIX + name, routing_key=PREFIX + name, queue_arguments=arguments)


def make_app(settings: Settings) -> "Celery":
    """Make the Celery application for the broker; `check` says if it can deliver tasks."""
    from celery import Celery

    app = Celery("quire", set_as_current=False)
    app.conf.update(configuration(settings))
    return app


def configuration(settings: Settings) -> dict[str, Any]:
    """Return every Celery setting that Quire sets, each with its reason."""
    return {**_connection(settings), **_messages(settings), **_worker(settings)}


def _connection(settings: Settings) -> dict[str, Any]:
    return {
        # Redis or RabbitMQ.
        "broker_url": settings.broker_url,
        # Options of one of the two only, see below.
        "broker_transport_options": _transport(settings),
        # A worker that starts before its broker polls the database and keeps connecting.
        "broker_connection_retry_on_startup": True,
        # The same when the connection is lost.
        "broker_connection_retry": True,
        # Forever: a worker that exits because of its broker would take its slots with it.
        "broker_connection_max_retries": None,
        # Shorter than a lease, in case packets are dropped silently.
        "broker_connection_timeout": 4,
        # RabbitMQ closes a channel that held a message for too long, for example after the machine
        # slept. Reconnect and keep the tasks running; by default Celery ends the worker.
        "broker_channel_error_retry": True,
        # Detects half-open connections to RabbitMQ; Redis has its own check, see below.
        "broker_heartbeat": 20 if is_rabbit(settings) else 0,
    }


def _messages(settings: Settings) -> dict[str, Any]:
    queues = [queue_of(name, settings) for name in settings.queues]
    return {
        # The queues that the worker serves in the database.
        "task_queues": queues,
        # Celery's default name may be used by other programs on the broker.
        "task_default_queue": queues[0].name,
        # The queue is bound by the same name.
        "task_default_routing_key": queues[0].name,
        # Refuse a misspelt `-Q`: no message would ever be sent to it.
        "task_create_missing_queues": False,
        # The database decides the order. Redis and RabbitMQ sort priorities in opposite ways.
        "task_default_priority": None,
        # No priority queue: its declaration would differ from that of the dispatcher.
        "task_queue_max_priority": None,
        # Acknowledge when the slot is free again: with a prefetch of 1 no message waits behind a
        # long task while another worker is idle.
        "task_acks_late": True,
        # A redelivered message could loop through workers that run out of memory.
        "task_reject_on_worker_lost": False,
        # The database decides about retries, not the broker.
        "task_retry_on_worker_lost": False,
        # The result of a run is in the database; a rejected message means nothing.
        "task_acks_on_failure": True,
        # The same after a timeout.
        "task_acks_on_timeout": True,
        # Results and states are in the database only.
        "task_ignore_result": True,
        # No second store of results that could grow or disagree.
        "result_backend": None,
        # Quire enforces time limits by killing children; Celery cannot do it in threads.
        "task_time_limit": None,
        # A soft limit could be raised anywhere, even inside a commit.
        "task_soft_time_limit": None,
        # For Flower: the messages that were sent, with kind and job.
        "task_send_sent_event": True,
        # For Flower: which worker received them.
        "task_track_started": True,
        # The queue of a monitor that is gone must not fill up Redis.
        "event_queue_expires": 60,
        # A slow monitor gets no old events.
        "event_queue_ttl": 10,
        # Data, never code: whoever can write to the broker must not run code here.
        "task_serializer": "json",
        # For the same reason, accept nothing else.
        "accept_content": ["json"],
        # Machines in several time zones agree about the times in messages.
        "enable_utc": True,
    }


def _worker(settings: Settings) -> dict[str, Any]:
    return {
        # Child processes of Quire run the tasks: limits and heartbeats work as without Celery.
        # Celery's threads only wait for them, and no process with threads is forked.
        "worker_pool": "threads",
        # One thread per child process: each held message is one slot.
        "worker_concurrency": settings.concurrency or max(os.cpu_count() or 1, 2),
        # No message waits in a worker while another one is idle; the default is 4.
        "worker_prefetch_multiplier": 1,
        # Nor the one that Redis delivers in addition. Celery has this option for Redis only.
        "worker_disable_prefetch": not is_rabbit(settings),
        # Needs a result backend and knows successes only; a claim knows everything.
        "worker_deduplicate_successful_tasks": False,
        # A short broker outage must not end a task of hours whose lease is renewed.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        # Quire replaces its child processes by count; Celery has threads only.
        "worker_max_tasks_per_child": None,
        # And by memory, even during a task; Celery checks between tasks only.
        "worker_max_memory_per_child": None,
        # The Quire worker drains within QUIRE_STOP_GRACE.
        "worker_soft_shutdown_timeout": 0.0,
        # For Flower: the workers and their activity.
        "worker_send_task_events": True,
        # Commands from the broker can shut workers down. Its password should not be worth that.
        "worker_enable_remote_control": settings.celery_remote_control,
        # No message waits in memory for its time: `run_at` is in the database.
        "worker_eta_task_limit": 1,
        # Log records of Celery become Quire events.
        "worker_hijack_root_logger": False,
    }


def _transport(settings: Settings) -> dict[str, Any]:
    if is_rabbit(settings):
        # Without it a sent message may be lost silently.
        return {"confirm_publish": True}
    return {
        # Otherwise Redis redelivers a message while its task runs.
        "visibility_timeout": VISIBILITY_SECONDS,
        # Without it a call to a lost broker blocks forever.
        "socket_timeout": 30,
        # The same for a new connection.
        "socket_connect_timeout": 4,
        # Keeps routers from dropping an idle connection.
        "socket_keepalive": True,
        # Detects half-open connections that wait for messages.
        "health_check_interval": 25,
    }


def short_timeouts(settings: Settings) -> dict[str, Any]:
    """Return transport options for a connection that must not block its caller for long."""
    if is_rabbit(settings):
        return {**_transport(settings), "read_timeout": 3, "write_timeout": 3}
    return {**_transport(settings), "socket_timeout": 3, "socket_connect_timeout": 3}
