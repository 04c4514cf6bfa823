"""A new run that goes on where an ended one failed."""

from __future__ import annotations

from uuid import UUID

from django_workflows import payloads
from django_workflows.db import records
from django_workflows.db.base import Dialect
from django_workflows.db.dialects import dialect
from django_workflows.db.records import Entry
from django_workflows.exceptions import WorkflowError
from django_workflows.models import WorkflowRun
from django_workflows.store import locks, runs
from django_workflows.store.leases import reload_history


def rerun(run_id: UUID, *, from_start: bool) -> WorkflowRun:
    """Start a run with the input of an ended one, and with its completed steps.

    Raises:
        RunNotFound: there is no such run.
        WorkflowError: it hasn't ended.
        WorkflowAlreadyStarted: an open run has its workflow id.
    """
    d = dialect()
    old = runs.get(run_id)
    if not old.is_finished:
        raise WorkflowError(
            f"Run {run_id} is still {old.status!r}; only an ended run can be rerun. "
            "Cancel it first, or wait for its end."
        )
    has_own_id = old.workflow_id != str(old.pk)
    lasted = None if old.deadline_at is None else old.deadline_at - old.created_at
    new = runs.NewRun(
        workflow_name=old.workflow_name,
        version=old.version,
        queue_name=old.queue_name,
        input=payloads.encode(old.input, "input"),
        workflow_id=old.workflow_id if has_own_id else None,
        priority=old.priority,
        deadline_in=None if lasted is None else lasted.total_seconds(),
        subject_key=(old.subject_type, old.subject_pk),
        id_conflict="raise",
        id_reuse="allow",
        rerun_of_id=old.pk,
        state="{}" if from_start else payloads.encode(old.state, "state"),
    )
    with locks.transaction(d):
        run = runs.start(new)
        if not from_start:
            _copy(d, old, run)
    return run


def _copy(d: Dialect, old: WorkflowRun, new: WorkflowRun) -> None:
    entries = sorted(reload_history(old.pk), key=lambda entry: entry.seq)
    records.copy(d, old.pk, new.pk, before=_cut(old, entries))


def _cut(old: WorkflowRun, entries: list[Entry]) -> int:
    """Position from which the new run is on its own.

    The failed step that failed the run, with whatever came after it (a compensation); where the
    body failed by itself, failures that it had dealt with stay dealt with.
    """
    settled = [entry.status in ("completed", "failed") for entry in entries]
    end = settled.index(False) if False in settled else len(entries)
    failed = [n for n in range(end) if entries[n].status == "failed"]
    by_step = (old.error or {}).get("type") in ("StepFailed", "ChildFailed")
    if failed and (by_step or failed[-1] == end - 1):
        end = failed[-1]
        if entries[end].kind == "child_result":
            child = payloads.load_json(entries[end].details)["child"]
            starts = (n for n in range(end) if _starts(entries[n], child))
            end = next(starts, end)
    return entries[end].seq if end < len(entries) else len(entries)


def _starts(entry: Entry, child: str) -> bool:
    return entry.kind == "child" and payloads.load_json(entry.details).get("child") == child
