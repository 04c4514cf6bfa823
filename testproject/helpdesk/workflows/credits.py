"""An approval with reminders, and with somebody to turn to when they don't help."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.db.models import F

from django_workflows import Approval, WorkflowContext, step, workflow

from .. import services
from ..models import Ticket

HEADS = "Heads of support"


@step
def remind(number: str, nth: int) -> None:
    services.send_mail("leads@helpdesk.example", "reminder", key=f"{number}/{nth}")


@step
def tell_heads(number: str) -> None:
    services.send_mail("heads@helpdesk.example", "escalation", key=number)


@step(atomic=True)
def book_credit(number: str, amount: Decimal) -> None:
    Ticket.objects.filter(number=number).update(credit=F("credit") + amount)


@workflow
def approve_credit(
    ctx: WorkflowContext,
    number: str,
    amount: Decimal,
    requested_by: int,
    reminders: int = 2,
    patience: timedelta = timedelta(days=1),
) -> dict[str, Any]:
    """Ask the leads, remind them, then ask the heads; never the person who wants the credit."""
    title = f"Credit {amount} € for ticket {number}?"
    decision = _ask_leads(ctx, number, title, requested_by, reminders, patience)
    if decision is None:
        ctx.step("tell-heads", tell_heads, number)
        decision = ctx.wait_for_approval("head", approvers=HEADS, exclude=requested_by, title=title)
        assert decision is not None  # without a timeout it waits until somebody decides
    if decision.approved:
        ctx.step("book-credit", book_credit, number, amount)
    return {"approved": decision.approved, "by": decision.by.text, "why": decision.comment}


def _ask_leads(
    ctx: WorkflowContext,
    number: str,
    title: str,
    requested_by: int,
    reminders: int,
    patience: timedelta,
) -> Approval | None:
    for nth in range(reminders + 1):
        if nth:
            ctx.step("remind", remind, number, nth)
        decision = ctx.wait_for_approval(
            "lead",
            permission="helpdesk.approve_credit",
            exclude=requested_by,
            title=title,
            timeout=patience,
        )
        if decision is not None:
            return decision
    return None
