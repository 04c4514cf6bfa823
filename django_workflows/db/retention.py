"""Statements that find and delete ended runs."""

from __future__ import annotations

from uuid import UUID

from django_workflows.db.base import Dialect, Later

# Ids are in the order of creation, and a run ends after it was created: the primary key is all
# the index this needs, and `after` keeps a batch from walking past what earlier ones have seen.
_ENDED = """
SELECT r.id FROM {run} r LEFT JOIN {run} p ON p.id = r.parent_id
WHERE r.id > %(after)s AND r.finished_at < {later[ago]} AND r.status {any[statuses]}
    AND (p.id IS NULL OR p.status NOT IN {open})
ORDER BY r.id LIMIT %(limit)s
"""
# Nobody sends to an ended run any more, so this waits for nothing; who reads it is skipped.
_LOCK = "SELECT id FROM {run} WHERE id {any[runs]} ORDER BY id {for_update} {skip_locked}"
_DELETE = (
    "DELETE FROM {message} WHERE run_id {any[runs]}",
    "DELETE FROM {signal} WHERE run_id {any[runs]}",
    "DELETE FROM {step} WHERE run_id {any[runs]}",
    "UPDATE {run} SET parent_id = NULL WHERE parent_id {any[runs]}",
    "UPDATE {run} SET rerun_of_id = NULL WHERE rerun_of_id {any[runs]}",
    "DELETE FROM {run} WHERE id {any[runs]}",
)


def ended_before(
    d: Dialect, seconds: float, *, after: UUID | None, statuses: list[str], limit: int
) -> list[UUID]:
    """Runs that ended longer ago, by id."""
    rows = d.fetch(
        _ENDED,
        ago=Later(-seconds),
        after=after or UUID(int=0),
        statuses=statuses,
        limit=limit,
    )
    return [d.uid(row[0]) for row in rows]


def lock(d: Dialect, run_ids: list[UUID]) -> list[UUID]:
    """Those of the runs that could be locked."""
    return [d.uid(row[0]) for row in d.fetch(_LOCK, runs=run_ids)]


def delete(d: Dialect, run_ids: list[UUID]) -> None:
    """Delete locked runs and their rows."""
    for statement in _DELETE:
        d.execute(statement, runs=run_ids)
