"""A new run that goes on where an ended one failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django_workflows import payloads
from django_workflows.db import records
from django_workflows.db.base import Dialect
from django_workflows.db.dialects import dialect
from django_workflows.db.records import Entry
from django_workflows.exceptions import WorkflowError
from django_workflows.models import WorkflowRun, WorkflowStep
from django_workflows.store import locks, runs
from django_workflows.store.children import derived_id
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
    with locks.transaction(d):
        return _again(d, old, from_start=from_start)


def _again(d: Dialect, old: WorkflowRun, *, from_start: bool, **changes: Any) -> WorkflowRun:
    has_own_id = old.workflow_id != str(old.pk)
    lasted = None if old.deadline_at is None else old.deadline_at - old.created_at
    like_old = runs.NewRun(
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
    run = runs.start(replace(like_old, **changes))
    if not from_start:
        entries = sorted(reload_history(old.pk), key=lambda entry: entry.seq)
        before = _cut(old, entries)
        records.copy(d, old.pk, run.pk, before=before)
        _take_on_children(d, old, run, [entry for entry in entries if entry.seq < before])
    return run


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
    return entries[end].seq if end < len(entries) else len(entries)


def _take_on_children(d: Dialect, old: WorkflowRun, new: WorkflowRun, entries: list[Entry]) -> None:
    """Give the new run the children whose start it has copied, but not their outcome.

    A child that goes on tells its new parent of its end; for one that ended without a result,
    by its own failure or closed with the old run, a rerun of it takes its place.
    """
    results = {_child(entry) for entry in entries if entry.kind == "child_result"}
    for entry in entries:
        if (entry.kind, entry.status) == ("child", "completed") and _child(entry) not in results:
            _take_on(d, old, new, entry)


def _take_on(d: Dialect, old: WorkflowRun, new: WorkflowRun, entry: Entry) -> None:
    found = WorkflowRun.objects.using(d.alias).filter(pk=_child(entry))
    if found.open().filter(parent_id=old.pk).update(parent_id=new.pk):
        return
    child = found.first()
    if child is None or child.status == "completed":
        return
    is_derived = child.workflow_id == derived_id(old.pk, entry.seq)
    again = _again(
        d,
        child,
        # An open one goes on for another rerun of the old run; this one gets its own.
        from_start=not child.is_finished,
        workflow_id=derived_id(new.pk, entry.seq) if is_derived else child.workflow_id,
        parent_id=new.pk,
        on_parent_close=child.on_parent_close,
    )
    details = {**payloads.load_json(entry.details), "child": str(again.pk)}
    steps = WorkflowStep.objects.using(d.alias).filter(run_id=new.pk, seq=entry.seq)
    steps.update(details=payloads.dump_json(details))


def _child(entry: Entry) -> str:
    child: str = payloads.load_json(entry.details)["child"]
    return child
