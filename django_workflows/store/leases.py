"""Route and claim, heartbeat, take over, poison. Knows nothing of bodies."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import metadata
from typing import Any
from uuid import UUID, uuid4

from django_workflows import payloads
from django_workflows.conf import config
from django_workflows.db import claims as sql
from django_workflows.db import records, routing
from django_workflows.db import runs as run_sql
from django_workflows.db.base import Dialect, Row
from django_workflows.db.dialects import dialect
from django_workflows.exceptions import DeadlineExceeded, WorkflowError
from django_workflows.fields import to_local
from django_workflows.store import locks
from django_workflows.store.ending import end_run
from django_workflows.telemetry import emit


@dataclass(slots=True)
class Claim:
    """A claimed run: all that a pass needs, and the token that fences its writes.

    Attributes:
        now: the database's time at the claim, seconds since 1970.
        seen: this process's monotonic clock when the claim arrived; time goes on from there.
        confirmed: when the database was last asked, and said that the claim holds, by the same
            clock. Not when it answered: a process may be stopped before it hears the answer.
    """

    run_id: UUID
    workflow_id: str
    name: str
    version: str
    queue_name: str
    priority: int
    input: str
    attempts: int
    claim_count: int
    crashes: int
    problem_count: int
    parent: UUID | None
    deadline_at: float | None
    now: float
    token: UUID
    seen: float = field(default_factory=time.monotonic)
    confirmed: float = 0.0

    def __post_init__(self) -> None:
        self.confirmed = self.seen

    @property
    def is_fresh(self) -> bool:
        """True when nothing can have been recorded yet."""
        return self.claim_count == 1

    def time(self) -> float:
        """The database's time now, by its clock at the claim and the time passed since."""
        return self.now + (time.monotonic() - self.seen)


class PoisonRun(WorkflowError):
    """A run whose workers died again and again on it."""

    def __init__(self, run_id: UUID, crashes: int) -> None:
        super().__init__(run_id, crashes)
        self.run_id = run_id
        self.crashes = crashes

    def __str__(self) -> str:
        return (
            f"Run {self.run_id} was given up: its worker died {self.crashes} times in a row "
            "without a new record. Look for a step that kills the process (memory, a crash in "
            "native code), mend it, and rerun."
        )


def _claim(d: Dialect, row: Row, token: UUID, asked_at: float) -> Claim:
    run_id, *plain, parent, deadline_at, now = row
    values = (
        *(d.uid(run_id), *plain, d.uid(parent)),
        *(d.epoch(deadline_at), d.epoch(now), token),
    )
    claim = Claim(*values)
    claim.confirmed = asked_at
    return claim


def claim_batch(
    worker_id: UUID | None,
    pairs: list[tuple[str, str]],
    queues: list[str],
    limit: int,
) -> list[Claim]:
    """Claim up to `limit` due runs of registered workflows, most urgent first."""
    d = dialect()
    token, asked_at = uuid4(), time.monotonic()
    rows = sql.claim_batch(
        d, token=token, worker=worker_id, pairs=pairs, queues=queues, limit=limit
    )
    claims = [_claim(d, row, token, asked_at) for row in rows]
    claims.sort(key=lambda claim: (-claim.priority, claim.run_id))
    if claims:
        emit("runs.claimed", count=len(claims))
    return claims


def claim_waiting(
    worker_id: UUID | None, pairs: list[tuple[str, str]], queues: list[str], limit: int
) -> list[Claim] | None:
    """Claim runs that a message wakes, without routing it first; None where that can't be."""
    d = dialect()
    if not d.writes_with:
        return None
    token, asked_at = uuid4(), time.monotonic()
    rows = sql.claim_waiting(
        d, token=token, worker=worker_id, pairs=pairs, queues=queues, limit=limit
    )
    if rows:
        emit("runs.claimed", count=len(rows))
    return [_claim(d, row, token, asked_at) for row in rows]


def claim_one(run_id: UUID, worker_id: UUID | None) -> Claim | None:
    """Claim this run if it is due."""
    d = dialect()
    token, asked_at = uuid4(), time.monotonic()
    row = sql.claim_one(d, run_id, token=token, worker=worker_id)
    return None if row is None else _claim(d, row, token, asked_at)


def load_histories(claims: list[Claim]) -> dict[UUID, list[records.Entry]]:
    """Records of the claimed runs, in one query; none for runs claimed for the first time."""
    run_ids = [claim.run_id for claim in claims if not claim.is_fresh]
    return records.history(dialect(), run_ids) if run_ids else {}


def reload_history(run_id: UUID) -> list[records.Entry]:
    """The record of one run as it stands."""
    return records.history(dialect(), [run_id]).get(run_id, [])


ROUTE_LIMIT = 200
SOURCES = tuple(routing.SOURCES)
SOURCES_TOLD = frozenset(SOURCES)


