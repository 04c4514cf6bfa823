"""Statements on the run's row: start, lock, finish, park, give back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django_workflows.db.base import At, Dialect, Later, Row
from django_workflows.db.postgresql import CHANNEL

_INSERT = """
INSERT INTO {run} (id, workflow_id, workflow_name, version, queue_name, priority, status, input,
    state, attempts, claim_count, crashes, available_at, deadline_at, waiting_kind, waiting_for,
    problem, problem_count, parent_id, parent_told, on_parent_close, rerun_of_id, subject_type,
    subject_pk, created_at)
VALUES (%(id)s, %(workflow_id)s, %(workflow_name)s, %(version)s, %(queue_name)s, %(priority)s,
    'pending', %(input)s, %(state)s, 0, 0, 0, COALESCE({at[run_at]}, {later[run_in]}),
    COALESCE({at[deadline_at]}, {later[deadline_in]}), '', '', '', 0, {uuid[parent_id]},
    TRUE, %(on_parent_close)s, {uuid[rerun_of_id]}, %(subject_type)s, %(subject_pk)s, {now})
ON CONFLICT (workflow_id) WHERE status IN {open} DO NOTHING
RETURNING {epoch[created_at]}, {epoch[available_at]}, {epoch[deadline_at]}, {notified}
"""


def insert(
    d: Dialect,
    *,
    run_at: float | None,
    run_in: float,
    deadline_at: float | None,
    deadline_in: float | None,
    notify_as: str,
    **columns: Any,
) -> Row | None:
    """Insert a pending run and wake workers; None when an open run has its workflow id.

    Returns: epochs of created_at, available_at and deadline_at.
    """
    if d.notifies:
        columns |= {"channel": CHANNEL, "told": f"{notify_as}:{columns['queue_name']}"}
    row = d.one(
        _INSERT,
        run_at=None if run_at is None else At(run_at),
        run_in=Later(run_in),
        deadline_at=None if deadline_at is None else At(deadline_at),
        deadline_in=None if deadline_in is None else Later(deadline_in),
        **columns,
    )
    return None if row is None else tuple(map(d.epoch, row[:3]))


def notify(d: Dialect, kind: str, queue_name: str) -> None:
    """Wake listening workers of a queue once this transaction commits.

    Args:
        kind: DUE, LATER or MESSAGE: what they should look for.
    """
    if d.notifies:
        told = f"{kind}:{queue_name}"
        d.fetch("SELECT pg_notify(%(channel)s, %(told)s)", channel=CHANNEL, told=told)


_LOCK_COLUMNS = "id, status, claim_token, crashes, attempts, deadline_at, queue_name"
_LOCK = {
    mode: f"SELECT {_LOCK_COLUMNS} FROM {{run}} WHERE id = %(run)s {{{mode}}}"
    for mode in ("for_update", "for_no_key_update", "for_key_share")
}
_LOCK_OR_SKIP = {mode: f"{text} {{skip_locked}}" for mode, text in _LOCK.items()}
# Touching the row takes SQLite's write lock, which a plain read wouldn't.
_LOCK_SQLITE = f"UPDATE {{run}} SET crashes = crashes WHERE id = %(run)s RETURNING {_LOCK_COLUMNS}"


def lock(d: Dialect, run_id: UUID, mode: str, *, skip_locked: bool = False) -> Row | None:
    """Lock a run in one of PostgreSQL's modes: (id, status, token, crashes, attempts, …).

    None: there is no such run, or with `skip_locked` another transaction has it locked.
    """
    texts = _LOCK_OR_SKIP if skip_locked else _LOCK
    row = d.one(texts[mode] if d.vendor == "postgresql" else _LOCK_SQLITE, run=run_id)
    return None if row is None else (d.uid(row[0]), row[1], d.uid(row[2]), *row[3:])


_ENDED = """status = %(status)s, finished_at = {now}, available_at = NULL, waiting_kind = '',
    waiting_for = '', waiting_since = NULL, problem = '', problem_count = 0,
    parent_told = (parent_id IS NULL)"""

# FOR UPDATE spelled out: an UPDATE of status alone lets senders in flight go on (KEY SHARE), and
# their message would land on a finished run.
_FINISH = f"""
UPDATE {{run}} SET {_ENDED}, result = {{text[result]}}, error = {{text[error]}},
    claim_token = NULL, claimed_by = NULL
WHERE id = (SELECT id FROM {{run}} WHERE id = %(run)s AND claim_token = %(token)s
    AND status = 'running' {{for_update}})
