"""Run a step's function: attempts, timeout, atomic, at most once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from django.db import DatabaseError, IntegrityError, InterfaceError, transaction

from django_workflows import payloads
from django_workflows.conf import config
from django_workflows.db.records import Entry
from django_workflows.definitions import StepOptions, check_name, options_of, refuse_async
from django_workflows.exceptions import LeaseLost, RetryAfter, StepFailed
from django_workflows.runtime import attempts
from django_workflows.runtime.passes import Pass, PassInterrupted, Reason, connection
from django_workflows.store import recorder
from django_workflows.store.runs import Parking

# Of each failed attempt this much is kept; the last error is kept whole beside it.
MAX_ATTEMPTS_KEPT = 20
MAX_ATTEMPT_MESSAGE = 500

UNKNOWN = {
    "type": "OutcomeUnknown",
    "message": "outcome unknown: the worker died in this step, which runs at most once",
    "traceback": "",
}
CRASHED = {
    "type": "WorkerDied",
    "message": "the worker died in the step's last attempt",
    "traceback": "",
}


def call_step(p: Pass, name: str, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`ctx.step`: from the record, or by calling `fn`."""
    p.guard()
    name = check_name(name, "A step's name")
    if not callable(fn):
        raise TypeError(
            f"ctx.step({name!r}, …) needs a callable, not {type(fn).__name__}. Pass the function "
            "itself and its arguments after it: ctx.step(name, fn, arg)."
        )
    refuse_async(fn, "Step")
    options = options_of(fn)
    entry = p.recorded("step", options.name or name)
    if entry is None:
        entry = p.history.new("step", options.name or name, p.time())
        entry.attempts = 0
    elif entry.status == "completed":
        return payloads.decode(entry.result or "null")
    elif entry.status == "failed":
        raise failure(entry)
    elif entry.status == "waiting" and entry.wake_at is not None and entry.wake_at > p.time():
        raise p.suspend(Parking(entry, is_recorded=True))
    return _attempt(p, entry, options, lambda: fn(*args, **kwargs))


def failure(entry: Entry) -> StepFailed:
    """The exception of a failed entry, the same on every replay."""
    error = payloads.load_error(entry.error or "{}")
    return StepFailed(entry.name, error["type"], error["message"], entry.attempts)


def _attempt(p: Pass, entry: Entry, options: StepOptions, fn: Callable[[], Any]) -> Any:
    _count_crashes(p, entry, options)
    p.before_effect()
    entry.attempts += 1
    entry.started_at = p.time()
    entry.wake_at = None
    if options.at_most_once or options.retry.max_attempts == 1 or p.claim.crashes:
        # From here on a crash is known to have been in this very step.
        entry.status = "running"
        p.record(entry)
        p.check_claim()
    try:
        if options.atomic:
            return _call_atomic(p, entry, options, fn)
        value = _call(p, entry, options, fn)
        text, decoded = payloads.roundtrip(value, f"result of step {entry.name!r}")
    except PassInterrupted:
        raise
    except attempts.FAILURES as error:
        _failed(p, entry, options, error)
    entry.status, entry.result, entry.error = "completed", text, None
    _record_result(p, entry)
    return decoded


def _count_crashes(p: Pass, entry: Entry, options: StepOptions) -> None:
    """A worker's death in a step counts as an attempt; the first step after it is taken for it
    unless a record says better."""
    crashed_here = entry.status == "running" and entry.id is not None
    if crashed_here and options.at_most_once:
        _give_up(p, entry, dict(UNKNOWN))
    if not crashed_here:
        # Without a record of its beginning, a step that was perhaps never called keeps its last
        # attempt.
        limit = options.retry.max_attempts
        crashes = p.claim.crashes
        if limit:
            crashes = max(0, min(crashes, limit - 1 - entry.attempts))
        entry.attempts += crashes
    if not options.retry.allows(entry.attempts):
        _give_up(p, entry, dict(CRASHED))


