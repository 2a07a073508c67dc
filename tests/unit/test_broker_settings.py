"""Every setting of Celery that Quire sets, for each broker, against what was found about them.

The findings are in section 2 of the research on queues; where a value differs from the one there,
a line says why.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from quire.celery import settings as celery_settings
from quire.settings import Settings, load

celery_defaults = pytest.importorskip("celery.app.defaults")

COMMON: dict[str, Any] = {
    "task_acks_late": True,
    "worker_prefetch_multiplier": 1,
    "task_reject_on_worker_lost": False,
    "task_retry_on_worker_lost": False,
    "task_acks_on_failure": True,
    "task_acks_on_timeout": True,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "worker_deduplicate_successful_tasks": False,
    "task_ignore_result": True,
    "result_backend": None,
    # There: by count and memory; here children of our own are replaced, not Celery's.
    "worker_max_tasks_per_child": None,
    "worker_max_memory_per_child": None,
    # There: per kind; here the parent of the child keeps the kind's limits, and kills.
    "task_time_limit": None,
    "task_soft_time_limit": None,
    # There: prefork by spawn; here the children are spawned by us and threads wait for them.
    "worker_pool": "threads",
    # There: 30 to 60 s; here our worker drains for QUIRE_STOP_GRACE before Celery ends.
    "worker_soft_shutdown_timeout": 0.0,
    "broker_connection_retry_on_startup": True,
    "broker_connection_retry": True,
    "broker_connection_max_retries": None,
    "broker_connection_timeout": 4,
    "broker_channel_error_retry": True,
    # No broker priorities (2.3) and no ETA (2.5).
    "task_default_priority": None,
    "task_queue_max_priority": None,
    "worker_eta_task_limit": 1,
    "task_default_queue": "quire.default",
    "task_default_routing_key": "quire.default",
    "task_create_missing_queues": False,
    "task_send_sent_event": True,
    "task_track_started": True,
    "worker_send_task_events": True,
    "worker_enable_remote_control": False,
    "event_queue_expires": 60,
    "event_queue_ttl": 10,
    "task_serializer": "json",
    "accept_content": ["json"],
    "enable_utc": True,
    "worker_concurrency": 3,
    "worker_hijack_root_logger": False,
}
REDIS: dict[str, Any] = {
    "broker_url": "redis://there:6379/0",
    "broker_heartbeat": 0,
    "worker_disable_prefetch": True,
    "broker_transport_options": {
        # There: 24 h, as an example for more than the longest task; the design says 12 h.
        "visibility_timeout": 12 * 3600,
        "socket_timeout": 30,
        "socket_connect_timeout": 4,
        "socket_keepalive": True,
        "health_check_interval": 25,
    },
}
RABBIT: dict[str, Any] = {
    "broker_url": "amqp://there:5672//",
    "broker_heartbeat": 20,
    "worker_disable_prefetch": False,
    "broker_transport_options": {"confirm_publish": True},
}
#: Of a queue of RabbitMQ (2.4); one of Redis has none.
QUORUM = {"x-queue-type": "quorum", "x-delivery-limit": 20, "x-consumer-timeout": 3_600_000}


def chosen(folder: Path, url: str) -> Settings:
    return load({}, home=folder, database_url="postgresql://x/y", broker_url=url, concurrency=3)


@pytest.mark.parametrize(("own", "arguments"), [(REDIS, None), (RABBIT, QUORUM)])
def test_celery_is_given_exactly_the_settings_that_were_decided_on(
    tmp_path: Path, own: dict[str, Any], arguments: dict[str, Any] | None
):
    settings = chosen(tmp_path, own["broker_url"])
    given = celery_settings.configuration(settings)
    queues = given.pop("task_queues")
    assert given == COMMON | own
    assert [(each.name, each.queue_arguments) for each in queues] == [("quire.default", arguments)]


@pytest.mark.parametrize("url", [REDIS["broker_url"], RABBIT["broker_url"]])
def test_celery_knows_each_of_them_and_has_it_in_force(tmp_path: Path, url: str):
    settings = chosen(tmp_path, url)
    given, conf = celery_settings.configuration(settings), celery_settings.make_app(settings).conf
    # A name that Celery does not know would be kept and do nothing.
    assert sorted(set(given) - set(celery_defaults.DEFAULTS)) == []
    queues = given.pop("task_queues")
    assert [each.name for each in conf.task_queues] == [each.name for each in queues]
    assert {name: conf[name] for name in given} == given


def test_each_of_them_has_a_comment_of_its_own_that_says_why():
    lines = inspect.getsource(celery_settings).splitlines()
    bare = [
        str(key.value)
        for node in ast.walk(ast.parse("\n".join(lines)))
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant) and not lines[key.lineno - 2].lstrip().startswith("#")
    ]
    # What a call for a moment changes has its reason in the docstring of the function.
    assert sorted(bare) == [
        "read_timeout", "socket_connect_timeout", "socket_timeout", "write_timeout",
    ]  # fmt: skip
