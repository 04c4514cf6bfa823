"""Delete ended runs with what belongs to them, in batches that hold nobody up."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django_workflows.db import retention as sql
from django_workflows.db.dialects import dialect
from django_workflows.store import locks
from django_workflows.telemetry import emit


def purge_batch(
    older_than: timedelta, *, after: UUID | None, statuses: list[str], limit: int
) -> tuple[int, UUID | None]:
    """Delete up to `limit` runs that ended longer ago, in one transaction.

    A child whose parent is still open stays: its result may not have been taken yet.

    Args:
        after: the last run looked at by the batch before.

    Returns: number of runs deleted, and the last run looked at; None when there are no more.
    """
    d = dialect()
    found = sql.ended_before(
        d, older_than.total_seconds(), after=after, statuses=statuses, limit=limit
    )
    if not found:
        return 0, None
    with locks.transaction(d):
        locked = sql.lock(d, found)
        sql.delete(d, locked)
    emit("runs.purged", count=len(locked))
    return len(locked), found[-1]
