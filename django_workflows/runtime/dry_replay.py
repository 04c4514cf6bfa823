"""Replay a recorded history against the code as it stands, without writing anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NoReturn
from uuid import UUID, uuid4

from django_workflows import payloads
from django_workflows.context import WorkflowContext
from django_workflows.db.records import Entry
from django_workflows.definitions import WorkflowDefinition
from django_workflows.exceptions import WorkflowSuspended
from django_workflows.models import WorkflowRun
from django_workflows.runtime.attempts import FAILURES
from django_workflows.runtime.calls import RunCalls
from django_workflows.runtime.history import History
from django_workflows.runtime.passes import Pass, Reason
from django_workflows.store.leases import Claim, reload_history

FORMAT = 1


class DryPass(Pass):
    """A pass that ends where the record does."""

    def recorded(self, kind: str, name: str) -> Entry:
        entry = super().recorded(kind, name)
        if entry is None or entry.status not in ("completed", "failed"):
            raise self.interrupt(Reason.RECORD_ENDED)
        return entry

    def stored(self, write: Callable[[], Any]) -> NoReturn:
        raise self.interrupt(Reason.RECORD_ENDED)

    def record(self, entry: Entry) -> NoReturn:
        raise self.interrupt(Reason.RECORD_ENDED)


def export(run: WorkflowRun) -> dict[str, Any]:
    """A run's input and record as plain JSON values, to keep beside the code's tests."""
    entries = sorted(reload_history(run.pk), key=lambda entry: entry.seq)
    return {
        "format": FORMAT,
        "run_id": str(run.pk),
        "workflow_id": run.workflow_id,
        "workflow": run.workflow_name,
        "version": run.version,
        "input": payloads.encode(run.input, "input"),
        "entries": [asdict(entry) for entry in entries],
    }


def check(definition: WorkflowDefinition, history: Mapping[str, Any]) -> None:
    """Replay an exported history.

    Raises:
        NonDeterminismError: the code asks for something else than the record holds.
        ValueError: the history is of another format.
    """
    if history.get("format") != FORMAT:
        raise ValueError(
            f"This history is of format {history.get('format')!r}, not {FORMAT}. Export it again."
        )
    entries = [Entry(**entry) for entry in history["entries"]]
    p = DryPass(_claim(history), History(entries))
    try:
        given = payloads.decode(history["input"])
        definition.fn(WorkflowContext(RunCalls(p)), **given)
    except WorkflowSuspended:
        pass
    except FAILURES:
        # The body's own error is its outcome; whether its record fits is asked below.
        pass
    if p.mismatch is not None:
        raise p.mismatch
    if p.interruption is None:
        p.history.check_finished()


def _claim(history: Mapping[str, Any]) -> Claim:
    return Claim(
        run_id=UUID(history["run_id"]),
        workflow_id=history["workflow_id"],
        name=history["workflow"],
        version=history["version"],
        queue_name="",
        priority=0,
        input=history["input"],
        attempts=1,
        claim_count=1,
        crashes=0,
        problem_count=0,
        parent=None,
        deadline_at=None,
        now=0.0,
        token=uuid4(),
    )
