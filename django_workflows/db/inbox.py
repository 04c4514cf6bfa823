"""Statements on messages: send, look, take."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django_workflows.db.base import Dialect, Row
from django_workflows.db.postgresql import CHANNEL, MESSAGE
from django_workflows.db.records import FENCE, Entry, entry_params

_COLUMNS = "run_id, name, data, idempotency_key, decides, refused, routed, created_at"
# A known key, or a gate that is decided already.
_KNOWN = "ON CONFLICT DO NOTHING"
# Lock, then look and insert: the lock (shared among senders) makes a finisher wait for this
# transaction, and makes this statement see a finish that came first.
_SEND = {
    "postgresql": """
WITH target AS MATERIALIZED (
    SELECT id, status, queue_name FROM {run} WHERE id = %(run)s FOR KEY SHARE),
stored AS (
    INSERT INTO {message} (COLUMNS)
    SELECT id, {text[name]}, {text[data]}, {text[key]}, {text[decides]}, '',
        false, {now} FROM target
    WHERE status IN {open} KNOWN RETURNING id, created_at)
SELECT stored.id, {epoch[stored.created_at]},
    pg_notify({text[channel]}, {text[kind]} || target.queue_name)
FROM stored, target
""",
    "sqlite": """
INSERT INTO {message} (COLUMNS)
SELECT id, %(name)s, %(data)s, %(key)s, %(decides)s, '', 0, {now} FROM {run}
WHERE id = %(run)s AND status IN {open} KNOWN RETURNING id, created_at
""",
}
for _vendor, _text in _SEND.items():
    _SEND[_vendor] = _text.replace("COLUMNS", _COLUMNS).replace("KNOWN", _KNOWN)


def send(
    d: Dialect, run_id: UUID, *, name: str, data: str, key: str | None, decides: str | None
) -> tuple[int, float] | None:
    """Store a message: (id, epoch).

    None: a known key, a decided gate, no such run, or one that has ended.
    """
    params: dict[str, Any] = {"run": run_id, "name": name, "data": data, "key": key}
    params["decides"] = decides
    if d.notifies:
        params |= {"channel": CHANNEL, "kind": f"{MESSAGE}:"}
    row = d.one(_SEND[d.vendor], **params)
    return None if row is None else (int(row[0]), d.epoch(row[1]))


_FOUND = "m.id, m.name, m.data, m.idempotency_key, {epoch[m.created_at]}"
# A range on the name keeps it in the sort order, so that the planner takes the inbox's own index
# and not the primary key, which it would walk past every message ever sent.
_OLDEST = """
SELECT m.id, m.name, m.data, m.idempotency_key, m.created_at FROM {message} m
WHERE m.run_id = RUN AND m.name >= NAME AND m.name <= NAME AND m.consumed_by_id IS NULL
ORDER BY m.name, m.id LIMIT 1"""
_OF_ONE = _OLDEST.replace("NAME", "{text[name]}")
_OF_SEVERAL = {
    "postgresql": "SELECT m.* FROM unnest(CAST(%(names)s AS text[])) AS given (name)"
    " CROSS JOIN LATERAL (" + _OLDEST.replace("NAME", "given.name") + ") m ORDER BY m.id LIMIT 1",
    "sqlite": """SELECT m.id, m.name, m.data, m.idempotency_key, m.created_at FROM {message} m
WHERE m.run_id = RUN AND m.name {any[names]} AND m.consumed_by_id IS NULL ORDER BY m.id LIMIT 1""",
}


_LOOK = {
    (vendor, single): f"SELECT {_FOUND} FROM ("
    + (_OF_ONE if single else several).replace("RUN", "{uuid[run]}")
    + ") m"
    for vendor, several in _OF_SEVERAL.items()
    for single in (True, False)
}


def _names(names: tuple[str, ...]) -> dict[str, Any]:
    return {"name": names[0]} if len(names) == 1 else {"names": list(names)}


def _found(d: Dialect, row: Row) -> Row:
    return (*row[:4], d.epoch(row[4]))


def oldest(d: Dialect, run_id: UUID, names: tuple[str, ...]) -> Row | None:
    """The oldest pending message of any of the names: (id, name, data, key, epoch)."""
    text = _LOOK[d.vendor, len(names) == 1]
    row = d.one(text, run=run_id, **_names(names))
    return None if row is None else _found(d, row)


# Beyond this size a message is worth a statement of its own, in which its data stays in the
# database.
AHEAD_BYTES = 16_384
_AHEAD = """
SELECT m.id, m.name, CASE WHEN length(m.data) <= %(bytes)s THEN m.data END, m.idempotency_key,
    {epoch[m.created_at]}
