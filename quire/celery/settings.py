"""The Celery application: every setting with its reason. What it delivers are doorbells.

A message makes a worker claim the head of its queue's order in the database. What is in it (kind,
job, task, number) is for Flower and for people; it decides nothing.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quire.errors import BadInput
from quire.settings import Settings

if TYPE_CHECKING:
    from celery import Celery

#: The one task: its messages are the doorbells.
RING = "quire.ring"
PREFIX = "quire."
#: Longer than any task; and equal in every program on one Redis, as the shortest one rules there.
VISIBILITY_SECONDS = 12 * 3600
#: A message is held for 600 s at most (`doorway.HOLD`); RabbitMQ's own default is 30 minutes.
CONSUMER_MILLISECONDS = 3600 * 1000
DELIVERIES = 20


def check(settings: Settings) -> None:
    """Refuse what could never work, before anything is started."""
    if not settings.database_url:
        raise BadInput(
            "QUIRE_BROKER_URL: delivery by Celery needs PostgreSQL, and the embedded database is "
            "in use. Set QUIRE_DATABASE_URL, or unset QUIRE_BROKER_URL: it needs no broker."
        )
    try:
        import celery  # noqa: F401

        if not is_rabbit(settings):
            import redis  # noqa: F401
    except ImportError as error:
        name = "Celery's client of Redis" if error.name == "redis" else "Celery"
        raise BadInput(
            f"QUIRE_BROKER_URL: {name} is not installed. Install it with "
            "`pip install 'quire[celery]'`, or unset QUIRE_BROKER_URL."
        ) from error


def shown(url: str) -> str:
    """Return a broker's URL as it may be shown: without user and password."""
    scheme, _, rest = url.partition("://")
    place = rest.rpartition("@")[2].partition("?")[0]
    return f"{scheme}://{place}"


def is_rabbit(settings: Settings) -> bool:
    """Tell whether the broker is RabbitMQ; else it is Redis."""
    return settings.broker_url.startswith("amqp")


def queue_of(name: str, settings: Settings) -> Any:
    """Return the broker's queue for one of ours, as all who use it have to declare it."""
    import kombu

    make: Any = kombu.Queue  # type: ignore[attr-defined]
    arguments: Mapping[str, Any] | None = None
    if is_rabbit(settings):
        arguments = {
            # Replicated, and kept over a restart of a node.
            "x-queue-type": "quorum",
            # A doorbell that was given back so often is dropped. Tasks count their own attempts.
            "x-delivery-limit": DELIVERIES,
            # Known since RabbitMQ 3.11.15; before, the node's own setting rules.
            "x-consumer-timeout": CONSUMER_MILLISECONDS,
        }
    return make(PREFIX + name, routing_key=PREFIX + name, queue_arguments=arguments)


def make_app(settings: Settings) -> "Celery":
    """Make the Celery application for the broker of the settings."""
    check(settings)
    from celery import Celery

    app = Celery("quire", set_as_current=False)
    app.conf.update(configuration(settings))
    return app


def configuration(settings: Settings) -> dict[str, Any]:
    """Return all of Celery's settings that Quire sets."""
    return {**_reaching(settings), **_messages(settings), **_working(settings)}


def _reaching(settings: Settings) -> dict[str, Any]:
    return {
        # The operator's choice: Redis or RabbitMQ.
        "broker_url": settings.broker_url,
        # What only one of the two knows, below.
        "broker_transport_options": _transport(settings),
        # A worker that is started before its broker claims from the database and waits for it.
        "broker_connection_retry_on_startup": True,
        # One that loses it does the same.
        "broker_connection_retry": True,
        # For however long: a worker that ended for its broker would take its slots along.
        "broker_connection_max_retries": None,
        # Shorter than a lease, so that an address that swallows everything is given up in time.
        "broker_connection_timeout": 4,
        # RabbitMQ closes a channel that has held a message for too long, as after a machine slept.
        # Celery would end the worker; like this it connects anew, and its tasks go on.
        "broker_channel_error_retry": True,
        # So that a half-open connection to RabbitMQ is noticed; Redis has its own check, below.
        "broker_heartbeat": 20 if is_rabbit(settings) else 0,
    }


def _messages(settings: Settings) -> dict[str, Any]:
    return {**_places(settings), **_acknowledging(), **_told()}


