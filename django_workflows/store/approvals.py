"""Decide a gate: first decision wins. Stores through messages.

A decision is a message of a reserved name. What it decides, a gate's step or whatever gate of that
name comes next, is unique per run, so that of two at once the database lets one in. One that came
before its gate has its authority checked when the gate is reached, as it stands then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

from django_workflows import payloads
from django_workflows.db import inbox, records
from django_workflows.db.dialects import dialect
from django_workflows.db.records import Entry
from django_workflows.db.serial import serialize
from django_workflows.exceptions import ApprovalDenied, GateDecided, LeaseLost, RunFinished
from django_workflows.fields import to_local
from django_workflows.models import DECISION_PREFIX, WorkflowMessage, WorkflowStep
from django_workflows.schemas import resolve_schema
from django_workflows.store import authority, locks, messages, runs
from django_workflows.store.leases import Claim
from django_workflows.store.messages import Claimed, Taken
from django_workflows.telemetry import emit
from django_workflows.values import Approval, Person

Decision = dict[str, Any]


def message_name(gate: str) -> str:
    """Name of the messages that decide a gate."""
    return f"{DECISION_PREFIX}{gate}"


def decide(
    run_id: UUID,
    gate: str | WorkflowStep,
    *,
    approved: bool,
    by: Any,
    comment: str,
    data: Any,
    key: str | None,
) -> WorkflowMessage:
    """Store a decision on a gate, by its name or on the very step that a page has shown.

    Raises:
        RunNotFound, RunFinished, ApprovalDenied, GateDecided, PayloadError: nothing is stored.
        ValueError: the data doesn't fit the gate's form.
    """
    known = _known(run_id, key)
    if known is not None:
        return known
    decision: Decision = {
        "approved": approved,
        "by": {"pk": by.pk, "text": str(by)},
        "comment": payloads.clean_text(comment),
        "data": data,
    }
    message = None
    while message is None:
        message = _decide(run_id, gate, decision, by, key)
    return message


def _decide(
    run_id: UUID, gate: str | WorkflowStep, told: Decision, by: Any, key: str | None
) -> WorkflowMessage | None:
    """Look, check, and store; None where the gate has changed between look and store."""
    d = dialect()
    run = runs.get(run_id)
    is_page = isinstance(gate, WorkflowStep)
    name = gate.name if isinstance(gate, WorkflowStep) else gate
    step = _seen(run_id, gate)
    _refuse_decided(run, name, step, is_page=is_page)
    open_step = step if step is not None and step.status == "waiting" else None
    if open_step is not None:
        _check(run, open_step, by, told["data"], approved=told["approved"])
    decision = {
        **told,
        "decided_at": inbox.now(d),
        "gate": None if open_step is None else open_step.pk,
        "page": is_page,
    }
    decides = f"early:{name}" if open_step is None else f"gate:{open_step.pk}"
    text = payloads.encode(decision, "decision")
    with suppress(_Changed), locks.transaction(d):
        # An early decision and one on the open gate are two things to the database's constraint.
        serialize(d, f"gate:{run_id}:{name}")
        known = _known(run_id, key)
        if known is not None:
            return known
        _check_same(run_id, gate, step)
        if open_step is not None:
            _refuse_settled(run, open_step)
        message = messages.send(run_id, message_name(name), text, key, decides=decides)
        if message is None:
            raise GateDecided(name, standing(run_id, name))
        # The insert may have waited for a worker that took the first decision: what was early then
        # would be kept for a gate that never comes.
        _check_same(run_id, gate, step)
        emit("gate.decided", run=run_id, gate=name, approved=told["approved"])
        return message
    return None


class _Changed(Exception):
    """The gate isn't what it was; what was written is undone."""


def _check_same(run_id: UUID, gate: str | WorkflowStep, seen: WorkflowStep | None) -> None:
    again = _seen(run_id, gate)
    if (again and (again.pk, again.status)) != (seen and (seen.pk, seen.status)):
        raise _Changed


def _known(run_id: UUID, key: str | None) -> WorkflowMessage | None:
    known = None if key is None else messages.find(run_id, key)
    if known is not None:
        known.deduplicated = True
    return known


def _seen(run_id: UUID, gate: str | WorkflowStep) -> WorkflowStep | None:
    """The gate's step as it stands: the one shown on a page, else the newest of the name."""
    if not isinstance(gate, WorkflowStep):
        return latest(run_id, gate)
    return WorkflowStep.objects.using(dialect().alias).filter(pk=gate.pk).first()


def latest(run_id: UUID, gate: str) -> WorkflowStep | None:
    """The newest step of a gate, waiting or not."""
    steps = WorkflowStep.objects.using(dialect().alias)
    return steps.filter(run_id=run_id, kind="approval", name=gate).order_by("-seq").first()


def _refuse_decided(run: Any, name: str, step: WorkflowStep | None, *, is_page: bool) -> None:
    if step is not None and step.status != "waiting":
        approval = of_step(step)
        if approval is not None or is_page:
            raise GateDecided(name, approval)
    if run.is_finished:
        raise RunFinished(run.pk, run.status)


