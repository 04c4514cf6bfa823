"""Send a message, take it for a step, list."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django_workflows import payloads
from django_workflows.db import inbox as sql
from django_workflows.db import records
from django_workflows.db import runs as run_sql
from django_workflows.db.base import Row
from django_workflows.db.dialects import dialect
from django_workflows.db.records import Entry
from django_workflows.exceptions import LeaseLost, RunFinished, RunNotFound
from django_workflows.fields import to_local
from django_workflows.models import WorkflowMessage, WorkflowRun
from django_workflows.querysets import OPEN_STATUSES, MessageQuerySet
from django_workflows.store import locks
from django_workflows.store.leases import Claim
from django_workflows.telemetry import emit


def send(
    run_id: UUID, name: str, data: str, key: str | None, *, decides: str | None = None
) -> WorkflowMessage | None:
    """Store a message for a run, or find the one that this key stored before.

    Args:
        decides: for a decision, what it decides; None comes back when that is decided already.

    Raises:
        RunNotFound: there is no such run.
        RunFinished: the run has ended, and the key is new.
    """
    d = dialect()
    stored = sql.send(d, run_id, name=name, data=data, key=key, decides=decides)
    if stored is None:
        return _explain(run_id, key, decides)
    message = WorkflowMessage(
        id=stored[0],
        run_id=run_id,
        name=name,
        data=payloads.Encoded(data),
        idempotency_key=key,
        created_at=to_local(stored[1]),
    )
    message._state.adding = False
    message._state.db = d.alias
    emit("message.stored", run=run_id, name=name, id=message.pk)
    return message


def _explain(run_id: UUID, key: str | None, decides: str | None) -> WorkflowMessage | None:
    # A later statement than the insert: it sees a twin that the insert had to wait for.
    alias = dialect().alias
    known = key is not None and find(run_id, key)
    if known:
        known.deduplicated = True
        return known
    status = WorkflowRun.objects.using(alias).filter(pk=run_id).values_list("status", flat=True)
    found = status.first()
    if found is None:
        raise RunNotFound(run_id)
    if decides is not None and found in OPEN_STATUSES:
        return None
    raise RunFinished(run_id, found)


def find(run_id: UUID, key: str) -> WorkflowMessage | None:
    """The message that a run has accepted with this key."""
    messages = WorkflowMessage.objects.using(dialect().alias)
    return messages.filter(run_id=run_id, idempotency_key=key).first()


def listing(run_id: UUID, state: str | None, name: str | None) -> MessageQuerySet:
    """Messages of a run, oldest first.

    Raises:
        RunNotFound: there is no such run.
    """
    alias = dialect().alias
    if not WorkflowRun.objects.using(alias).filter(pk=run_id).exists():
        raise RunNotFound(run_id)
    messages = WorkflowMessage.objects.using(alias).filter(run_id=run_id).order_by("id")
    if state == "pending":
        messages = messages.pending()
    elif state == "consumed":
        messages = messages.consumed()
    return messages if name is None else messages.filter(name=name)


def is_there(run_id: UUID, names: tuple[str, ...]) -> bool:
    """Whether the inbox holds a pending message of any of the names."""
    return sql.oldest(dialect(), run_id, names) is not None


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that a step has consumed; `data` is encoded text, `sent_at` an epoch."""

    id: int
    name: str
    data: str
    key: str | None
    sent_at: float

    def details(self) -> dict[str, Any]:
        """What the step's details say about it."""
        told = {"id": self.id, "name": self.name, "key": self.key, "sent_at": self.sent_at}
        return {"message": told}


@dataclass(slots=True)
class Claimed:
    """Outcome of a look into the inbox: the run's status, and the message if there was one."""

    run_status: str
    taken: Taken | None


def take(claim: Claim, entry: Entry, names: tuple[str, ...], if_none: Entry | None) -> Claimed:
    """Give the oldest message of any of the names to a step, recorded in the same commit.

    Without one `if_none` is recorded instead, decided under the run's lock; with `if_none` None
    nothing is written. A run that was ended meanwhile takes nothing.

    Raises:
        LeaseLost: another worker has the run; nothing was written.
    """
    d = dialect()
    if d.writes_with:
        asked_at = time.monotonic()
        row = sql.take(d, claim.run_id, claim.token, entry, names)
        if row is None:
            raise LeaseLost(claim.run_id)
        claim.confirmed = asked_at
        if row[1] is not None:
            return _took(claim, entry, row[0], Taken(*row[2:]), int(row[1]))
        if if_none is None:
            return Claimed(row[0], None)
    with locks.fenced(d, claim.run_id, claim.token) as status:
        if status != "running":
            return Claimed(status, None)
        found = sql.oldest(d, claim.run_id, names)
        if found is None:
            if if_none is not None:
                records.write_new(d, claim.run_id, claim.token, if_none)
            return Claimed(status, None)
        taken, step_id = _record_taken(claim, entry, found)
    # Told only once it has been committed.
    return _took(claim, entry, status, taken, step_id)


def read_ahead(run_id: UUID, names: tuple[str, ...]) -> list[Taken]:
    """The oldest pending messages of any of the names, for a body that consumes many.

    A send that commits after this look can't have to come before one that had committed by then.
    """
    d = dialect()
    if not d.writes_with:
        return []
    return [Taken(*row) for row in sql.ahead(d, run_id, names)]


def fill(entry: Entry, taken: Taken) -> None:
    """Make an entry the record of a wait that took a message read ahead."""
    entry.status, entry.result, entry.wake_at = "completed", taken.data, None
    entry.details = payloads.dump_json(taken.details())
    entry.message = taken.id


def _record_taken(claim: Claim, entry: Entry, found: Row) -> tuple[Taken, int]:
    d = dialect()
    taken = Taken(*found)
    entry.status, entry.result = "completed", taken.data
    entry.details = payloads.dump_json(taken.details())
    entry.wake_at = None
    step_id = records.write_new(d, claim.run_id, claim.token, entry)
    if not sql.mark_consumed(d, taken.id, step_id):
        raise LeaseLost(claim.run_id)
    return taken, step_id


def _took(claim: Claim, entry: Entry, status: str, taken: Taken, step_id: int) -> Claimed:
    entry.id, entry.status, entry.result = step_id, "completed", taken.data
    entry.details = payloads.dump_json(taken.details())
    if claim.crashes:
        run_sql.forget_crashes(dialect(), claim.run_id, claim.token)
        claim.crashes = 0
    emit("message.consumed", run=claim.run_id, name=taken.name, id=taken.id)
    return Claimed(status, taken)
