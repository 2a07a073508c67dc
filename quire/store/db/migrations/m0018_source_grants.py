"""Stores where a job was submitted, which kinds are internal, and what tenants may ingest.

Older releases would run jobs without judging their sources, so they have to stop.
"""

import sqlalchemy as sa

from quire.model.records import LOCAL
from quire.store.db import dialect
from quire.store.db.schema.access import source_grants, users
from quire.store.db.schema.queue import jobs, kinds

_TYPES = "text, text, text, integer, float8, text, text, text, integer, text, text, boolean, float8"
_EARLIER = (
    f"DROP PROCEDURE IF EXISTS quire_submit_job({_TYPES}, bigint)",
    f"DROP FUNCTION IF EXISTS quire_submit({_TYPES})",
)
_PROCEDURE = """
CREATE OR REPLACE PROCEDURE quire_submit_job(
    for_tenant text, for_user text, of_kind text, at_priority integer, costs float8,
    with_payload text, for_platform text, for_account text, most_attempts integer,
    with_key text, with_hash text, by_person boolean, from_origin text,
    wall float8, INOUT job bigint DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE
    owner owners;
    about kinds;
    attempts integer;
    tag float8;
BEGIN
    -- Planned once a session: the general setting is a plan for each execution, and planning these
    -- statements takes longer than running them.
    PERFORM set_config('plan_cache_mode', 'force_generic_plan', true);
    SELECT * INTO owner FROM owners o WHERE o.tenant = for_tenant AND o.user_name = for_user;
    SELECT * INTO about FROM kinds k WHERE k.name = of_kind;
    IF owner.id IS NULL OR about.name IS NULL OR about.paused_at IS NOT NULL
        OR (by_person AND owner.policy <> 'all')
        OR (coalesce(about.is_internal, false) AND from_origin <> 'local')
    THEN
        RETURN;
    END IF;
    wall := coalesce(wall, extract(epoch FROM clock_timestamp()));
    job := nextval('jobs_id_seq');
    INSERT INTO submissions (owner_id, key, body_hash, job_ids, created_at)
        VALUES (owner.id, with_key, with_hash, '[' || job || ']', wall) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        job := NULL;
        RETURN;
    END IF;
    attempts := coalesce(most_attempts, about.max_attempts);
    INSERT INTO jobs (id, owner_id, kind, platform, account, state, priority, payload,
            tasks_blocked, tasks_ready, cost_total, max_attempts, created_at, origin)
        VALUES (job, owner.id, of_kind, for_platform, for_account, 'pending', at_priority,
            with_payload, 0, 1, costs, attempts, wall, from_origin);
    tag := greatest(
        (SELECT max(t.fair_tag) FROM tasks t WHERE t.state = 'ready' AND t.owner_id = owner.id
            AND t.queue = about.queue AND t.priority = at_priority),
        (SELECT b.claimed_tag FROM bands b
            WHERE b.queue = about.queue AND b.priority = at_priority),
        0) + costs / owner.weight;
    INSERT INTO tasks (job_id, owner_id, kind, queue, state, priority, fair_tag, ready_at, cost,
            max_attempts, at_most_once)
        VALUES (job, owner.id, of_kind, about.queue, 'ready', at_priority, tag, wall, costs,
            CASE WHEN about.at_most_once THEN 1 ELSE attempts END, about.at_most_once);
    COMMIT;
    PERFORM pg_notify('quire', '');
END $$
"""


def up(conn: sa.Connection) -> None:
    """Add the columns and the table; without users of the API, all jobs are the operator's."""
    dialect.add_columns(conn, jobs.c.origin, kinds.c.is_internal)
    source_grants.create(conn, checkfirst=True)
    if conn.scalar(sa.select(users.c.id).limit(1)) is None:
        is_ingest = jobs.c.kind == "ingest"
        conn.execute(sa.update(jobs).where(is_ingest).values(origin=LOCAL))
    if not dialect.is_sqlite(conn):
        for statement in (*_EARLIER, _PROCEDURE):
            conn.exec_driver_sql(statement)
