"""Frozen values that users get back. No behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

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


JSONObject = dict[str, Any]
