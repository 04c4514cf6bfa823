"""Start, get, park, finish, give back, cancel. Not claiming."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Case, When

from django_workflows import payloads
from django_workflows.db import records
from django_workflows.db import runs as sql
from django_workflows.db.base import Dialect
from django_workflows.db.dialects import dialect
from django_workflows.db.postgresql import DUE, LATER
from django_workflows.db.records import Entry
from django_workflows.exceptions import (
    LeaseLost,
    RunFinished,
    RunNotFound,
    WorkflowAlreadyStarted,
)
from django_workflows.fields import to_local, uuid7
from django_workflows.models import WorkflowRun
from django_workflows.querysets import OPEN_STATUSES
from django_workflows.store import locks, recorder
from django_workflows.store.ending import canceled_error, close_children, end_run, tell_parent
from django_workflows.store.leases import Claim
from django_workflows.telemetry import emit

ID_CONFLICT = ("return", "raise")
ID_REUSE = ("return", "raise", "allow", "allow_failed")


@dataclass(frozen=True, slots=True)
class NewRun:
    """What a start asks for, checked and encoded.

    Attributes:
        run_at, deadline_at: seconds since 1970, or None.
        run_in, deadline_in: seconds from the database's now.
    """

    workflow_name: str
    version: str
    queue_name: str
    input: str
    workflow_id: str | None = None
    priority: int = 0
    run_at: float | None = None
    run_in: float = 0.0
    deadline_at: float | None = None
    deadline_in: float | None = None
    subject_key: tuple[str, str] = ("", "")
    id_conflict: str = "return"
    id_reuse: str = "return"
    parent_id: UUID | None = None
    on_parent_close: str = ""
    rerun_of_id: UUID | None = None
    state: str = "{}"

    @property
    def is_due(self) -> bool:
        return self.run_at is None and self.run_in == 0


def start(new: NewRun) -> WorkflowRun:
    """Record a run; with a workflow id, once."""
    d = dialect()
    if new.workflow_id is None:
        run = insert_unless_open(d, new)
        assert run is not None
        return run
    with locks.transaction(d):
        return _start_once(d, new)


def find_open(d: Dialect, workflow_id: str) -> WorkflowRun | None:
    """Lock the open run of a workflow id as a sender does; None when there is none now."""
    runs = WorkflowRun.objects.using(d.alias).filter(workflow_id=workflow_id)
    found = runs.open().first()
    if found is None:
        return None
    row = sql.lock(d, found.pk, "for_key_share")
    return found if row is not None and row[1] in OPEN_STATUSES else None


def newest(d: Dialect, workflow_id: str, but: UUID | None = None) -> WorkflowRun | None:
    """The newest run of a workflow id, ended or not."""
    runs = WorkflowRun.objects.using(d.alias).filter(workflow_id=workflow_id)
    if but is not None:
        runs = runs.exclude(pk=but)
    return runs.order_by("-id").first()


def _start_once(d: Dialect, new: NewRun) -> WorkflowRun:
    while True:
        found = _find(d, new)
        if found is not None and (settled := _settle(new, found)) is not None:
            return settled
        run = insert_unless_open(d, new)
        if run is None:
            # Another caller's start has committed in between: look again.
            continue
        # Only now that no other run of this id can start is it certain that none has ended since
        # the look.
        ended = _find(d, new, but=run.pk)
        if ended is None or (settled := _settle(new, ended, undo=run)) is None:
            return run
        return settled


def _find(d: Dialect, new: NewRun, but: UUID | None = None) -> WorkflowRun | None:
    runs = WorkflowRun.objects.using(d.alias).filter(workflow_id=new.workflow_id)
    if but is not None:
        runs = runs.exclude(pk=but)
    is_open = Case(When(status__in=OPEN_STATUSES, then=0), default=1)
    return runs.order_by(is_open, "-id").first()


def _settle(new: NewRun, found: WorkflowRun, undo: WorkflowRun | None = None) -> WorkflowRun | None:
    """The run that answers this start, or None when a new one is wanted."""
    if found.workflow_name == new.workflow_name and found.is_finished:
        succeeded = found.status == "completed"
        if new.id_reuse == "allow" or (new.id_reuse == "allow_failed" and not succeeded):
            return None
    if undo is not None:
        WorkflowRun.objects.using(undo._state.db).filter(pk=undo.pk).delete()
    refused = new.id_reuse if found.is_finished else new.id_conflict
    if found.workflow_name != new.workflow_name or refused == "raise":
        raise WorkflowAlreadyStarted(found, new.workflow_name)
    found.deduplicated = True
    return found


def insert_unless_open(d: Dialect, new: NewRun) -> WorkflowRun | None:
    """Insert a run; None when an open one has its workflow id."""
    run_id = uuid7()
    subject_type, subject_pk = new.subject_key
    columns: dict[str, Any] = {
        "id": run_id,
        "workflow_id": new.workflow_id or str(run_id),
        "workflow_name": new.workflow_name,
        "version": new.version,
        "queue_name": new.queue_name,
        "priority": new.priority,
        "input": new.input,
        "state": new.state,
        "parent_id": new.parent_id,
        "on_parent_close": new.on_parent_close,
        "rerun_of_id": new.rerun_of_id,
        "subject_type": subject_type,
        "subject_pk": subject_pk,
    }
    row = sql.insert(
        d,
        run_at=new.run_at,
        run_in=new.run_in,
        deadline_at=new.deadline_at,
        deadline_in=new.deadline_in,
        notify_as=DUE if new.is_due else LATER,
        **columns,
    )
    if row is None:
        return None
    created_at, available_at, deadline_at = row
    run = WorkflowRun(
        **{**columns, "input": payloads.Encoded(new.input), "state": payloads.Encoded(new.state)},
        created_at=to_local(created_at),
        available_at=to_local(available_at),
        deadline_at=None if deadline_at is None else to_local(deadline_at),
    )
    run._state.adding = False
    run._state.db = d.alias
    emit("run.started", run=run_id, workflow=new.workflow_name)
    return run


def get(run_id: UUID) -> WorkflowRun:
    """The run of this id.

    Raises:
        RunNotFound: there is none.
    """
    try:
        return WorkflowRun.objects.using(dialect().alias).get(pk=run_id)
    except WorkflowRun.DoesNotExist:
        raise RunNotFound(run_id) from None


def get_by_workflow_id(workflow_id: str) -> WorkflowRun:
    """The open run of this workflow id, else the newest.

    Raises:
        RunNotFound: there is none.
    """
    runs = WorkflowRun.objects.using(dialect().alias).filter(workflow_id=workflow_id)
    run = runs.open().first() or runs.order_by("-id").first()
    if run is None:
        raise RunNotFound(workflow_id, kind="workflow id")
    return run


def cancel(run_id: UUID, reason: str) -> WorkflowRun:
    """End a run as canceled at once; again on a canceled run changes nothing.

    Raises:
        RunNotFound: there is no such run.
        RunFinished: it has completed or failed.
    """
    d = dialect()
    with locks.locked_run(d, run_id, "for_update") as (status, _token):
        if status in ("completed", "failed"):
            raise RunFinished(run_id, status)
        if status != "canceled":
            end_run(d, run_id, status="canceled", error=canceled_error(reason))
    return get(run_id)


def wake(run_id: UUID) -> WorkflowRun:
    """Make a parked or pending run due at once, for an operator who won't wait for its backoff.

    A step that waits for its next attempt is tried now, and so is a body that backs off or a start
    put off with `run_after`. A wait for a message, signal, gate or child is looked at again, and a
    sleep too, but neither is cut short: nothing there, and the run parks again until the same time.
    A running run is left alone.

    Raises:
        RunNotFound: there is no such run.
        RunFinished: it has ended.
    """
    d = dialect()
    with locks.locked_run(d, run_id, "for_no_key_update") as (status, _token):
        if status not in OPEN_STATUSES:
            raise RunFinished(run_id, status)
        is_woken = sql.wake(d, run_id)
        run = get(run_id)
        if is_woken:
            sql.notify(d, DUE, run.queue_name)
    emit("run.woken", run=run_id, was_due=not is_woken)
    return run


@dataclass(slots=True)
class Parking:
    """What a body waits for when it unwinds.

    Attributes:
        entry: the waiting step's entry; written unless it stands already.
        names: what wakes the run (names of messages, a signal's, a child's id); empty for a
            sleep or a retry.
        look: tells, under the run's lock, whether what it waits for is there already.
        is_recorded: the entry stands as it is.
    """

    entry: Entry
    names: tuple[str, ...] = ()
    look: Callable[[], bool] | None = None
    is_recorded: bool = False


def park(claim: Claim, parking: Parking) -> bool:
    """Record the wait and give the claim back; False when what it waits for is there after all.

    Raises:
        LeaseLost: another worker has the run, or it has ended; nothing was written.
    """
    d = dialect()
    entry = parking.entry
    names = payloads.dump_json(list(parking.names)) if parking.names else ""
    emit("run.parking", run=claim.run_id)
    with locks.fenced(d, claim.run_id, claim.token) as status:
        if parking.look is not None and parking.look():
            return False
        emit("park.looked", run=claim.run_id)
        if not parking.is_recorded and status == "running":
            records.write(d, claim.run_id, claim.token, entry)
            if claim.crashes:
                sql.forget_crashes(d, claim.run_id, claim.token)
        if not sql.park(
            d,
            claim.run_id,
            claim.token,
            kind=entry.kind,
            names=names,
            since=entry.created_at,
            wake_at=entry.wake_at,
        ):
            raise LeaseLost(claim.run_id)
    emit("run.parked", run=claim.run_id, waiting_for=entry.name)
    return True


def finish(
    claim: Claim,
    *,
    status: str,
    result: str | None = None,
    error: str | None = None,
    has_children: bool = False,
) -> None:
    """End a claimed run with its result or error.

    Args:
        has_children: some may have to be closed with it.

    Raises:
        LeaseLost: another worker has the run, or it has been ended otherwise meanwhile.
    """
    d = dialect()
    with locks.transaction(d) if has_children or claim.parent else nullcontext():
        if not recorder.finish(claim, status=status, result=result, error=error):
            raise LeaseLost(claim.run_id)
        if claim.parent is not None:
            tell_parent(d)
        if has_children:
            close_children(d, claim.run_id)
    emit("run.ended", run=claim.run_id, status=status)


def give_back(claim: Claim, *, delay: float = 0.0, problem: str = "") -> bool:
    """Give a claim back, due after `delay` seconds; `problem` tells people why it is stuck."""
    d = dialect()
    given = sql.give_back(d, claim.run_id, claim.token, delay=delay, problem=problem)
    if given and delay == 0:
        sql.notify(d, DUE, claim.queue_name)
    emit("run.released", run=claim.run_id, delay=delay)
    return given


def retry_body(claim: Claim, *, delay: float, forget_from: int | None) -> None:
    """Give a claim back for another attempt of the body; entries from `forget_from` are undone.

    Raises:
        LeaseLost: another worker has the run, or it has ended; nothing was changed.
    """
    d = dialect()
    with locks.fenced(d, claim.run_id, claim.token) as status:
        if status != "running":
            raise LeaseLost(claim.run_id)
        if forget_from is not None:
            records.forget(d, claim.run_id, claim.token, forget_from)
        sql.give_back(d, claim.run_id, claim.token, delay=delay, attempts=1)
    emit("run.retrying", run=claim.run_id, delay=delay)


def write_state(claim: Claim, state: str) -> None:
    """Store what `ctx.set_state` gave.

    Raises:
        LeaseLost: another worker has the run.
    """
    if not sql.write_state(dialect(), claim.run_id, claim.token, state):
        raise LeaseLost(claim.run_id)


def standing(claim: Claim) -> str | None:
    """The run's status while the claim holds, else None."""
    return sql.standing(dialect(), claim.run_id, claim.token)
