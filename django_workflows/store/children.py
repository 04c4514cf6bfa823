"""Start a child run with its parent's record, and take its outcome. Locks: `store/ending.py`."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from django_workflows import payloads
from django_workflows.db import records
from django_workflows.db import runs as sql
from django_workflows.db.dialects import dialect
from django_workflows.db.records import Entry
from django_workflows.querysets import OPEN_STATUSES
from django_workflows.store import locks, runs
from django_workflows.store.leases import Claim
from django_workflows.store.messages import Claimed, Taken
from django_workflows.store.runs import NewRun


def derived_id(parent_id: UUID, seq: int) -> str:
    """Workflow id of a child that was given none: at most one child whatever crashes in between."""
    return f"{parent_id}/{seq}"


def start(claim: Claim, entry: Entry, new: NewRun) -> str:
    """Start a child and record it in one commit, unless the parent has ended; its status then.

    Raises:
        LeaseLost: another worker has the parent; nothing was written.
        WorkflowAlreadyStarted: an open run has the child's workflow id.
    """
    d = dialect()
    with locks.fenced(d, claim.run_id, claim.token) as status:
        if status != "running":
            # A child of an ended parent would be closed by nobody.
            return status
        child = runs.start(replace(new, id_conflict="raise", id_reuse="allow"))
        entry.status = "completed"
        entry.details = payloads.dump_json({"child": str(child.pk), "workflow": new.workflow_name})
        records.write_new(d, claim.run_id, claim.token, entry)
    return status


def has_ended(child_id: UUID) -> bool:
    """Whether a child has ended; one that was deleted has."""
    outcome = sql.outcome(dialect(), child_id)
    return outcome is None or outcome[0] not in OPEN_STATUSES


def take(claim: Claim, entry: Entry, if_none: Entry | None, child_id: UUID) -> Claimed:
    """Complete or fail the waiting step with the child's outcome; nothing once the parent ended.

    Raises:
        LeaseLost: another worker has the parent; nothing was written.
    """
    d = dialect()
    with locks.fenced(d, claim.run_id, claim.token) as status:
        if status != "running":
            return Claimed(status, None)
        outcome = sql.outcome(d, child_id) or ("deleted", None, None)
        if outcome[0] in OPEN_STATUSES:
            if if_none is not None:
                records.write_new(d, claim.run_id, claim.token, if_none)
            return Claimed(status, None)
        child_status, result, error = outcome
        entry.wake_at = None
        entry.details = payloads.dump_json({"child": str(child_id), "status": child_status})
        if child_status == "completed":
            entry.status, entry.result = "completed", result
        else:
            gone = {"type": "RunNotFound", "message": "the child was deleted", "traceback": ""}
            entry.status, entry.error = "failed", error or payloads.dump_error(gone)
        records.write_new(d, claim.run_id, claim.token, entry)
    return Claimed(status, Taken(0, entry.name, result or "null", None, 0.0))
