"""Start child runs and await their results."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django_workflows import payloads
from django_workflows.db.records import Entry
from django_workflows.definitions import WorkflowDefinition, as_seconds, check_name
from django_workflows.exceptions import ChildFailed, StepFailed, WorkflowAlreadyStarted
from django_workflows.models import ParentClose
from django_workflows.registry import registry
from django_workflows.runtime.passes import Pass
from django_workflows.runtime.step_calls import failure
from django_workflows.runtime.waits import Wait, fulfil
from django_workflows.store import children
from django_workflows.store.runs import NewRun


def _definition(workflow: Any) -> WorkflowDefinition:
    if isinstance(workflow, str):
        return registry.get(workflow)
    definition = getattr(workflow, "definition", workflow)
    if not isinstance(definition, WorkflowDefinition):
        raise TypeError(f"A child must be a workflow or its name, not {type(workflow).__name__}.")
    return definition


def start_child(
    p: Pass,
    workflow: Any,
    given: Mapping[str, Any] | None,
    *,
    workflow_id: str | None,
    timeout: dt.timedelta | float | None,
    on_parent_close: str,
) -> UUID:
    """`ctx.start_child`; the child's run id."""
    p.guard()
    definition = _definition(workflow)
    if on_parent_close not in ParentClose.values:
        choices = ", ".join(ParentClose.values)
        raise ValueError(f"on_parent_close must be one of {choices}; got {on_parent_close!r}.")
    bound = definition.bind((), {} if given is None else dict(given))
    limit = definition.timeout if timeout is None else as_seconds(timeout, "A child's timeout")
    entry = p.recorded("child", definition.name)
    if entry is None:
        entry = p.history.new("child", definition.name, p.time())
        if workflow_id is None:
            workflow_id = children.derived_id(p.run_id, entry.seq)
        new = NewRun(
            workflow_name=definition.name,
            version=definition.version,
            queue_name=definition.queue_name,
            input=payloads.encode(bound, "input"),
            workflow_id=check_name(workflow_id, "A workflow id", limit=255),
            priority=p.claim.priority,
            deadline_in=limit,
            parent_id=p.run_id,
            on_parent_close=on_parent_close,
        )
        _start(p, entry, new)
    if entry.status == "failed":
        raise failure(entry)
    return UUID(payloads.load_json(entry.details)["child"])


def _start(p: Pass, entry: Entry, new: NewRun) -> None:
    p.before_effect()
    try:
        status: str = p.stored(lambda: children.start(p.claim, entry, new))
    except WorkflowAlreadyStarted as taken:
        entry.status, entry.error = "failed", payloads.dump_error(payloads.encode_error(taken))
        p.record(entry)
        return
    p.check_status(status)
    p.keep(entry, status)


def child_result(p: Pass, workflow: Any, child_id: UUID) -> Any:
    """`handle.result()`: what the child returned; the parent is parked meanwhile.

    Raises:
        ChildFailed: it failed or was canceled, by whatever path.
    """
    p.guard()
    wait = Wait(
        kind="child_result",
        name=_definition(workflow).name,
        names=(str(child_id),),
        details={"child": str(child_id)},
        take=lambda entry, nothing: children.take(p.claim, entry, nothing, child_id),
        look=lambda entry: children.has_ended(child_id),
    )
    try:
        entry, _is_new = fulfil(p, wait, None)
    except StepFailed:
        entry = p.history.last
    if entry.status == "failed":
        status = payloads.load_json(entry.details)["status"]
        raise ChildFailed(child_id, status, payloads.load_error(entry.error or "{}"))
    return payloads.decode(entry.result or "null")
