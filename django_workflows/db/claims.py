"""Statements of the worker: claim due runs, look what there is to do, take over, lease."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django_workflows.db.base import Dialect, Later, Row
from django_workflows.db.postgresql import CHANNEL
from django_workflows.db.routing import UNROUTED, unrouted_runs

_SET = """
UPDATE {run} SET status = 'running', claim_token = {uuid[token]}, claimed_by = {uuid[worker]},
    available_at = NULL, claim_count = claim_count + 1,
    attempts = CASE WHEN attempts = 0 THEN 1 ELSE attempts END,
    started_at = COALESCE(started_at, {now}), waiting_kind = '', waiting_for = '',
    waiting_since = NULL
WHERE """
_RETURNING = """
RETURNING id, workflow_id, workflow_name, version, queue_name, priority, input, attempts,
    claim_count, crashes, problem_count, parent_id, {epoch[deadline_at]}, {epoch_now}
"""
_DUE = "available_at <= {steady} AND (deadline_at IS NULL OR deadline_at > {steady})"
_KNOWN = "workflow_name || {separator} || version {any[pairs]}"

# Only the lanes that exist are visited, each by its own index range, so that neither runs that
# are scheduled for later nor those of other queues are walked past.
LANES = """
WITH RECURSIVE lanes (queue_name, priority) AS (
    (SELECT queue_name, priority FROM {run} WHERE available_at IS NOT NULL
     ORDER BY queue_name DESC, priority DESC LIMIT 1)
    UNION ALL
    SELECT n.queue_name, n.priority FROM lanes l CROSS JOIN LATERAL (
        SELECT r.queue_name, r.priority FROM {run} r
        WHERE r.available_at IS NOT NULL
            AND (r.queue_name, r.priority) < (l.queue_name, l.priority)
        ORDER BY r.queue_name DESC, r.priority DESC LIMIT 1) n
)
"""
_PICK = (
    LANES
    + """
SELECT due.id FROM lanes CROSS JOIN LATERAL (
    SELECT id, available_at FROM {run}
    WHERE queue_name = lanes.queue_name AND priority = lanes.priority AND """
    + _DUE
    + " AND "
    + _KNOWN
    + """
    ORDER BY available_at, id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED) due
WHERE %(every_queue)s OR lanes.queue_name {any[queues]}
ORDER BY lanes.priority DESC, due.available_at, due.id LIMIT %(limit)s"""
)
_PICK_SQLITE = (
    "SELECT id FROM {run} WHERE "
    + _DUE
    + " AND "
    + _KNOWN
    + " AND (%(every_queue)s OR queue_name {any[queues]})"
    + " ORDER BY priority DESC, available_at, id LIMIT %(limit)s"
)
_CLAIM_BATCH = {
    "postgresql": _SET + "id = ANY(ARRAY(" + _PICK + "))" + _RETURNING,
    "sqlite": _SET + "id IN (" + _PICK_SQLITE + ")" + _RETURNING,
}
# Claims at once what a message wakes. One statement may lock and look here because it marks
# nothing: the row is the newest, a message of the snapshot that was consumed since costs an idle
# pass, and what this statement doesn't see stays unrouted for the router.
_PICK_WAITING = """
SELECT r.id FROM {run} r WHERE r.id IN (UNROUTED) AND r.status = 'suspended'
    AND (r.deadline_at IS NULL OR r.deadline_at > {steady}) AND r.KNOWN
    AND (%(every_queue)s OR r.queue_name {any[queues]})
    AND EXISTS (SELECT 1 FROM {message} m WHERE m.run_id = r.id AND NOT m.routed
        AND m.consumed_by_id IS NULL AND {waits_for[m.name]})
