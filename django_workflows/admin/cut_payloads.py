"""Payloads for a page: never more of one than can be shown, with its full size beside it.

A column is asked for as its length and its first characters, so that a large payload isn't read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import F
from django.db.models.functions import Length, Substr

from django_workflows import payloads

# Of a run's own payloads, and of each step's and message's, this many characters are shown.
RUN_LIMIT = 20_000
ROW_LIMIT = 1_000


@dataclass(frozen=True)
class Shown:
    """What a page shows of a payload.

    Attributes:
        size: characters stored, in all.
        is_cut: the text is only the beginning, or nothing where a codec hides it.
    """

    text: str
    size: int
    is_cut: bool = False


def with_heads(rows: Any, *columns: str, limit: int) -> Any:
    """`rows` with the beginning and the size of payload columns, which are left where they are."""
    heads = {f"{column}_head": Substr(F(column), 1, limit + 1) for column in columns}
    sizes = {f"{column}_size": Length(F(column)) for column in columns}
    return rows.defer(*columns).annotate(**heads, **sizes)


def shown(row: Any, column: str, limit: int) -> Shown | None:
    """What to show of a column of a row of `with_heads`; None where it is NULL."""
    head, size = getattr(row, f"{column}_head"), getattr(row, f"{column}_size")
    if head is None:
        return None
    if size <= limit:
        return Shown(_pretty(head, limit * 2), size)
    if payloads.codec() is not None:
        return Shown("", size, is_cut=True)
    return Shown(payloads.readable(head[:limit]), size, is_cut=True)


def value_of(row: Any, column: str, limit: int) -> Any:
    """The value itself where all of it was read; else None."""
    head, size = getattr(row, f"{column}_head"), getattr(row, f"{column}_size")
    if head is None or size > limit:
        return None
    try:
        return payloads.decode(head)
    except Exception:
        return None


def _pretty(text: str, limit: int) -> str:
    try:
        told = payloads.pretty(payloads.decode(text))
    except Exception:
        # Its Enum class is gone, say, or the codec's key: what is stored can still be read.
        return payloads.readable(text)
    # Deep nesting is mostly indentation.
    return told if len(told) <= limit else payloads.readable(text)
