"""Deliver a signal to the steps that wait for it, and take a delivery for its step."""

from __future__ import annotations

from uuid import UUID

from django_workflows import payloads
from django_workflows.db import records
from django_workflows.db import runs as run_sql
from django_workflows.db import signals as sql
from django_workflows.db.dialects import dialect
from django_workflows.db.postgresql import SIGNAL
from django_workflows.db.records import Entry
from django_workflows.db.serial import serialize
from django_workflows.store import locks
from django_workflows.store.leases import Claim
from django_workflows.store.messages import Claimed, Taken
from django_workflows.telemetry import emit


def send(name: str, data: str, key: str | None) -> list[UUID]:
    """Deliver to every step that waits now; the ids of its runs, oldest wait first."""
    d = dialect()
    names = payloads.dump_json([name])
    with locks.transaction(d):
        if key is not None:
            serialize(d, f"signal:{name}:{key}")
            known = sql.delivered(d, name, key)
            if known:
                return known
        waiting = sql.lock_waiting(d, names)
        if not waiting:
            return []
        reached = sql.deliver(d, waiting, names=names, name=name, data=data, key=key)
        if reached:
            run_sql.notify(d, SIGNAL, "")
    emit("signal.sent", name=name, reached=len(reached))
    return reached


def is_there(step_id: int | None) -> bool:
    """Whether a waiting step has been given its signal."""
    return step_id is not None and sql.of_step(dialect(), step_id) is not None


def take(claim: Claim, entry: Entry, if_none: Entry | None) -> Claimed:
    """Complete a waiting step with the signal that it was given.

    Without one `if_none` is recorded instead, decided under the run's lock.

    Raises:
        LeaseLost: another worker has the run; nothing was written.
    """
    d = dialect()
    with locks.fenced(d, claim.run_id, claim.token) as status:
        if status != "running":
            return Claimed(status, None)
        row = None if entry.id is None else sql.of_step(d, entry.id)
        if row is None:
            if if_none is not None:
                records.write_new(d, claim.run_id, claim.token, if_none)
            return Claimed(status, None)
        taken = Taken(*row)
        entry.status, entry.result, entry.wake_at = "completed", taken.data, None
        entry.details = payloads.dump_json(taken.details())
        records.write_new(d, claim.run_id, claim.token, entry)
    emit("signal.consumed", run=claim.run_id, name=taken.name)
    return Claimed(status, taken)
