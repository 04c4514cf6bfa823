"""An entity: one run per ticket, fed by the webhook."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_workflows import WorkflowContext, step, workflow

from ..models import Note, Ticket


@step(atomic=True)
def record_event(number: str, event: dict[str, Any]) -> None:
    ticket, _ = Ticket.objects.get_or_create(number=number)
    is_closed = event["type"] == "closed"
    ticket.status = Ticket.Status.CLOSED if is_closed else Ticket.Status.OPEN
    ticket.save(update_fields=["status"])
    Note.objects.create(ticket=ticket, author=event["author"], text=event["text"])


@workflow
def handle_ticket(
    ctx: WorkflowContext, number: str, reopens_within: timedelta = timedelta(hours=1)
) -> dict[str, Any]:
    """Take a ticket's events one after the other, until it has been closed for a while."""
    events, is_closed = 0, False
    while True:
        message = ctx.wait_for_message("event", timeout=reopens_within if is_closed else None)
        if message is None:
            return {"events": events}
        ctx.step("record", record_event, number, message.data)
        events += 1
        is_closed = message.data["type"] == "closed"
        ctx.set_state(events=events, closed=is_closed)
