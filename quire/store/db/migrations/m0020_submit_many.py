"""Adds the procedure that stores plain jobs, one or many, in one round trip.

The procedure of migration 18 stays for earlier releases.
"""

import sqlalchemy as sa

from quire.store.db import dialect

OLDEST = 19
_PROCEDURE = """
CREATE OR REPLACE PROCEDURE quire_submit_jobs(
    for_tenant text, for_user text, of_kind text, at_priority integer, costs float8,
    for_platform text, for_account text, most_attempts integer, with_key text, with_hash text,
    by_person boolean, from_origin text, with_payloads text, wall float8,
    INOUT made text DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE
    owner owners;
    about kinds;
    attempts integer;
    tag float8;
    payloads text[] := string_to_array(with_payloads, E'\\n');
    ids bigint[];
BEGIN
    -- Planned once a session: the general setting is a plan for each execution, and planning these
    -- statements, and the check of each foreign key, takes longer than running them.
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
    ids := array(SELECT nextval('jobs_id_seq') FROM generate_series(1, cardinality(payloads)));
    made := array_to_string(ids, ',');
    INSERT INTO submissions (owner_id, key, body_hash, job_ids, created_at)
        VALUES (owner.id, with_key, with_hash, '[' || made || ']', wall) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        made := NULL;
        RETURN;
    END IF;
    attempts := coalesce(most_attempts, about.max_attempts);
    INSERT INTO jobs (id, owner_id, kind, platform, account, state, priority, payload,
            tasks_blocked, tasks_ready, cost_total, max_attempts, created_at, origin)
        SELECT each.id, owner.id, of_kind, for_platform, for_account, 'pending', at_priority,
            each.payload, 0, 1, costs, attempts, wall, from_origin
        FROM unnest(ids, payloads) AS each (id, payload);
    tag := greatest(
        (SELECT max(t.fair_tag) FROM tasks t WHERE t.state = 'ready' AND t.owner_id = owner.id
            AND t.queue = about.queue AND t.priority = at_priority),
        (SELECT b.claimed_tag FROM bands b
            WHERE b.queue = about.queue AND b.priority = at_priority),
        0);
    INSERT INTO tasks (job_id, owner_id, kind, queue, state, priority, fair_tag, ready_at, cost,
            max_attempts, at_most_once)
        SELECT each.id, owner.id, of_kind, about.queue, 'ready', at_priority,
            tag + each.place * costs / owner.weight, wall, costs,
            CASE WHEN about.at_most_once THEN 1 ELSE attempts END, about.at_most_once
        FROM unnest(ids) WITH ORDINALITY AS each (id, place);
    COMMIT;
    PERFORM pg_notify('quire', '');
END $$
"""


def up(conn: sa.Connection) -> None:
    """Create the procedure; SQLite has no round trips to save."""
    if not dialect.is_sqlite(conn):
        conn.exec_driver_sql(_PROCEDURE)
