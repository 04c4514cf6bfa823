"""PostgreSQL: row locks of four strengths, SKIP LOCKED, LISTEN/NOTIFY, the server's own clock."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django_workflows.db import clock
from django_workflows.db.base import At, Dialect, Later, Row, _Each

Cursor: Any
try:
    from psycopg import Cursor
except ImportError:
    # psycopg2, or a project on SQLite without either.
    Cursor = None

CHANNEL = "django_workflows"
# What a notification says: a run is due, or later; a message, a signal, an ended child is to be
# routed.
DUE, LATER, MESSAGE, SIGNAL, CHILD = "due", "later", "message", "signal", "child"

_FRAGMENTS: dict[str, Any] = {
    "for_update": "FOR UPDATE",
    "for_no_key_update": "FOR NO KEY UPDATE",
    "for_share": "FOR SHARE",
    "for_key_share": "FOR KEY SHARE",
    "untrue": "FALSE",
    "skip_locked": "SKIP LOCKED",
    "materialized": "MATERIALIZED",
    "at": _Each(lambda name: f"to_timestamp(CAST(%({name})s AS double precision))"),
    "epoch": _Each(lambda column: f"CAST(extract(epoch FROM {column}) AS double precision)"),
    "any": _Each(lambda name: f"= ANY(%({name})s)"),
    "text": _Each(lambda name: f"CAST(%({name})s AS text)"),
    "int": _Each(lambda name: f"CAST(%({name})s AS integer)"),
    "uuid": _Each(lambda name: f"CAST(%({name})s AS uuid)"),
    # The wait's names are a JSON list in a text column.
    "waits_for": _Each(lambda name: f"waiting_for <> '' AND CAST(waiting_for AS jsonb) ? {name}"),
    "waits_for_run": _Each(
        lambda run: f"waiting_for <> '' AND CAST(waiting_for AS jsonb) ? CAST({run} AS text)"
    ),
    "told": "pg_notify(%(channel)s, '')",
    "notified": "pg_notify(%(channel)s, %(told)s)",
    "separator": "chr(31)",
}


class PostgreSQL(Dialect):
    """PostgreSQL 14 and newer."""

    vendor = "postgresql"
    writes_with = True
    notifies = True

    # Set by a worker once it knows that its connections are its own: behind a pooler in
    # transaction mode another client's statement of the same name may be what runs.
    prepares = False

    def send(self, text: str, params: dict[str, Any]) -> tuple[list[Row], int]:
        wrapper = self.connection
        if not self.prepares or wrapper.queries_logged or wrapper.execute_wrappers:
            return super().send(text, params)
        wrapper.ensure_connection()
        wrapper.validate_no_broken_transaction()
        with wrapper.wrap_database_errors, Cursor(wrapper.connection) as cursor:
            cursor.execute(text, params, prepare=True)
            rows: list[Row] = [] if cursor.description is None else cursor.fetchall()
            return rows, cursor.rowcount

    def fragments(self, *, shifted: bool) -> dict[str, Any]:
        shift = " + CAST(%(offset)s AS double precision) * interval '1 second'" if shifted else ""
        # After a wait for a lock the statement's own start is in the past; where that matters it
        # is {now}. {steady} is stable within a statement, so that an index can serve it, and
        # moves on in TestCase, whose transaction never ends.
        now = f"(clock_timestamp(){shift})"
        later = "CAST(%({name})s AS double precision) * interval '1 second'"
        return {
            **_FRAGMENTS,
            "now": now,
            "epoch_now": f"CAST(extract(epoch FROM {now}) AS double precision)",
            "steady": f"(statement_timestamp(){shift})",
            "later": _Each(lambda name: f"({now} + {later.format(name=name)})"),
        }

    def adapt(self, value: Any) -> Any:
        return float(value) if isinstance(value, (At, Later)) else value

    def params(self, params: dict[str, Any]) -> dict[str, Any]:
        adapted = super().params(params)
        offset = clock.offset()
        if offset:
            adapted["offset"] = offset
        return adapted

    def epoch(self, value: Any) -> float | None:
        return None if value is None else float(value)

    def uid(self, value: Any) -> UUID | None:
        return value if value is None or isinstance(value, UUID) else UUID(str(value))