def route(source: str = "message", limit: int = ROUTE_LIMIT) -> int:
    """Make runs due that are parked on what has come and isn't routed; number of runs seen.

    Args:
        source: "message", "signal" or "child".
    """
    d = dialect()
    with locks.transaction(d):
        run_ids = routing.lock_unrouted(d, source, limit)
        woken = routing.route(d, source, run_ids) if run_ids else []
    for run_id in woken:
        emit("run.woken", run=run_id)
    return len(run_ids)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What an idle worker sees in one look. Times are seconds from now, None for never."""

    due_in: float | None
    unrouted: tuple[str, ...]
    dead: bool
    overdue_in: float | None


def look() -> Outlook:
    """Ask the database what there is to do, cheaply."""
    now, due, unrouted, dead, deadline = sql.look(dialect())
    return Outlook(
        due_in=None if due is None else due - now,
        unrouted=tuple(unrouted),
        dead=dead,
        overdue_in=None if deadline is None else deadline - now,
    )


def take_over_dead() -> int:
    """Make runs of dead workers due again, or end them as poison; number of runs.

    Runs that are locked right now are left to the next call: the worker's loop never waits for a
    caller's transaction.
    """
    d = dialect()
    return sum(_take_over(d, *found) for found in sql.dead(d))


def _take_over(d: Dialect, run_id: UUID, token: UUID, crashes: int) -> bool:
    if crashes + 1 >= config().max_crashes:
        return _give_up(d, run_id, token, crashes + 1)
    taken = sql.take_over(d, run_id, token)
    if taken:
        emit("run.taken_over", logging.WARNING, run=run_id, crashes=crashes + 1)
    return taken


def _give_up(d: Dialect, run_id: UUID, token: UUID, crashes: int) -> bool:
    with locks.transaction(d):
        row = run_sql.lock(d, run_id, "for_update", skip_locked=True)
        if row is None or row[1] != "running" or row[2] != token:
            return False
        error = payloads.dump_error(payloads.encode_error(PoisonRun(run_id, crashes)))
        sql.count_crash(d, run_id)
        end_run(d, run_id, status="failed", error=error)
    emit("run.poisoned", logging.ERROR, run=run_id, crashes=crashes)
    return True


def release_strays(worker_id: UUID, held: set[UUID]) -> int:
    """Make runs due again that a living worker has claimed and doesn't hold; how many are locked
    right now, and left to the next call.

    Their workers didn't die, so it isn't counted as a crash.
    """
    d = dialect()
    left = 0
    for run_id, token in sql.claimed_by(d, worker_id):
        if run_id in held:
            continue
        if sql.release(d, run_id, token):
            emit("run.strayed", logging.WARNING, run=run_id)
        else:
            left += 1
    return left


def fail_overdue() -> int:
    """Fail runs that are past their deadline, parked and pending ones too; number of runs.

    Runs that are locked right now are left to the next call, as in `take_over_dead`.
    """
    d = dialect()
    return sum(fail_if_overdue(run_id) for run_id in sql.overdue(d))


def catch_up(run_id: UUID) -> None:
    """Do for one run what workers do for all: end it past its deadline, else let what has come
    wake it."""
    fail_if_overdue(run_id)
    d = dialect()
    with locks.transaction(d):
        run_sql.lock(d, run_id, "for_no_key_update")
        for source in SOURCES:
            routing.route(d, source, [run_id])


def fail_if_overdue(run_id: UUID) -> bool:
    """End a run as failed with DeadlineExceeded, if it is open, not locked and its deadline has
    passed."""
    d = dialect()
    with locks.transaction(d):
        row = run_sql.lock(d, run_id, "for_update", skip_locked=True)
        if row is None or row[1] not in ("pending", "running", "suspended"):
            return False
        deadline = d.epoch(_deadline(d, run_id))
        if deadline is None:
            return False
        error = payloads.encode_error(DeadlineExceeded(run_id, to_local(deadline)))
        end_run(d, run_id, status="failed", error=payloads.dump_error(error))
    emit("run.overdue", logging.WARNING, run=run_id)
    return True


def _deadline(d: Dialect, run_id: UUID) -> Any:
    row = d.one(
        "SELECT {epoch[deadline_at]} FROM {run} WHERE id = %(run)s AND deadline_at <= {now}",
        run=run_id,
    )
    return None if row is None else row[0]


def register_worker(
    worker_id: UUID,
    *,
    name: str,
    host: str,
    pid: int,
    queues: list[str],
    pairs: list[tuple[str, str]],
    lease: timedelta,
) -> None:
    """Make this process known; its row carries the lease of every run that it claims."""
    sql.register_worker(
        dialect(),
        worker_id,
        lease=lease.total_seconds(),
        name=name[:200],
        host=host[:255],
        pid=pid,
        version=_package_version(),
        queues=payloads.dump_json(queues),
        workflows=payloads.dump_json([list(pair) for pair in pairs]),
    )


def _package_version() -> str:
    try:
        return metadata.version("django-workflows")[:50]
    except metadata.PackageNotFoundError:
        return ""


def renew(worker_id: UUID, lease: timedelta, doing: list[Any]) -> bool:
    """Heartbeat: one UPDATE for all runs of the process. False when the row was deleted."""
    return sql.renew(
        dialect(), worker_id, lease=lease.total_seconds(), doing=payloads.dump_json(doing)
    )


def stop_worker(worker_id: UUID) -> None:
    """End the lease of this process."""
    sql.stop_worker(dialect(), worker_id)
