"""A timer that each reply resets."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from django_workflows import WorkflowContext, step, workflow

from .. import services
from ..models import Ticket


@step(atomic=True)
def mark_escalated(number: str) -> None:
    Ticket.objects.filter(number=number).update(escalated_at=timezone.now())


# A mail can't be rolled back, so it has a step of its own, with a key that makes a second one
# impossible.
@step
def mail_lead(number: str) -> None:
    services.send_mail("lead@helpdesk.example", "escalation", key=number)


@workflow
def watch_sla(
    ctx: WorkflowContext, number: str, answer_within: timedelta = timedelta(hours=4)
) -> dict[str, Any]:
    """Escalate a ticket when nobody replies in time; each reply starts the time anew."""
    replies = 0
    while True:
        message = ctx.wait_for_message(["reply", "closed"], timeout=answer_within)
        if message is None:
            ctx.step("mark-escalated", mark_escalated, number)
            ctx.step("mail-lead", mail_lead, number)
            return {"status": "escalated", "replies": replies}
        if message.name == "closed":
            return {"status": "closed", "replies": replies}
        replies += 1