def _places(settings: Settings) -> dict[str, Any]:
    queues = [queue_of(name, settings) for name in settings.queues]
    return {
        # What a worker takes from: the queues that it serves in the database.
        "task_queues": queues,
        # Celery's own names would be shared with other programs on the broker.
        "task_default_queue": queues[0].name,
        # The same name, as the queue is bound by it.
        "task_default_routing_key": queues[0].name,
        # A misspelt `-Q` is refused, not made: nobody would ever ring in it.
        "task_create_missing_queues": False,
        # Order is in the database. Redis and RabbitMQ count priorities in opposite directions.
        "task_default_priority": None,
        # Nor may the queue sort: it would be declared in another way than ours.
        "task_queue_max_priority": None,
    }


def _acknowledging() -> dict[str, Any]:
    return {
        # Acknowledged when the slot that it opened is free again: with a prefetch of 1 no message
        # waits behind a long task while another worker is idle.
        "task_acks_late": True,
        # Given back by the broker it would come again each time: loops of workers out of memory.
        "task_reject_on_worker_lost": False,
        # The database decides on retries; the broker must not be a second one to do so.
        "task_retry_on_worker_lost": False,
        # The verdict on a run is in the database; a doorbell that is refused is only noise.
        "task_acks_on_failure": True,
        # The same where a time was over.
        "task_acks_on_timeout": True,
        # Nobody asks a doorbell for its result: results and states are in the database only.
        "task_ignore_result": True,
        # So there is no second store of them that could grow or disagree.
        "result_backend": None,
        # Time limits are ours, kept by killing children; threads could not keep Celery's.
        "task_time_limit": None,
        # A soft one would be raised anywhere, also inside a commit.
        "task_soft_time_limit": None,
    }


def _told() -> dict[str, Any]:
    return {
        # For Flower: what is rung, with kind and job.
        "task_send_sent_event": True,
        # For Flower: by whom it is heard.
        "task_track_started": True,
        # A monitor that went away leaves no queue behind: Redis would fill up.
        "event_queue_expires": 60,
        # And one that is slow gets no old news.
        "event_queue_ttl": 10,
        # Data, never code: whoever can write to the broker must not run anything here.
        "task_serializer": "json",
        # For the same reason nothing else is read.
        "accept_content": ["json"],
        # Times in messages of machines in several zones mean the same.
        "enable_utc": True,
    }


def _working(settings: Settings) -> dict[str, Any]:
    return {
        # Our own children run the tasks: limits, kills and heartbeats are the same without Celery.
        # Threads only wait for them, and nothing is forked after libraries have begun threads.
        "worker_pool": "threads",
        # One thread for each child of ours: each message in hand is one slot in use.
        "worker_concurrency": settings.concurrency or max(os.cpu_count() or 1, 2),
        # None waits in a worker's memory while another worker is idle; the default is 4.
        "worker_prefetch_multiplier": 1,
        # Not even the one that Redis would give beyond that. Celery has it for Redis only.
        "worker_disable_prefetch": not is_rabbit(settings),
        # It would need a result backend, and sees successes only; a claim sees everything.
        "worker_deduplicate_successful_tasks": False,
        # A broker that is away for a moment must not end a task of hours whose lease is renewed.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        # Children are replaced by us, by count. Celery's are threads.
        "worker_max_tasks_per_child": None,
        # And by memory, also in the middle of a task; Celery looks behind each one only.
        "worker_max_memory_per_child": None,
        # Our worker drains within QUIRE_STOP_GRACE; Celery need not count as well.
        "worker_soft_shutdown_timeout": 0.0,
        # For Flower: which workers there are, and what they do.
        "worker_send_task_events": True,
        # No message waits in a worker's memory for its time: `run_at` is in the database.
        "worker_eta_task_limit": 1,
        # Lines of Celery are events of our own log.
        "worker_hijack_root_logger": False,
    }


def _transport(settings: Settings) -> dict[str, Any]:
    if is_rabbit(settings):
        # Without it a message may vanish though it was sent.
        return {"confirm_publish": True}
    return {
        # Else Redis would deliver a message again while its task runs.
        "visibility_timeout": VISIBILITY_SECONDS,
        # Without it a call to a broker that is gone waits for ever.
        "socket_timeout": 30,
        # The same for a connection that is to be made.
        "socket_connect_timeout": 4,
        # So that routers do not forget a connection on which nothing happens.
        "socket_keepalive": True,
        # A half-open connection that waits for messages is dropped after it and a second.
        "health_check_interval": 25,
    }


def impatient(settings: Settings) -> dict[str, Any]:
    """Return the options of a connection that must not keep anyone waiting."""
    if is_rabbit(settings):
        return {**_transport(settings), "read_timeout": 3, "write_timeout": 3}
    return {**_transport(settings), "socket_timeout": 3, "socket_connect_timeout": 3}
