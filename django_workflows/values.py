"""Frozen values that users get back. No behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from django_workflows.models import WorkflowMessage, WorkflowRun

T = TypeVar("T")


@dataclass(frozen=True)
class Message(Generic[T]):
    """A message as the body sees it.

    Attributes:
        id: number of the stored message; messages of a run are delivered in its order.
        name: the name it was sent with.
        data: its payload, after the wait's schema if it has one.
        idempotency_key: the sender's key, or None.
        sent_at: when it was stored, aware per USE_TZ.
    """

    id: int
    name: str
    data: T
    idempotency_key: str | None
    sent_at: datetime


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a listing: `items`, and the cursor of the next page or None at the end."""

    items: list[T]
    next_cursor: str | None


@dataclass(frozen=True)
class Person:
    """Who decided: the user's pk as it was, and the text that named the user then."""

    pk: Any
    text: str


@dataclass(frozen=True)
class Approval:
    """A decision on a gate.

    Attributes:
        approved: False for a rejection.
        by: who decided.
        comment: why, in the person's words.
        data: what the gate's form asked for, after its schema.
        decided_at: when the decision was made, aware per USE_TZ.
    """

    approved: bool
    by: Person
    comment: str
    data: Any
    decided_at: datetime


@dataclass(frozen=True)
class SignalWithStart:
    """What `signal_with_start` did: the run, the stored message, and whether the run is new."""

    run: WorkflowRun
    message: WorkflowMessage
    started: bool