def _call(p: Pass, entry: Entry, options: StepOptions, fn: Callable[[], Any]) -> Any:
    p.current_step = entry.key
    if p.on_step is not None:
        p.on_step(entry.key)
    try:
        with attempts.sheltered(config().database):
            return attempts.call(fn, options.timeout)
    finally:
        p.current_step = None
        if p.on_step is not None:
            p.on_step(None)


def _call_atomic(p: Pass, entry: Entry, options: StepOptions, fn: Callable[[], Any]) -> Any:
    """The function's writes and its record in one transaction: both or neither."""
    recorded = None
    try:
        with transaction.atomic(using=config().database):
            value = _call(p, entry, options, fn)
            text, decoded = payloads.roundtrip(value, f"result of step {entry.name!r}")
            done = replace(entry, status="completed", result=text, error=None)
            try:
                recorded = recorder.record(p.claim, done)
            except LeaseLost as lost:
                raise p.interrupt(Reason.LEASE_LOST, lost) from lost
            except (DatabaseError, InterfaceError) as outage:
                raise p.interrupt(Reason.OUTAGE, outage) from outage
    except (DatabaseError, InterfaceError) as outage:
        if recorded is None:
            raise
        # The COMMIT itself failed: whether it took place, only the record can tell.
        raise p.interrupt(Reason.OUTAGE, outage) from outage
    entry.id, entry.status, entry.result = done.id, done.status, done.result
    p.keep(entry, recorded.run_status)
    return decoded


def _record_result(p: Pass, entry: Entry) -> None:
    """Commit a result, through an outage of the database too, so that work that was done isn't
    done again."""
    pause = 0.05
    while True:
        try:
            p.record(entry)
            return
        except PassInterrupted as interruption:
            # A unique key taken says that the first try was committed after all.
            committed = isinstance(interruption.cause, IntegrityError)
            if interruption.reason is not Reason.OUTAGE or committed or not p.may_wait():
                raise
            p.interruption = None
            connection().close()
            time.sleep(pause)
            pause = min(pause * 2, 2.0)


def _failed(p: Pass, entry: Entry, options: StepOptions, error: BaseException) -> NoReturn:
    """Record a failed attempt: park until the next try, or fail the step."""
    told = payloads.encode_error(error)
    _keep_attempt(p, entry, told)
    retryable = isinstance(error, RetryAfter) or options.retry.is_retryable(error)
    if not retryable or not options.retry.allows(entry.attempts):
        _give_up(p, entry, told, error)
    if isinstance(error, RetryAfter):
        delay = error.delay.total_seconds()
    else:
        delay = options.retry.delay(entry.attempts)
    entry.status, entry.error = "waiting", payloads.dump_error(told)
    entry.wake_at = p.time() + delay
    raise p.suspend(Parking(entry)) from error


def _keep_attempt(p: Pass, entry: Entry, told: dict[str, Any]) -> None:
    """Add a failed attempt to the step's details, where people read how it went."""
    details = payloads.load_json(entry.details) if entry.details else {}
    failed = {
        "number": entry.attempts,
        "type": told["type"],
        # Sealed as errors are: a message may hold what the project's codec is to hide.
        "message": payloads.seal(told["message"][:MAX_ATTEMPT_MESSAGE]),
        "started_at": entry.started_at,
        "at": p.time(),
    }
    details["attempts"] = [*details.get("attempts", ()), failed][-MAX_ATTEMPTS_KEPT:]
    entry.details = payloads.dump_json(details)


def _give_up(
    p: Pass, entry: Entry, told: dict[str, Any], error: BaseException | None = None
) -> NoReturn:
    entry.status, entry.error = "failed", payloads.dump_error(told)
    entry.wake_at = None
    if entry.started_at is None:
        entry.started_at = p.time()
    p.record(entry)
    raise failure(entry) from error
