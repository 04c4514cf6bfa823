"""Statements on a run's record: load it, and write one entry, fenced by the claim."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django_workflows import payloads
from django_workflows.db.base import At, Dialect


@dataclass(slots=True)
class Entry:
    """One entry of a record, to be written or as loaded. Payloads are encoded text.

    Attributes:
        message: id of a message read ahead that this entry consumes; no column of its own.
    """

    seq: int
    key: str
    name: str
    kind: str
    status: str
    attempts: int = 1
    result: str | None = None
    error: str | None = None
    details: str = ""
    wake_at: float | None = None
    created_at: float = 0.0
    started_at: float | None = None
    id: int | None = None
    message: int | None = None


_HISTORY = """
SELECT run_id, seq, key, name, kind, status, attempts, result, error, details,
    {epoch[wake_at]}, {epoch[created_at]}, {epoch[started_at]}, id
FROM {step} WHERE run_id {any[runs]}
"""


def history(d: Dialect, run_ids: list[UUID]) -> dict[UUID, list[Entry]]:
    """Records of several runs in one query, each in its order."""
    found: dict[UUID, list[Entry]] = defaultdict(list)
    for run_id, *row in d.fetch(_HISTORY, runs=run_ids):
        *plain, wake_at, created_at, started_at, step_id = row
        times = (d.epoch(wake_at), d.epoch(created_at), d.epoch(started_at))
        values: tuple[Any, ...] = (*plain, *times, step_id)
        found[d.uid(run_id)].append(Entry(*values))
    for entries in found.values():
        entries.sort(key=lambda entry: entry.seq)
    return found


_COLUMNS = """run_id, seq, key, name, kind, status, attempts, result, error, details, wake_at,
    created_at, started_at, finished_at"""
_VALUES = """{int[seq]}, {text[key]}, {text[name]}, {text[kind]}, {text[status]},
    {int[attempts]}, {text[result]}, {text[error]}, {text[details]}, {at[wake_at]},
    {at[created_at]}, {at[started_at]},
    CASE WHEN {text[status]} IN ('completed', 'failed') THEN {now} END"""
_CHANGES = """status = {text[status]}, attempts = {int[attempts]}, result = {text[result]},
    error = {text[error]}, details = {text[details]}, wake_at = {at[wake_at]},
    started_at = {at[started_at]},
    finished_at = CASE WHEN {text[status]} IN ('completed', 'failed') THEN {now} END"""
_CLAIM = "id = %(run)s AND claim_token = %(token)s"

# The lock makes a second writer of the same claim, or one that takes the run over, wait for this
# statement; its status is read under the lock, so a cancel that came first is seen.
FENCE = (
    "fence AS MATERIALIZED (SELECT id, status FROM {run} WHERE " + _CLAIM + " FOR NO KEY UPDATE)"
)
_INSERT = {
    "postgresql": f"""WITH {FENCE}, written AS (
        INSERT INTO {{step}} ({_COLUMNS}) SELECT fence.id, {_VALUES} FROM fence RETURNING id)
        SELECT written.id, fence.status FROM written, fence""",
    "sqlite": f"""INSERT INTO {{step}} ({_COLUMNS}) SELECT id, {_VALUES} FROM {{run}}
        WHERE {_CLAIM} RETURNING id, (SELECT status FROM {{run}} r WHERE r.id = run_id)""",
}
_SKIPPING = {
    kind: text.replace("FOR NO KEY UPDATE", "FOR NO KEY UPDATE SKIP LOCKED")
    for kind, text in _INSERT.items()
}
_UPDATE = {
    "postgresql": f"""WITH {FENCE}, written AS (
        UPDATE {{step}} SET {_CHANGES} WHERE id = %(step)s
            AND run_id IN (SELECT id FROM fence) RETURNING id)
        SELECT written.id, fence.status FROM written, fence""",
    "sqlite": f"""UPDATE {{step}} SET {_CHANGES} WHERE id = %(step)s
        AND run_id = (SELECT id FROM {{run}} WHERE {_CLAIM})
        RETURNING id, (SELECT status FROM {{run}} r WHERE r.id = run_id)""",
}


def entry_params(entry: Entry) -> dict[str, Any]:
    """An entry's columns as parameters."""
    return {
        "seq": entry.seq,
        "key": entry.key,
        "name": entry.name,
        "kind": entry.kind,
        "status": entry.status,
        "attempts": entry.attempts,
        "result": entry.result,
        "error": entry.error,
        "details": entry.details,
        "wake_at": None if entry.wake_at is None else At(entry.wake_at),
        "created_at": At(entry.created_at),
        "started_at": None if entry.started_at is None else At(entry.started_at),
    }