"""
_FINISH_SKIPPING = _FINISH.replace("{for_update}", "{for_update} {skip_locked}")


def finish(
    d: Dialect,
    run_id: UUID,
    token: UUID,
    *,
    status: str,
    result: str | None,
    error: str | None,
    skip_locked: bool = False,
) -> bool:
    """End a claimed run, unless the claim was lost or the run ended otherwise.

    Args:
        skip_locked: neither wait for a run that somebody has locked.
    """
    given = {"run": run_id, "token": token, "status": status, "result": result, "error": error}
    return d.execute(_FINISH_SKIPPING if skip_locked else _FINISH, **given) == 1


# The token stays, so that the current step of a running run may still be recorded.
_END = f"""UPDATE {{run}} SET {_ENDED}, error = {{text[error]}}, claimed_by = NULL
WHERE id = %(run)s RETURNING parent_id"""


def end(d: Dialect, run_id: UUID, *, status: str, error: str | None) -> UUID | None:
    """End a run that the caller has locked FOR UPDATE, whoever holds its claim; its parent."""
    row = d.one(_END, run=run_id, status=status, error=error)
    return None if row is None else d.uid(row[0])


_TO_CLOSE = """
SELECT id FROM {run} WHERE parent_id = %(parent)s AND on_parent_close = 'cancel'
    AND status IN {open} ORDER BY id
"""
_OUTCOME = "SELECT status, result, error FROM {run} WHERE id = %(run)s"


def children_to_close(d: Dialect, parent_id: UUID) -> list[UUID]:
    """Open children that end with their parent, in the order in which they are to be locked."""
    return [d.uid(row[0]) for row in d.fetch(_TO_CLOSE, parent=parent_id)]


def outcome(d: Dialect, run_id: UUID) -> Row | None:
    """(status, result, error) of a run."""
    return d.one(_OUTCOME, run=run_id)


_RELEASED = "claim_token = NULL, claimed_by = NULL, waiting_kind = '', waiting_for = ''"
_PARK = """
UPDATE {run} SET status = 'suspended', available_at = {at[wake_at]}, claim_token = NULL,
    claimed_by = NULL, waiting_kind = %(kind)s, waiting_for = %(names)s,
    waiting_since = {at[since]}, problem = '', problem_count = 0
WHERE id = %(run)s AND claim_token = %(token)s AND status = 'running'
"""


def park(
    d: Dialect,
    run_id: UUID,
    token: UUID,
    *,
    kind: str,
    names: str,
    since: float,
    wake_at: float | None,
) -> bool:
    """Give a claimed run back until `wake_at` (None: no timeout) or one of the names."""
    return (
        d.execute(
            _PARK,
            run=run_id,
            token=token,
            kind=kind,
            names=names,
            since=At(since),
            wake_at=None if wake_at is None else At(wake_at),
        )
        == 1
    )


_GIVE_BACK = f"""
UPDATE {{run}} SET status = 'pending', available_at = {{later[delay]}}, {_RELEASED},
    problem = %(problem)s, problem_count = CASE WHEN %(problem)s = '' THEN 0
    ELSE problem_count + 1 END, attempts = attempts + {{int[attempts]}}
WHERE id = %(run)s AND claim_token = %(token)s AND status = 'running'
"""


def give_back(
    d: Dialect,
    run_id: UUID,
    token: UUID,
    *,
    delay: float = 0.0,
    problem: str = "",
    attempts: int = 0,
) -> bool:
    """Give a claimed run back, due after `delay` seconds, with the reason if it is stuck."""
    return (
        d.execute(
            _GIVE_BACK,
            run=run_id,
            token=token,
            delay=Later(delay),
            problem=problem,
            attempts=attempts,
        )
        == 1
    )


_WAKE = """UPDATE {run} SET available_at = {now} WHERE id = %(run)s
    AND status IN ('pending', 'suspended') AND (available_at IS NULL OR available_at > {now})"""
# A step that waits for its next attempt looks at its own time too. Sleeps keep theirs.
_WAKE_STEP = """UPDATE {step} SET wake_at = {now} WHERE run_id = %(run)s AND kind = 'step'
    AND status = 'waiting' AND wake_at > {now}"""


def wake(d: Dialect, run_id: UUID) -> bool:
    """Make a run that the caller has locked due now, and its step's next attempt with it."""
    d.execute(_WAKE_STEP, run=run_id)
    return d.execute(_WAKE, run=run_id) == 1


_STATE = "UPDATE {run} SET state = %(state)s WHERE id = %(run)s AND claim_token = %(token)s"
_CRASHES = "UPDATE {run} SET crashes = 0 WHERE id = %(run)s AND claim_token = %(token)s"
_STANDING = "SELECT status FROM {run} WHERE id = %(run)s AND claim_token = %(token)s"


def write_state(d: Dialect, run_id: UUID, token: UUID, state: str) -> bool:
    """Store the state of a run that is still claimed with this token."""
    return d.execute(_STATE, run=run_id, token=token, state=state) == 1


def forget_crashes(d: Dialect, run_id: UUID, token: UUID) -> None:
    """A new record was made: earlier crashes no longer count towards poison."""
    d.execute(_CRASHES, run=run_id, token=token)


def standing(d: Dialect, run_id: UUID, token: UUID) -> str | None:
    """Status of a run while the claim holds, else None."""
    row = d.one(_STANDING, run=run_id, token=token)
    return None if row is None else str(row[0])