FROM {message} m WHERE m.run_id = %(run)s AND m.name {any[names]} AND m.consumed_by_id IS NULL
ORDER BY m.id LIMIT %(limit)s
"""


def ahead(d: Dialect, run_id: UUID, names: tuple[str, ...], limit: int = 50) -> list[Row]:
    """The oldest pending messages of any of the names, up to the first large one."""
    rows = d.fetch(_AHEAD, run=run_id, names=list(names), bytes=AHEAD_BYTES, limit=limit)
    found = []
    for row in rows:
        if row[2] is None:
            break
        found.append(_found(d, row))
    return found


_MARK = """
UPDATE {message} SET consumed_by_id = %(step)s, consumed_at = {now}
WHERE id = %(message)s AND consumed_by_id IS NULL
"""


def mark_consumed(d: Dialect, message_id: int, step_id: int) -> bool:
    """Give a message to a step, once."""
    return d.execute(_MARK, message=message_id, step=step_id) == 1


# What the step's details say about the message; its data is the step's result.
_TOLD = """CAST(json_build_object('message', json_build_object('id', oldest.id, 'name',
    oldest.name, 'key', oldest.idempotency_key, 'sent_at', {epoch[oldest.created_at]})) AS text)"""
_INSERT_STEP = (
    """INSERT INTO {step} (run_id, seq, key, name, kind, status, attempts, result, details,
    created_at, started_at, finished_at)
SELECT fence.id, {int[seq]}, {text[key]}, {text[as_name]}, {text[kind]}, 'completed', 1,
    oldest.data, """
    + _TOLD
    + """, {at[created_at]}, {at[started_at]}, {now} FROM fence, oldest RETURNING id"""
)
_UPDATE_STEP = (
    "UPDATE {step} SET status = 'completed', result = oldest.data, details = "
    + _TOLD
    + ", wake_at = NULL, finished_at = {now} FROM fence, oldest WHERE {step}.id = %(step)s"
    + " AND {step}.run_id = fence.id RETURNING {step}.id"
)
_TAKE_TEXT = """WITH FENCE, oldest AS MATERIALIZED (
    SELECT m.* FROM fence CROSS JOIN LATERAL (OLDEST) m WHERE fence.status = 'running'),
written AS (WRITTEN),
taken AS (UPDATE {message} SET consumed_by_id = written.id, consumed_at = {now}
    FROM oldest, written WHERE {message}.id = oldest.id RETURNING {message}.id)
SELECT fence.status, written.id, FOUND
FROM fence LEFT JOIN (oldest m CROSS JOIN written CROSS JOIN taken) ON true
"""
_TAKE = {
    (single, fresh): _TAKE_TEXT.replace("FENCE", FENCE)
    .replace(
        "OLDEST", (_OF_ONE if single else _OF_SEVERAL["postgresql"]).replace("RUN", "fence.id")
    )
    .replace("WRITTEN", _INSERT_STEP if fresh else _UPDATE_STEP)
    .replace("FOUND", _FOUND)
    for single in (True, False)
    for fresh in (True, False)
}


def take(d: Dialect, run_id: UUID, token: UUID, entry: Entry, names: tuple[str, ...]) -> Row | None:
    """Consume the oldest message and record the wait in one statement (PostgreSQL).

    Returns: None when the claim is lost, else (status, step id, message id, name, data, key,
        epoch), the last six None when the inbox holds none of the names.
    """
    text = _TAKE[len(names) == 1, entry.id is None]
    params: dict[str, Any] = {"run": run_id, "token": token, **_names(names)}
    if entry.id is None:
        columns = entry_params(entry)
        params |= {key: columns[key] for key in ("seq", "key", "kind", "created_at", "started_at")}
        params["as_name"] = entry.name
    else:
        params["step"] = entry.id
    row = d.one(text, **params)
    return None if row is None else (row[0], row[1], *row[2:6], d.epoch(row[6]))


_REFUSE = """
UPDATE {message} SET consumed_by_id = %(step)s, consumed_at = {now}, refused = %(why)s,
    decides = NULL
WHERE id = %(message)s AND consumed_by_id IS NULL
"""


def refuse(d: Dialect, message_id: int, step_id: int, why: str) -> None:
    """Keep a decision that doesn't hold beside its gate, out of the way of others."""
    d.execute(_REFUSE, message=message_id, step=step_id, why=why)


_MARK_DECISION = """
UPDATE {message} SET consumed_by_id = %(step)s, consumed_at = {now}, decides = %(decides)s
WHERE id = %(message)s AND consumed_by_id IS NULL
"""
_PENDING = """
SELECT id FROM {message} WHERE run_id = %(run)s AND name = %(name)s AND consumed_by_id IS NULL
ORDER BY id
"""


def mark_decision(d: Dialect, message_id: int, step_id: int) -> bool:
    """Give a decision to its gate's step, which no other can decide from here on."""
    params = {"message": message_id, "step": step_id, "decides": f"gate:{step_id}"}
    return d.execute(_MARK_DECISION, **params) == 1


def pending_ids(d: Dialect, run_id: UUID, name: str) -> list[int]:
    """Pending messages of a name, oldest first."""
    return [int(row[0]) for row in d.fetch(_PENDING, run=run_id, name=name)]


def now(d: Dialect) -> float:
    """The database's time, seconds since 1970."""
    row = d.one("SELECT {epoch_now}")
    assert row is not None
    return float(d.epoch(row[0]))