def write(
    d: Dialect, run_id: UUID, token: UUID, entry: Entry, *, skip_locked: bool = False
) -> tuple[int, str] | None:
    """Write an entry if the claim still holds: (step id, the run's status), else None.

    Args:
        skip_locked: of a new entry, neither wait for a run that somebody has locked.
    """
    params = {**entry_params(entry), "run": run_id, "token": token}
    inserts = _SKIPPING if skip_locked else _INSERT
    if entry.id is None:
        row = d.one(inserts[d.vendor], **params)
    else:
        del params["seq"], params["key"], params["name"], params["kind"], params["created_at"]
        row = d.one(_UPDATE[d.vendor], step=entry.id, **params)
    return None if row is None else (int(row[0]), str(row[1]))


# Several messages read ahead, each consumed by an entry of its own. The claim's holder is the only
# one who consumes, so they are still there.
_RUNNING = _CLAIM + " AND status = 'running'"
_TAKEN = f"""WITH {FENCE.replace(_CLAIM, _RUNNING)},
given AS (SELECT * FROM json_to_recordset(CAST(%(entries)s AS json)) AS given (seq integer,
    key text, name text, kind text, result text, details text, created_at double precision,
    message bigint)),
written AS (
    INSERT INTO {{step}} (run_id, seq, key, name, kind, status, attempts, result, details,
        created_at, started_at, finished_at)
    SELECT fence.id, seq, key, name, kind, 'completed', 1, result, details,
        to_timestamp(created_at), to_timestamp(created_at), {{now}}
    FROM fence CROSS JOIN given RETURNING id, seq),
consumed AS (
    UPDATE {{message}} SET consumed_by_id = written.id, consumed_at = {{now}}
    FROM written JOIN given ON given.seq = written.seq
    WHERE {{message}}.id = given.message AND {{message}}.id {{any[messages]}}
        AND {{message}}.run_id = %(run)s AND {{message}}.consumed_by_id IS NULL)
SELECT seq, id FROM written"""
_TAKEN_COLUMNS = ("seq", "key", "name", "kind", "result", "details", "created_at", "message")


def write_taken(
    d: Dialect, run_id: UUID, token: UUID, entries: list[Entry]
) -> dict[int, int] | None:
    """Write entries that each consume a message, all or none; step ids by position.

    None when the claim is lost, or the run has ended (PostgreSQL).
    """
    rows = [{column: getattr(entry, column) for column in _TAKEN_COLUMNS} for entry in entries]
    written = d.fetch(
        _TAKEN,
        run=run_id,
        token=token,
        entries=payloads.dump_json(rows),
        messages=[entry.message for entry in entries],
    )
    return dict(written) if written else None


def write_new(d: Dialect, run_id: UUID, token: UUID, entry: Entry) -> int:
    """Write an entry under the run's lock, where the claim is known to hold; its id, also set."""
    written = write(d, run_id, token, entry)
    assert written is not None
    entry.id = written[0]
    return entry.id


_COPY = f"""
INSERT INTO {{step}} ({_COLUMNS})
SELECT %(new)s, seq, key, name, kind, status, attempts, result, error, details, wake_at,
    created_at, started_at, finished_at
FROM {{step}} WHERE run_id = %(old)s AND seq < %(before)s
"""


def copy(d: Dialect, old: UUID, new: UUID, *, before: int) -> None:
    """Copy the record of a run up to a position."""
    d.execute(_COPY, old=old, new=new, before=before)
    # Only a first claim goes without the record, and this run has one from the start. Its
    # `rerun_of` can't tell: the old run may be deleted before the claim.
    d.execute("UPDATE {run} SET claim_count = claim_count + 1 WHERE id = %(new)s", new=new)


_DELETE = """
DELETE FROM {step} WHERE run_id = (SELECT id FROM {run} WHERE id = %(run)s
    AND claim_token = %(token)s) AND seq >= {int[seq]}
"""


def forget(d: Dialect, run_id: UUID, token: UUID, seq: int) -> None:
    """Remove entries from `seq` on, so that another attempt of the body makes them anew."""
    d.execute(_DELETE, run=run_id, token=token, seq=seq)