ORDER BY r.priority DESC, r.id LIMIT %(limit)s FOR NO KEY UPDATE OF r SKIP LOCKED
""".replace("UNROUTED", unrouted_runs("message")).replace("KNOWN", _KNOWN)
_CLAIM_WAITING = _SET + "id = ANY(ARRAY(" + _PICK_WAITING + "))" + _RETURNING
_CLAIM_ONE = _SET + "id = %(run)s AND " + _DUE + _RETURNING


def _registered(pairs: list[tuple[str, str]]) -> list[str]:
    return [f"{name}\x1f{version}" for name, version in pairs]


def claim_batch(
    d: Dialect,
    *,
    token: UUID,
    worker: UUID | None,
    pairs: list[tuple[str, str]],
    queues: list[str],
    limit: int,
) -> list[Row]:
    """Claim up to `limit` due runs of these workflows, more urgent and longer due ones first."""
    return d.fetch(
        _CLAIM_BATCH[d.vendor],
        token=token,
        worker=worker,
        pairs=_registered(pairs),
        queues=queues,
        every_queue=not queues,
        limit=limit,
    )


def claim_waiting(
    d: Dialect,
    *,
    token: UUID,
    worker: UUID | None,
    pairs: list[tuple[str, str]],
    queues: list[str],
    limit: int,
) -> list[Row]:
    """Claim runs that are parked on a message that no router has seen (PostgreSQL)."""
    return d.fetch(
        _CLAIM_WAITING,
        token=token,
        worker=worker,
        pairs=_registered(pairs),
        queues=queues,
        every_queue=not queues,
        limit=limit,
    )


def claim_one(d: Dialect, run_id: UUID, *, token: UUID, worker: UUID | None) -> Row | None:
    """Claim this run if it is due."""
    return d.one(_CLAIM_ONE, run=run_id, token=token, worker=worker)


# What an idle worker asks at each poll, in one statement: seconds until the next run is due,
# messages that no router has seen, runs of dead workers, runs past their deadline.
_LOOK = """
SELECT {epoch_now},
    NEXT,
    UNROUTED,
    EXISTS (SELECT 1 FROM {run} r LEFT JOIN {worker} w ON w.id = r.claimed_by
        WHERE r.status = 'running' AND r.claimed_by IS NOT NULL
            AND (w.id IS NULL OR w.lease_until < {steady})),
    (SELECT {epoch[min(deadline_at)]} FROM {run}
        WHERE status IN {open} AND deadline_at IS NOT NULL)
""".replace("UNROUTED", ",\n    ".join(UNROUTED.values()))
# The first of each lane, so that this needs no index of its own, which every start would pay for.
_NEXT = {
    "postgresql": "("
    + LANES
    + """SELECT {epoch[min(first.available_at)]} FROM lanes CROSS JOIN LATERAL (
        SELECT r.available_at FROM {run} r WHERE r.queue_name = lanes.queue_name
            AND r.priority = lanes.priority AND r.available_at IS NOT NULL
        ORDER BY r.available_at LIMIT 1) first)""",
    "sqlite": "(SELECT min(available_at) FROM {run} WHERE available_at IS NOT NULL)",
}
_LOOKS = {vendor: _LOOK.replace("NEXT", text) for vendor, text in _NEXT.items()}


def look(d: Dialect) -> Row:
    """(now, next due, unrouted sources, dead claims?, next deadline), times in epochs."""
    row = d.one(_LOOKS[d.vendor])
    assert row is not None
    now, due, *found, dead, deadline = row
    unrouted = [source for source, is_there in zip(UNROUTED, found, strict=True) if is_there]
    return (d.epoch(now), d.epoch(due), unrouted, bool(dead), d.epoch(deadline))


_DEAD = """
SELECT r.id, r.claim_token, r.crashes FROM {run} r LEFT JOIN {worker} w ON w.id = r.claimed_by
WHERE r.status = 'running' AND r.claimed_by IS NOT NULL
    AND (w.id IS NULL OR w.lease_until < {steady})
ORDER BY r.id LIMIT %(limit)s
"""
_OVERDUE = """
SELECT id FROM {run} WHERE status IN {open} AND deadline_at IS NOT NULL
    AND deadline_at <= {steady} ORDER BY deadline_at LIMIT %(limit)s
"""
# Due at once for whoever claims next; the crash counts until a new record is made.
_TAKE_OVER = """
UPDATE {run} SET status = 'pending', available_at = {now}, claim_token = NULL, claimed_by = NULL,
    crashes = crashes + 1