def _check(run: Any, step: WorkflowStep, by: Any, data: Any, *, approved: bool) -> None:
    """Refuse who may not decide, and what doesn't fit."""
    asked = asked_of(step.details)
    reason = authority.why_not(asked, by, run)
    if reason is not None:
        raise ApprovalDenied(step.name, reason)
    _check_form(asked, approved=approved, data=data)


def _refuse_settled(run: Any, step: WorkflowStep) -> None:
    """Refuse what another decision, that no worker has taken yet, has settled."""
    asked = asked_of(step.details)
    for message in pending(run.pk, step.name):
        decision = message.data
        if decision["gate"] == step.pk or why_refused(asked, step.pk, decision, run.pk) is None:
            raise GateDecided(step.name, to_approval(decision))


def _check_form(asked: dict[str, Any], *, approved: bool, data: Any) -> None:
    # Whoever rejects needn't fill in what only an approval can use.
    if asked.get("form") and (approved or data is not None):
        resolve_schema(authority.dereference(asked["form"]))(data)


def pending(run_id: UUID, gate: str) -> Any:
    """Decisions on a gate that no step has taken, oldest first."""
    return messages.listing(run_id, "pending", message_name(gate))


def standing(run_id: UUID, gate: str) -> Approval | None:
    """What stands for a gate: the pending decision, else the newest one taken."""
    waiting = pending(run_id, gate).first()
    if waiting is not None:
        return to_approval(waiting.data)
    step = latest(run_id, gate)
    return None if step is None else of_step(step)


def of_step(step: WorkflowStep) -> Approval | None:
    """The decision that a gate's step has taken; None for a timeout or an open gate."""
    return None if step.result is None else to_approval(step.result)


def to_approval(decision: Decision, convert: Callable[[Any], Any] | None = None) -> Approval:
    """A stored decision as users see it; a rejection may come without the form's data."""
    is_bare = not decision["approved"] and decision["data"] is None
    return Approval(
        approved=decision["approved"],
        by=Person(decision["by"]["pk"], decision["by"]["text"]),
        comment=decision["comment"],
        data=decision["data"] if convert is None or is_bare else convert(decision["data"]),
        decided_at=to_local(decision["decided_at"]),
    )


def asked_of(details: str) -> dict[str, Any]:
    """What a gate asks, from its step's details."""
    asked: dict[str, Any] = payloads.load_json(details).get("gate", {})
    return asked


def why_refused(
    asked: dict[str, Any], step_id: int | None, decision: Decision, run_id: UUID
) -> str | None:
    """Why a decision doesn't hold at this gate; None where it does."""
    if step_id is not None and decision["gate"] == step_id:
        return None
    if decision["page"]:
        return "it was made on the page of an earlier gate"
    user = authority.find_user(decision["by"]["pk"])
    if user is None:
        return f"{decision['by']['text']} is no longer a user"
    try:
        reason = authority.why_not(asked, user, runs.get(run_id))
        if reason is None:
            _check_form(asked, approved=decision["approved"], data=decision["data"])
    except Exception as error:
        return f"the check raised {type(error).__name__}: {error}"
    return reason


def take(claim: Claim, entry: Entry, if_none: Entry | None, asked: dict[str, Any]) -> Claimed:
    """Complete a gate's step with the oldest decision that holds; keep others as refused.

    Without one `if_none` is recorded instead, decided under the run's lock. A run that was ended
    meanwhile takes nothing.

    Raises:
        LeaseLost: another worker has the run; nothing was written.
    """
    d = dialect()
    names = (message_name(entry.name),)
    while True:
        row = inbox.oldest(d, claim.run_id, names)
        reason = None
        if row is not None:
            decision = payloads.decode(row[2])
            reason = why_refused(asked, entry.id, decision, claim.run_id)
        with locks.fenced(d, claim.run_id, claim.token) as status:
            if status != "running":
                return Claimed(status, None)
            again = inbox.oldest(d, claim.run_id, names)
            if again is None:
                if if_none is not None:
                    records.write_new(d, claim.run_id, claim.token, if_none)
                return Claimed(status, None)
            if row is None or again[0] != row[0]:
                continue
            taken = Taken(*row)
            if reason is None:
                return _accept(claim, entry, status, taken)
            _refuse(claim, entry, taken, reason)


def _refuse(claim: Claim, entry: Entry, taken: Taken, reason: str) -> None:
    d = dialect()
    if entry.id is None:
        entry.status = "waiting"
        records.write_new(d, claim.run_id, claim.token, entry)
    assert entry.id is not None
    inbox.refuse(d, taken.id, entry.id, reason)
    emit("gate.refused", run=claim.run_id, gate=entry.name, why=reason)


def _accept(claim: Claim, entry: Entry, status: str, taken: Taken) -> Claimed:
    d = dialect()
    asked = payloads.load_json(entry.details)
    entry.status, entry.result, entry.wake_at = "completed", taken.data, None
    entry.details = payloads.dump_json({**asked, **taken.details()})
    step_id = records.write_new(d, claim.run_id, claim.token, entry)
    others = inbox.pending_ids(d, claim.run_id, taken.name)
    for message_id in others:
        if message_id != taken.id:
            inbox.refuse(d, message_id, step_id, "another decision came first")
    if not inbox.mark_decision(d, taken.id, step_id):
        raise LeaseLost(claim.run_id)
    emit("gate.passed", run=claim.run_id, gate=entry.name)
    return Claimed(status, taken)
