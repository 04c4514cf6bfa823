"""How a run ends, whoever ends it."""

from __future__ import annotations

from uuid import UUID

from django_workflows.db import runs as sql
from django_workflows.db.base import Dialect
from django_workflows.telemetry import emit


def end_run(d: Dialect, run_id: UUID, *, status: str, error: str | None) -> None:
    """End a run that the caller has locked FOR UPDATE and found open."""
    sql.end(d, run_id, status=status, error=error)
    emit("run.ended", run=run_id, status=status)