WHERE id = (SELECT id FROM {run} WHERE id = %(run)s AND claim_token = %(token)s
        AND status = 'running' {for_no_key_update} {skip_locked})
    AND NOT EXISTS (SELECT 1 FROM {worker} w WHERE w.id = claimed_by
        AND w.lease_until >= {steady})
"""


def dead(d: Dialect, limit: int = 100) -> list[Row]:
    """(run, token, crashes) of runs whose worker's lease is over or whose worker is gone."""
    rows = d.fetch(_DEAD, limit=limit)
    return [(d.uid(run), d.uid(token), crashes) for run, token, crashes in rows]


def take_over(d: Dialect, run_id: UUID, token: UUID) -> bool:
    """Make a dead worker's run due again; its old token is worthless from here on."""
    return d.execute(_TAKE_OVER, run=run_id, token=token) == 1


def count_crash(d: Dialect, run_id: UUID) -> None:
    """Count the crash for which a run is given up, which no take-over counts."""
    d.execute("UPDATE {run} SET crashes = crashes + 1 WHERE id = %(run)s", run=run_id)


_CLAIMED_BY = """
SELECT id, claim_token FROM {run} WHERE status = 'running' AND claimed_by = %(worker)s ORDER BY id
"""
_RELEASE = """
UPDATE {run} SET status = 'pending', available_at = {now}, claim_token = NULL, claimed_by = NULL
WHERE id = (SELECT id FROM {run} WHERE id = %(run)s AND claim_token = %(token)s
    AND status = 'running' {for_no_key_update} {skip_locked})
"""


def claimed_by(d: Dialect, worker_id: UUID) -> list[tuple[UUID, UUID]]:
    """(run, token) of what a worker has claimed, by the database."""
    rows = d.fetch(_CLAIMED_BY, worker=worker_id)
    return [(d.uid(run), d.uid(token)) for run, token in rows]


def release(d: Dialect, run_id: UUID, token: UUID) -> bool:
    """Make a claimed run due again, unless it is locked or claimed anew."""
    return d.execute(_RELEASE, run=run_id, token=token) == 1


def overdue(d: Dialect, limit: int = 100) -> list[UUID]:
    """Open runs past their deadline."""
    return [d.uid(row[0]) for row in d.fetch(_OVERDUE, limit=limit)]


# Again where the answer to the first try was lost with its connection.
_REGISTER = """
INSERT INTO {worker} (id, name, host, pid, version, queues, workflows, doing, started_at,
    heartbeat_at, lease_until)
VALUES (%(worker)s, %(name)s, %(host)s, %(pid)s, %(version)s, %(queues)s, %(workflows)s, '[]',
    {now}, {now}, {later[lease]})
ON CONFLICT (id) DO UPDATE SET heartbeat_at = {now}, lease_until = {later[lease]}
"""
_RENEW = """
UPDATE {worker} SET heartbeat_at = {now}, lease_until = {later[lease]}, doing = %(doing)s
WHERE id = %(worker)s RETURNING {told}
"""
_STOP = """
UPDATE {worker} SET heartbeat_at = {now}, lease_until = {now}, stopped_at = {now}, doing = '[]'
WHERE id = %(worker)s
"""


def register_worker(d: Dialect, worker_id: UUID, *, lease: float, **columns: Any) -> None:
    """Insert the worker's row, whose lease covers every run that it claims."""
    d.execute(_REGISTER, worker=worker_id, lease=Later(lease), **columns)


def renew(d: Dialect, worker_id: UUID, *, lease: float, doing: str) -> bool:
    """Put the lease off by `lease` seconds; False when the row is gone."""
    params = {"worker": worker_id, "lease": Later(lease), "doing": doing}
    if d.notifies:
        params["channel"] = own_channel(worker_id)
    return d.one(_RENEW, **params) is not None


def own_channel(worker_id: UUID) -> str:
    """Where a worker's heartbeat tells its own listener that notifications get through."""
    return f"{CHANNEL}_{worker_id.hex}"


def stop_worker(d: Dialect, worker_id: UUID) -> None:
    """End the worker's lease: whatever it still claims is up for take-over."""
    d.execute(_STOP, worker=worker_id)
