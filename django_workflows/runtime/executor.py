"""One claim: load → body → outcome → one store transition.

The only place that maps exceptions to outcomes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, InterfaceError, InternalError, OperationalError

from django_workflows import payloads
from django_workflows.context import WorkflowContext
from django_workflows.db.records import Entry
from django_workflows.definitions import WorkflowDefinition
from django_workflows.exceptions import (
    LeaseLost,
    NonDeterminismError,
    PayloadError,
    StepFailed,
    WorkflowSuspended,
)
from django_workflows.registry import registry
from django_workflows.runtime.attempts import FAILURES
from django_workflows.runtime.calls import RunCalls
from django_workflows.runtime.history import History
from django_workflows.runtime.passes import Pass, PassInterrupted, Reason, connection
from django_workflows.runtime.step_calls import UNKNOWN
from django_workflows.store import leases, runs
from django_workflows.store.leases import Claim
from django_workflows.telemetry import emit

# What a broken connection, a restart, a failover to a read-only server or SQLite's lock raise.
OUTAGES = (OperationalError, InterfaceError, InternalError)
MAX_PAUSE = 5.0
# Errors of the database that aren't outages, before the run fails for them.
MAX_REFUSALS = 3


class Execution:
    """Executes one claim until its run is parked, ended, given back or lost."""

    def __init__(
        self,
        claim: Claim,
        *,
        is_stopping: Callable[[], bool],
        on_step: Callable[[str | None], None] | None = None,
        replays_always: bool = False,
    ) -> None:
        self.claim = claim
        self.definition: WorkflowDefinition = registry.get(claim.name, claim.version)
        self._is_stopping = is_stopping
        self._on_step = on_step
        self._replays_always = replays_always
        # What the code asked that the record doesn't hold, for tests to raise.
        self.mismatch: NonDeterminismError | None = None
        self._pause = 0.1
        self._refusals = 0
        # When the run is due again as far as this execution knows, by the monotonic clock.
        self.due_at: float | None = None

    def run(self, entries: list[Entry]) -> None:
        """Make passes until one of them settles the claim."""
        history: list[Entry] | None = entries
        while history is not None:
            try:
                history = self._pass(history)
            except LeaseLost:
                self._lost()
                return
            except (DatabaseError, InterfaceError) as error:
                history = self._wait_out(error)

    def _pass(self, entries: list[Entry]) -> list[Entry] | None:
        """One pass; the history for the next one, or None when the claim is settled."""
        p = Pass(
            self.claim,
            History(entries),
            is_stopping=self._is_stopping,
            on_step=self._on_step,
            replays_always=self._replays_always,
        )
        outcome = self._call_body(p)
        if p.mismatch is None and not isinstance(p.interruption, PassInterrupted):
            p.inbox.flush()
        interruption = p.interruption
        if p.mismatch is not None:
            self._back_off(p.mismatch)
        elif isinstance(interruption, PassInterrupted):
            return self._interrupted(p, interruption)
        elif p.parking is not None:
            if not isinstance(outcome, WorkflowSuspended):
                emit("suspension.swallowed", logging.WARNING, run=self.claim.run_id)
            if not runs.park(self.claim, p.parking):
                return p.history.entries
            if p.parking.entry.wake_at is not None:
                self._due_in(p.parking.entry.wake_at - self.claim.time())
        else:
            self._settle(p, outcome)
        return None

    def _call_body(self, p: Pass) -> Any:
        """What the body returned, or what it raised as a `_Raised`."""
        calls = RunCalls(p)
        try:
            # Decoded anew for each pass: a body that changes its input would see it changed.
            given = payloads.decode(self.claim.input)
            result = self.definition.fn(WorkflowContext(calls), **given)
        except WorkflowSuspended as suspended:
            return suspended
        except FAILURES as error:
            result = _Raised(error)
        if p.interruption is None and p.mismatch is None:
            try:
                p.history.check_finished()
            except NonDeterminismError as mismatch:
                p.mismatch = mismatch
        return result

    def _settle(self, p: Pass, outcome: Any) -> None:
        """Complete or fail the run, or try its body again."""
        if isinstance(outcome, WorkflowSuspended):
            # A body that raises a suspension of its own making waits for nothing.
            outcome = _Raised(RuntimeError("The workflow raised WorkflowSuspended by itself."))
        if not isinstance(outcome, _Raised):
            try:
                result, _ = payloads.roundtrip(outcome, "result of the workflow")
                self._finish(p, status="completed", result=result)
                return
            except PayloadError as refused:
                outcome = _Raised(refused)
        error = outcome.error
        if isinstance(error, OUTAGES) and not _is_usable():
            raise error
        policy = self.definition.retry
        if policy.is_retryable(error) and policy.allows(self.claim.attempts):
            forget_from = _failed_at(p, error)
            delay = policy.delay(self.claim.attempts)
            runs.retry_body(self.claim, delay=delay, forget_from=forget_from)
            self._due_in(delay)
            return
        self._finish(p, status="failed", error=payloads.dump_error(payloads.encode_error(error)))

    def _finish(self, p: Pass, **outcome: Any) -> None:
        runs.finish(self.claim, has_children=p.history.has_children, **outcome)

    def _interrupted(self, p: Pass, interruption: PassInterrupted) -> list[Entry] | None:
        if interruption.reason is Reason.RELEASED:
            runs.give_back(self.claim)
        elif interruption.reason is Reason.LEASE_LOST:
            self._lost()
        elif interruption.reason is Reason.OUTAGE:
            assert interruption.cause is not None
            return self._wait_out(interruption.cause)
        elif interruption.reason is Reason.REPLAY:
            return p.history.entries
        return None

    def _lost(self) -> None:
        emit("lease.lost", logging.WARNING, run=self.claim.run_id)

    def _back_off(self, mismatch: NonDeterminismError) -> None:
        """Leave the run to code that matches its record, asking less and less often."""
        delay = min(300.0, 1.0 * 2 ** min(self.claim.problem_count, 10))
        emit("run.nondeterministic", logging.ERROR, run=self.claim.run_id, why=mismatch)
        runs.give_back(self.claim, delay=delay, problem=str(mismatch))
        self._due_in(delay)
        self.mismatch = mismatch

    def _due_in(self, seconds: float) -> None:
        self.due_at = time.monotonic() + max(0.0, seconds)

    def _wait_out(self, error: BaseException) -> list[Entry] | None:
        """Wait until the database answers again: the record as it then stands, to go on from.

        None when the claim is gone, or when this thread has to stop: then the run is left to
        its lease.
        """
        if connection().in_atomic_block:
            raise error
        if not isinstance(error, OUTAGES):
            self._refusals += 1
            if self._refusals >= MAX_REFUSALS:
                told = payloads.dump_error(payloads.encode_error(error))
                runs.finish(self.claim, status="failed", error=told)
                return None
        while True:
            emit("database.away", logging.WARNING, run=self.claim.run_id, error=error)
            connection().close()
            self._sleep(self._pause)
            self._pause = min(self._pause * 2, MAX_PAUSE)
            try:
                status = runs.standing(self.claim)
                if status == "running":
                    self._pause = 0.1
                    return leases.reload_history(self.claim.run_id)
                if status is None:
                    self._lost()
                return None
            except OUTAGES as again:
                error = again
                if self._is_stopping():
                    return None

    def _sleep(self, seconds: float) -> None:
        """Sleep, but not through a stop of the worker."""
        give_up = time.monotonic() + seconds
        while not self._is_stopping() and (left := give_up - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))


class _Raised:
    """A body's exception as an outcome."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _failed_at(p: Pass, error: BaseException) -> int | None:
    """Position from which another attempt of the body starts anew: the step that failed it.

    A step of unknown outcome stays as it is: forgotten, it would be called a second time. So does
    a wait whose message didn't fit: the message is consumed, and its step must not go.
    """
    last = max(p.history.entries, key=lambda entry: entry.seq, default=None)
    if not isinstance(error, StepFailed) or error.type == UNKNOWN["type"] or last is None:
        return None
    is_its_step = (last.kind, last.name, last.status) == ("step", error.step, "failed")
    return last.seq if is_its_step else None


def _is_usable() -> bool:
    wrapper = connection()
    return wrapper.in_atomic_block or (wrapper.connection is not None and wrapper.is_usable())
