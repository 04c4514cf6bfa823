"""The one shape of wait: take what is there, or record that the time is over, or park."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django_workflows import payloads
from django_workflows.db.records import Entry
from django_workflows.definitions import as_seconds
from django_workflows.exceptions import StepFailed
from django_workflows.fields import to_local
from django_workflows.runtime.passes import Pass
from django_workflows.runtime.step_calls import failure
from django_workflows.store.messages import Claimed
from django_workflows.store.runs import Parking
from django_workflows.values import Message

TIMED_OUT = {"timed_out": True}


@dataclass(frozen=True)
class Wait:
    """What a body waits for.

    Attributes:
        kind, name: of the entry.
        names: what wakes the run.
        details: what was asked, kept with the waiting entry.
        take: completes the entry with what is there, else records the second entry if given.
        look: tells under the run's lock whether it is there.
        is_broadcast: only what comes once the run waits counts, so it parks first.
    """

    kind: str
    name: str
    names: tuple[str, ...]
    details: dict[str, Any]
    take: Callable[[Entry, Entry | None], Claimed]
    look: Callable[[Entry], bool]
    is_broadcast: bool = False


def wait_seconds(timeout: dt.timedelta | float | None) -> float | None:
    """A wait's timeout in seconds; None for ever."""
    return None if timeout is None else as_seconds(timeout, "A wait's timeout")


def fulfil(p: Pass, wait: Wait, seconds: float | None) -> tuple[Entry, bool]:
    """The completed entry of a wait, and whether this pass completed it.

    Raises:
        WorkflowSuspended: there is nothing yet.
        StepFailed: the wait has failed for good.
    """
    entry = p.recorded(wait.kind, wait.name)
    if entry is None or entry.status == "waiting":
        return _complete(p, wait, entry, seconds), True
    if entry.status == "failed":
        raise failure(entry)
    return entry, False


def _complete(p: Pass, wait: Wait, entry: Entry | None, seconds: float | None) -> Entry:
    is_recorded = entry is not None
    if entry is None:
        entry = p.history.new(wait.kind, wait.name, p.time())
        entry.details = payloads.dump_json(wait.details)
        entry.started_at = p.time()
        entry.wake_at = None if seconds is None else p.time() + seconds
    is_over = entry.wake_at is not None and entry.wake_at <= p.time()
    nothing = instead(entry, TIMED_OUT) if is_over else None
    if wait.is_broadcast and not is_recorded and not is_over:
        raise _park(p, wait, entry, is_recorded=False)
    if wait.kind != "message":
        p.stored(p.inbox.flush)
    looked: Claimed = p.stored(lambda: wait.take(entry, nothing))
    if looked.taken is None and nothing is None:
        p.check_status(looked.run_status)
        raise _park(p, wait, entry, is_recorded=is_recorded)
    if looked.taken is None and nothing is not None:
        entry.id, entry.status, entry.details = nothing.id, nothing.status, nothing.details
    p.keep(entry, looked.run_status)
    return entry


def _park(p: Pass, wait: Wait, entry: Entry, *, is_recorded: bool) -> BaseException:
    entry.status = "waiting"
    look = partial(wait.look, entry)
    return p.suspend(Parking(entry, wait.names, look, is_recorded=is_recorded))


def instead(entry: Entry, outcome: dict[str, Any]) -> Entry:
    """The entry as it is recorded when there is nothing; what was asked stays with it."""
    asked = payloads.load_json(entry.details) if entry.details else {}
    details = payloads.dump_json({**asked, **outcome})
    return replace(entry, status="completed", result=None, wake_at=None, details=details)


def to_message(entry: Entry, convert: Callable[[Any], Any]) -> Message[Any] | None:
    """The message of a completed entry; None for a timeout or an empty inbox.

    Raises:
        StepFailed: the data doesn't fit the schema.
    """
    told = payloads.load_json(entry.details).get("message")
    if told is None:
        return None
    data = payloads.decode(entry.result or "null")
    try:
        data = convert(data)
    except Exception as error:
        why = payloads.encode_error(error)
        text = f"message {told['id']} ({told['name']!r}) doesn't fit the schema: {why['message']}"
        raise StepFailed(entry.name, why["type"], text, entry.attempts) from error
    return Message(told["id"], told["name"], data, told["key"], to_local(told["sent_at"]))


def to_new_message(p: Pass, entry: Entry, convert: Callable[[Any], Any]) -> Message[Any] | None:
    """As `to_message`, and record it where the data doesn't fit, so that people see the fault."""
    try:
        return to_message(entry, convert)
    except StepFailed as failed:
        told = {"type": failed.type, "message": failed.message, "traceback": ""}
        entry.status, entry.error = "failed", payloads.dump_error(told)
        p.record(entry)
        raise
