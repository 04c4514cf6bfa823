"""SQLite: one writer at a time, no row locks, no notify; the machine's clock is the database's.

A transaction that reads first and writes later fails at once when another process wrote in
between, whatever the timeout. So each write here is one statement, or begins with one that takes
the write lock (`store/locks.py`), which also stands in for the row locks.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import Any
from uuid import UUID

from django_workflows import payloads
from django_workflows.db import clock
from django_workflows.db.base import At, Dialect, Later, _Each

_FRAGMENTS: dict[str, Any] = {
    "for_update": "",
    "for_no_key_update": "",
    "for_share": "",
    "for_key_share": "",
    "untrue": "0",
    "skip_locked": "",
    "materialized": "",
    # SQLite looks at the clock once it has the write lock; the parameter is from before the wait
    # for it, but finer than SQLite's milliseconds.
    "now": "max(%(now)s, strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', %(shift)s))",
    "epoch_now": "%(now)s",
    "steady": "%(now)s",
    "at": _Each(lambda name: f"%({name})s"),
    "later": _Each(lambda name: f"%({name})s"),
    "epoch": _Each(lambda column: column),
    "any": _Each(lambda name: f"IN (SELECT value FROM json_each(%({name})s))"),
    "text": _Each(lambda name: f"%({name})s"),
    "int": _Each(lambda name: f"%({name})s"),
    "uuid": _Each(lambda name: f"%({name})s"),
    "waits_for": _Each(
        lambda name: f"waiting_for <> '' AND {name} IN (SELECT value FROM json_each(waiting_for))"
    ),
    "waits_for_run": _Each(
        lambda run: (
            "waiting_for <> '' AND EXISTS (SELECT 1 FROM json_each(waiting_for) "
            f"WHERE replace(value, '-', '') = {run})"
        )
    ),
    "told": "id",
    "notified": "NULL",
    "separator": "char(31)",
}
_EPOCH = dt.datetime(1970, 1, 1)


def _moment(epoch: float) -> str:
    return str(_EPOCH + dt.timedelta(microseconds=round(epoch * 1e6)))


class SQLite(Dialect):
    """SQLite 3.35 and newer (RETURNING)."""

    vendor = "sqlite"

    def fragments(self, *, shifted: bool) -> dict[str, Any]:
        return _FRAGMENTS

    def adapt(self, value: Any) -> Any:
        if isinstance(value, At):
            return _moment(value)
        if isinstance(value, Later):
            return _moment(time.time() + clock.offset() + value)
        if isinstance(value, UUID):
            return value.hex
        if isinstance(value, list):
            return payloads.dump_json([self.adapt(item) for item in value])
        return value

    def params(self, params: dict[str, Any]) -> dict[str, Any]:
        adapted = super().params(params)
        offset = clock.offset()
        # After the others: what is due later is counted from a moment that isn't after this one.
        adapted["now"] = _moment(time.time() + offset)
        adapted["shift"] = f"{offset:f} seconds"
        return adapted

    def epoch(self, value: Any) -> float | None:
        if value is None:
            return None
        parsed = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(value)
        return (parsed.replace(tzinfo=None) - _EPOCH).total_seconds()

    def uid(self, value: Any) -> UUID | None:
        return value if value is None or isinstance(value, UUID) else UUID(value)
