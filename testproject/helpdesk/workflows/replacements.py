"""A saga: steps that are undone, last first, when a later one fails for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_workflows import RetryPolicy, StepFailed, WorkflowContext, step, workflow

from .. import services
from ..models import Note, Ticket


@step(retry=RetryPolicy(non_retryable=(services.AddressRefused,)))
def book_courier(number: str, address: str) -> None:
    services.book_courier(number, address)


@step(atomic=True)
def note(number: str, text: str) -> None:
    ticket, _ = Ticket.objects.get_or_create(number=number)
    Note.objects.create(ticket=ticket, author="helpdesk", text=text)


@workflow
def replace_device(ctx: WorkflowContext, number: str, address: str) -> dict[str, Any]:
    """Send a new device; what was arranged is undone when the rest can't be."""
    undo: list[tuple[str, Callable[[str], None]]] = []
    try:
        # Noted before the step: one that fails may have got halfway.
        undo.append(("release-device", services.release_device))
        ctx.step("reserve-device", services.reserve_device, number)
        undo.append(("cancel-courier", services.cancel_courier))
        ctx.step("book-courier", book_courier, number, address)
        ctx.step("note", note, number, "A new device is on its way.")
    except StepFailed as failure:
        for name, compensate in reversed(undo):
            ctx.step(name, compensate, number)
        ctx.step("note-failure", note, number, f"No new device: {failure.message}.")
        return {"status": "undone", "reason": failure.message}
    return {"status": "sent"}
