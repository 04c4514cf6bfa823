"""Approval gates: a wait for a decision that holds."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django_workflows import payloads
from django_workflows.definitions import MAX_GATE, check_name
from django_workflows.exceptions import StepFailed
from django_workflows.runtime.passes import Pass
from django_workflows.runtime.waits import Wait, fulfil, wait_seconds
from django_workflows.schemas import resolve_schema
from django_workflows.store import approvals, authority, messages
from django_workflows.values import Approval


def wait_for_approval(
    p: Pass,
    gate: str,
    *,
    timeout: dt.timedelta | float | None,
    permission: Any,
    approvers: Any,
    form: Any,
    title: str,
    description: str,
    exclude: Any,
) -> Approval | None:
    """`ctx.wait_for_approval`."""
    p.guard()
    gate = check_name(gate, "A gate's name", limit=MAX_GATE)
    seconds = wait_seconds(timeout)
    convert = resolve_schema(form)
    asked = {
        "permission": authority.permission_text(permission),
        "approvers": authority.people(approvers, "approvers", groups=True),
        "exclude": authority.people(exclude, "exclude", groups=False),
        "form": "" if form is None else authority.reference(form, "form"),
        "title": str(title),
        "description": str(description),
    }
    names = (approvals.message_name(gate),)
    wait = Wait(
        kind="approval",
        name=gate,
        names=names,
        details={"gate": asked},
        take=lambda entry, nothing: approvals.take(
            p.claim, entry, nothing, approvals.asked_of(entry.details)
        ),
        look=lambda entry: messages.is_there(p.run_id, names),
    )
    entry, _is_new = fulfil(p, wait, seconds)
    if entry.result is None:
        return None
    try:
        return approvals.to_approval(payloads.decode(entry.result), convert)
    except Exception as error:
        text = f"the decision's data doesn't fit the form: {error}"
        raise StepFailed(gate, type(error).__name__, text, entry.attempts) from error
