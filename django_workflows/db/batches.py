"""Records and completions of many runs in one statement and one commit (PostgreSQL).

A run that somebody else has locked is skipped: a batch must not wait for one run, and its own
thread writes it alone. A record that conflicts is left out as well, so that no run spoils its
neighbours' writes. What comes back says what was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django_workflows import payloads
from django_workflows.db.base import Dialect
from django_workflows.db.records import Entry


@dataclass(slots=True)
class Ending:
    """A run's end, for a claim whose run has neither parent nor children."""

    status: str
    result: str | None
    error: str | None


# One JSON parameter instead of an array per column: quicker to build, and one plan for any size.
_GIVEN = """AS given (run uuid, token uuid, seq integer, key text, name text, kind text,
    status text, attempts integer, result text, error text, details text,
    wake_at double precision, created_at double precision, started_at double precision)"""
_RECORDS = """fence AS MATERIALIZED (
    SELECT r.id AS run_id, r.status AS run_status, given.*
    FROM json_to_recordset(CAST(%(records)s AS json)) GIVEN
    JOIN {run} r ON r.id = given.run AND r.claim_token = given.token
        AND r.id {any[runs]}
    FOR NO KEY UPDATE OF r SKIP LOCKED),
written AS (
    INSERT INTO {step} (run_id, seq, key, name, kind, status, attempts, result, error, details,
        wake_at, created_at, started_at, finished_at)
    SELECT run_id, seq, key, name, kind, status, attempts, result, error, details,
        to_timestamp(wake_at), to_timestamp(created_at), to_timestamp(started_at),
        CASE WHEN status IN ('completed', 'failed') THEN {now} END
    FROM fence ON CONFLICT DO NOTHING RETURNING id, run_id)""".replace("GIVEN", _GIVEN)
_ENDINGS = """locked AS MATERIALIZED (
    SELECT r.id, given.status, given.result, given.error
    FROM json_to_recordset(CAST(%(endings)s AS json))
        AS given (run uuid, token uuid, status text, result text, error text)
    JOIN {run} r ON r.id = given.run AND r.claim_token = given.token AND r.status = 'running'
        AND r.id {any[ended_runs]}
    FOR UPDATE OF r SKIP LOCKED),
ended AS (
    UPDATE {run} SET status = locked.status, result = locked.result, error = locked.error,
        finished_at = {now}, available_at = NULL, waiting_kind = '', waiting_for = '',
        waiting_since = NULL, problem = '', problem_count = 0, claim_token = NULL,
        claimed_by = NULL
    FROM locked WHERE {run}.id = locked.id RETURNING {run}.id)"""
_WRITTEN = """SELECT written.run_id, written.id, fence.run_status
    FROM written JOIN fence ON fence.run_id = written.run_id"""
_ENDED = "SELECT ended.id, CAST(NULL AS bigint), CAST(NULL AS text) FROM ended"
_TEXTS = {
    (True, False): f"WITH {_RECORDS} {_WRITTEN}",
    (False, True): f"WITH {_ENDINGS} {_ENDED}",
    (True, True): f"WITH {_RECORDS}, {_ENDINGS} {_WRITTEN} UNION ALL {_ENDED}",
}

Item = tuple[UUID, UUID, Entry | Ending]


def write_all(d: Dialect, items: list[Item]) -> dict[UUID, tuple[int | None, str | None]]:
    """Write what can be written at once, one item per run.

    Returns: by run what was written, (step id, the run's status) of a record and (None, None) of
        an ending; the others are left to be written alone.
    """
    records = [_row(item) for item in items if isinstance(item[2], Entry)]
    endings = [_ending(item) for item in items if isinstance(item[2], Ending)]
    # The ids stand beside the JSON, so that the planner reads by them and doesn't scan tables for
    # the hundred rows that it expects of a recordset.
    params: dict[str, Any] = {}
    if records:
        params["records"] = payloads.dump_json(records)
        params["runs"] = [item[0] for item in items if isinstance(item[2], Entry)]
    if endings:
        params["endings"] = payloads.dump_json(endings)
        params["ended_runs"] = [item[0] for item in items if isinstance(item[2], Ending)]
    rows = d.fetch(_TEXTS[bool(records), bool(endings)], **params)
    return {d.uid(run): (step, status) for run, step, status in rows}


def _row(item: Item) -> dict[str, Any]:
    run_id, token, entry = item
    assert isinstance(entry, Entry)
    return {
        "run": str(run_id),
        "token": str(token),
        "seq": entry.seq,
        "key": entry.key,
        "name": entry.name,
        "kind": entry.kind,
        "status": entry.status,
        "attempts": entry.attempts,
        "result": entry.result,
        "error": entry.error,
        "details": entry.details,
        "wake_at": entry.wake_at,
        "created_at": entry.created_at,
        "started_at": entry.started_at,
    }


def _ending(item: Item) -> dict[str, Any]:
    run_id, token, ending = item
    assert isinstance(ending, Ending)
    given = {"run": str(run_id), "token": str(token), "status": ending.status}
    return {**given, "result": ending.result, "error": ending.error}
