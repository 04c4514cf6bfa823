"""Statements on signals: find who waits, deliver, take."""

from __future__ import annotations

from uuid import UUID

from django_workflows.db.base import Dialect, Row

# FOR SHARE: unlike a message, a signal must not be delivered to a wait whose time-out is being
# recorded. Workers skip such a run when they claim; they never wait for a caller's transaction.
_WAITING = """
SELECT id FROM {run} WHERE waiting_kind = 'signal' AND waiting_for = %(names)s
    AND status = 'suspended' ORDER BY id {for_share}
"""
_DELIVER = """
INSERT INTO {signal} (name, data, run_id, step_id, idempotency_key, routed, created_at)
SELECT {text[name]}, {text[data]}, s.run_id, s.id, {text[key]}, {untrue}, {now}
FROM {step} s JOIN {run} r ON r.id = s.run_id
WHERE s.run_id {any[runs]} AND s.kind = 'signal' AND s.status = 'waiting'
    AND r.waiting_kind = 'signal' AND r.waiting_for = %(names)s
ON CONFLICT (step_id) DO NOTHING
RETURNING run_id, step_id
"""
_KNOWN = """
SELECT run_id FROM {signal} WHERE name = %(name)s AND idempotency_key = %(key)s ORDER BY step_id
"""
_OF_STEP = """
SELECT id, name, data, idempotency_key, {epoch[created_at]} FROM {signal} WHERE step_id = %(step)s
"""


def lock_waiting(d: Dialect, names: str) -> list[UUID]:
    """Lock the runs that are parked on a signal, in id order."""
    return [d.uid(row[0]) for row in d.fetch(_WAITING, names=names)]


def deliver(
    d: Dialect, run_ids: list[UUID], *, names: str, name: str, data: str, key: str | None
) -> list[UUID]:
    """Give the signal to each waiting step that has none yet; the runs reached, oldest wait
    first."""
    rows = d.fetch(_DELIVER, runs=run_ids, names=names, name=name, data=data, key=key)
    return [d.uid(run) for run, _step in sorted(rows, key=lambda row: row[1])]


def delivered(d: Dialect, name: str, key: str) -> list[UUID]:
    """The runs that a signal of this key reached."""
    return [d.uid(row[0]) for row in d.fetch(_KNOWN, name=name, key=key)]


def of_step(d: Dialect, step_id: int) -> Row | None:
    """What a step was given: (id, name, data, key, epoch)."""
    row = d.one(_OF_STEP, step=step_id)
    return None if row is None else (*row[:4], d.epoch(row[4]))
