"""State of one pass over a body: the claim, the record, and what ends the pass for good.

Once a pass is interrupted (parked, lease lost, released, canceled), every further call of its
context raises the same again and records nothing: a body's `finally` and `except BaseException`
can't do durable work for a run that is no longer theirs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_workflows import payloads
from django_workflows.conf import config
from django_workflows.db.records import Entry
from django_workflows.exceptions import (
    ContextMisuse,
    LeaseLost,
    NonDeterminismError,
    WorkflowSuspended,
)
from django_workflows.runtime.history import History
from django_workflows.runtime.inbox import Inbox
from django_workflows.store import recorder, runs
from django_workflows.store.leases import Claim
from django_workflows.store.runs import Parking

# A claim confirmed by the database within this many seconds may begin a step unasked.
CONFIRMED_FOR = 0.1


class Reason(Enum):
    """Why a pass ended before its body did, other than by parking."""

    LEASE_LOST = "its lease was lost"
    ENDED = "the run has ended"
    RELEASED = "the worker is stopping"
    OUTAGE = "the database is away"
    REPLAY = "the record is replayed after each entry"
    RECORD_ENDED = "the record has ended"


class PassInterrupted(WorkflowSuspended):
    """Unwinds a body whose pass is over for a reason that isn't the body's."""

    def __init__(self, reason: Reason, cause: BaseException | None = None) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.cause = cause

    def __str__(self) -> str:
        return f"This pass is over: {self.reason.value}."


def _never() -> bool:
    return False


class Pass:
    """One pass over a body."""

    def __init__(
        self,
        claim: Claim,
        history: History,
        *,
        is_stopping: Callable[[], bool] = _never,
        on_step: Callable[[str | None], None] | None = None,
        replays_always: bool = False,
    ) -> None:
        self.claim = claim
        self.history = history
        self.is_stopping = is_stopping
        self.on_step = on_step
        self._replays_always = replays_always
        self.parking: Parking | None = None
        self.interruption: WorkflowSuspended | None = None
        self.mismatch: NonDeterminismError | None = None
        self.current_step: str | None = None
        self.state: dict[str, Any] = {}
        self.inbox = Inbox(claim, reads_ahead=not replays_always)
        self._thread = threading.get_ident()

    @property
    def run_id(self) -> UUID:
        return self.claim.run_id

    def time(self) -> float:
        """The database's time, seconds since 1970."""
        return self.claim.time()

    def guard(self) -> None:
        """Refuse a call of the context that can't be answered now.

        Raises:
            WorkflowSuspended: the pass is over.
            NonDeterminismError: the pass differed from the record before.
            ContextMisuse: called from another thread, or inside a step's function.
        """
        if threading.get_ident() != self._thread:
            raise ContextMisuse(
                f"ctx of run {self.run_id} was used from another thread. Call it from the "
                "workflow's own thread, and hand plain values to others."
            )
        if self.current_step is not None:
            raise ContextMisuse(
                f"ctx was used inside the function of step {self.current_step!r} of run "
                f"{self.run_id}. A step's function does its work without the context; move the "
                "call into the workflow's body."
            )
        if self.interruption is not None:
            raise self.interruption
        if self.mismatch is not None:
            raise self.mismatch

    def recorded(self, kind: str, name: str) -> Entry | None:
        """The recorded entry for this call, or None where it is new."""
        self.guard()
        try:
            return self.history.next(kind, name)
        except NonDeterminismError as mismatch:
            self.mismatch = mismatch
            raise

    def interrupt(self, reason: Reason, cause: BaseException | None = None) -> PassInterrupted:
        """End the pass; raise what comes back."""
        self.interruption = PassInterrupted(reason, cause)
        return self.interruption

    def suspend(self, parking: Parking) -> WorkflowSuspended:
        """End the pass until what `parking` says; raise what comes back."""
        self.parking = parking
        what = parking.entry.name if parking.names else f"{parking.entry.kind} is due"
        self.interruption = WorkflowSuspended(what)
        return self.interruption

    def before_effect(self) -> None:
        """Make sure that a step may begin: not stopping, and the claim still stands.

        Raises:
            PassInterrupted: it may not.
        """
        if self.is_stopping():
            raise self.interrupt(Reason.RELEASED)
        self.stored(self.inbox.flush)
        self.check_claim()

    def check_claim(self) -> None:
        """Make sure that the claim stands, asking the database unless it has just said so.

        Raises:
            PassInterrupted: it doesn't, or the run has ended.
        """
        # A process that was stopped while it asked holds an old answer, and asks again; one whose
        # database is slow has to believe it.
        for patience in (CONFIRMED_FOR, 10 * CONFIRMED_FOR):
            asked_at = time.monotonic()
            if asked_at - self.claim.confirmed <= patience:
                return
            status = self.stored(lambda: runs.standing(self.claim))
            self.claim.confirmed = asked_at
            if status is None:
                raise self.interrupt(Reason.LEASE_LOST)
            self.check_status(status)

    def check_status(self, status: str) -> None:
        """Stop where the run has been canceled or has failed meanwhile."""
        if status != "running":
            raise self.interrupt(Reason.ENDED)

    def stored(self, write: Callable[[], Any]) -> Any:
        """What `write` returns. What the database refuses ends the pass, whatever a body catches.

        Raises:
            PassInterrupted: the lease was lost, or the database is away.
        """
        try:
            return write()
        except LeaseLost as lost:
            raise self.interrupt(Reason.LEASE_LOST, lost) from lost
        except (DatabaseError, InterfaceError) as outage:
            raise self.interrupt(Reason.OUTAGE, outage) from outage

    def record(self, entry: Entry) -> None:
        """Commit one entry, and take it into the history.

        Raises:
            PassInterrupted: nothing was written; or it was, and the run has ended meanwhile.
        """
        self.stored(self.inbox.flush)
        recorded = self.stored(lambda: recorder.record(self.claim, entry))
        if entry.status != "running":
            self.keep(entry, recorded.run_status)

    def keep(self, entry: Entry, run_status: str) -> None:
        """Take a recorded entry into the history, and stop where the run has ended."""
        self.history.append(entry)
        self.check_status(run_status)
        if self._replays_always:
            raise self.interrupt(Reason.REPLAY)

    def may_wait(self) -> bool:
        """True where this thread may wait for the database to come back."""
        return not self.is_stopping() and not connection().in_atomic_block

    def value(self, name: str, kind: str, make: Callable[[], Any]) -> Any:
        """A recorded value: what `make` gave on the first pass."""
        entry = self.recorded(kind, name)
        if entry is None:
            entry = self.history.new(kind, name, self.time())
            text, value = payloads.roundtrip(make(), f"ctx.{kind}()")
            entry.status, entry.result = "completed", text
            self.record(entry)
            return value
        assert entry.result is not None
        return payloads.decode(entry.result)

    def merge_state(self, values: dict[str, Any]) -> None:
        """`ctx.set_state`: merge, and write unless this was written by an earlier pass.

        Raises:
            PayloadError: nothing is changed.
        """
        self.guard()
        merged = {**self.state, **values}
        text = payloads.encode(merged, "state")
        if not self.history.is_replaying:
            self.stored(self.inbox.flush)
            self.stored(lambda: runs.write_state(self.claim, text))
        self.state = merged


def connection() -> BaseDatabaseWrapper:
    """This thread's connection to the database that holds the workflows."""
    return connections[config().database]
