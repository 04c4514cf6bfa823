"""How a run ends, whoever ends it: children close, the parent is told.

The parent's row is always locked before its children's. A child that ends doesn't touch its
parent: it says so on its own row, and the router, which locks the parent first, wakes it.
"""

from __future__ import annotations

from uuid import UUID

from django_workflows import payloads
from django_workflows.db import runs as sql
from django_workflows.db.base import Dialect
from django_workflows.db.postgresql import CHILD
from django_workflows.querysets import OPEN_STATUSES
from django_workflows.telemetry import emit


def canceled_error(reason: str) -> str:
    """The error of a canceled run, encoded."""
    text = payloads.clean_text(reason) or "canceled"
    return payloads.dump_error({"type": "Canceled", "message": text, "traceback": ""})


def end_run(d: Dialect, run_id: UUID, *, status: str, error: str | None) -> None:
    """End a run that the caller has locked FOR UPDATE and found open."""
    parent_id = sql.end(d, run_id, status=status, error=error)
    if parent_id is not None:
        tell_parent(d)
    close_children(d, run_id)
    emit("run.ended", run=run_id, status=status)


def tell_parent(d: Dialect) -> None:
    """Have a worker look for parents of ended children, once this transaction commits."""
    sql.notify(d, CHILD, "")


def close_children(d: Dialect, parent_id: UUID) -> None:
    """Cancel the open children that were started to end with their parent."""
    for child_id in sql.children_to_close(d, parent_id):
        row = sql.lock(d, child_id, "for_update")
        if row is not None and row[1] in OPEN_STATUSES:
            error = canceled_error(f"its parent, run {parent_id}, has ended")
            end_run(d, child_id, status="canceled", error=error)
