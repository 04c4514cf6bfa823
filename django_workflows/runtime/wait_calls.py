"""Sleep and messages: one shape of wait. A schema runs after the claim has committed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.utils import timezone

from django_workflows import payloads
from django_workflows.db.records import Entry
from django_workflows.definitions import MAX_NAME, as_seconds, check_name
from django_workflows.exceptions import MessageTimeout, StepFailed
from django_workflows.fields import to_epoch, to_local
from django_workflows.runtime.passes import Pass
from django_workflows.runtime.step_calls import failure
from django_workflows.schemas import resolve_schema
from django_workflows.store import messages
from django_workflows.store.messages import Claimed
from django_workflows.store.runs import Parking
from django_workflows.values import Message

TIMED_OUT = {"timed_out": True}
NOTHING = {"nothing": True}


def sleep(p: Pass, duration: dt.timedelta | float) -> None:
    """`ctx.sleep`."""
    p.guard()
    seconds = as_seconds(duration, "ctx.sleep()")
    _sleep(p, p.time() + seconds, at_once=seconds == 0)


def sleep_until(p: Pass, when: dt.datetime) -> None:
    """`ctx.sleep_until`."""
    p.guard()
    if not isinstance(when, dt.datetime):
        raise TypeError(f"ctx.sleep_until() needs a datetime, not {type(when).__name__}.")
    if settings.USE_TZ and timezone.is_naive(when):
        raise ValueError(
            f"ctx.sleep_until() needs an aware datetime while USE_TZ is on, got {when!r}. "
            "Take it from ctx.now() or django.utils.timezone.make_aware()."
        )
    wake_at = to_epoch(when)
    as_seconds(max(0.0, wake_at - p.time()), "ctx.sleep_until()")
    _sleep(p, wake_at, at_once=wake_at <= p.time())


def _sleep(p: Pass, wake_at: float, *, at_once: bool) -> None:
    entry = p.recorded("sleep", "sleep")
    if entry is None:
        entry = p.history.new("sleep", "sleep", p.time())
        entry.wake_at = wake_at
        if not at_once:
            entry.status = "waiting"
            raise p.suspend(Parking(entry))
    elif entry.status == "completed":
        return
    elif entry.wake_at is not None and entry.wake_at > p.time():
        raise p.suspend(Parking(entry, is_recorded=True))
    entry.status = "completed"
    p.record(entry)


def check_names(name: str | Sequence[str]) -> tuple[str, ...]:
    """The names to wait for, each checked."""
    names = (name,) if isinstance(name, str) else tuple(name)
    if not names:
        raise ValueError("Waiting for a message needs at least one name.")
    return tuple(check_name(each, "A message's name") for each in names)


def _label(names: tuple[str, ...]) -> str:
    text = "|".join(names)
    if len(text) <= MAX_NAME:
        return text
    return f"{text[: MAX_NAME - 17]}~{sha256(text.encode()).hexdigest()[:16]}"


def wait_for_message(
    p: Pass,
    name: str | Sequence[str],
    timeout: dt.timedelta | float | None,
    schema: Any,
    required: bool,
) -> Message[Any] | None:
    """`ctx.wait_for_message`."""
    p.guard()
    names = check_names(name)
    seconds = None if timeout is None else as_seconds(timeout, "A wait's timeout")
    convert = resolve_schema(schema)
    entry = p.recorded("message", _label(names))
    if entry is None or entry.status == "waiting":
        entry = _wait(p, entry, names, seconds)
        message = _convert_new(p, entry, convert)
    elif entry.status == "failed":
        raise failure(entry)
    else:
        message = _convert(entry, convert)
    if message is None and required:
        asked = names[0] if len(names) == 1 else names
        raise MessageTimeout(asked, None if seconds is None else dt.timedelta(seconds=seconds))
    return message


def _wait(p: Pass, entry: Entry | None, names: tuple[str, ...], seconds: float | None) -> Entry:
    recorded = entry is not None
    if entry is None:
        entry = p.history.new("message", _label(names), p.time())
        entry.details = payloads.dump_json({"names": list(names)})
        entry.started_at = p.time()
        entry.wake_at = None if seconds is None else p.time() + seconds
    is_over = entry.wake_at is not None and entry.wake_at <= p.time()
    nothing = _instead(entry, TIMED_OUT) if is_over else None
    looked: Claimed = p.stored(lambda: messages.take(p.claim, entry, names, nothing))
    if looked.taken is None and nothing is None:
        p.check_status(looked.run_status)
        entry.status = "waiting"
        raise p.suspend(Parking(entry, names, is_recorded=recorded))
    if looked.taken is None and nothing is not None:
        entry.id, entry.status, entry.details = nothing.id, nothing.status, nothing.details
    p.keep(entry, looked.run_status)
    return entry


def _instead(entry: Entry, outcome: dict[str, bool]) -> Entry:
    """The entry as it is recorded when the inbox has nothing."""
    return replace(entry, status="completed", result=None, details=payloads.dump_json(outcome))


def _convert(entry: Entry, convert: Any) -> Message[Any] | None:
    """The message of a completed entry; None for a timeout or an empty inbox."""
    told = payloads.load_json(entry.details).get("message")
    if told is None:
        return None
    data = payloads.decode(entry.result or "null")
    try:
        data = convert(data)
    except Exception as error:
        text = f"message {told['id']} ({told['name']!r}) doesn't fit the schema: {error}"
        raise StepFailed(entry.name, type(error).__name__, text, entry.attempts) from error
    return Message(told["id"], told["name"], data, told["key"], to_local(told["sent_at"]))


def _convert_new(p: Pass, entry: Entry, convert: Any) -> Message[Any] | None:
    """As `_convert`, and record it where the data doesn't fit, so that people see the fault."""
    try:
        return _convert(entry, convert)
    except StepFailed as failed:
        told = {"type": failed.type, "message": failed.message, "traceback": ""}
        entry.status, entry.error = "failed", payloads.dump_error(told)
        p.record(entry)
        raise


def receive_message(p: Pass, name: str | Sequence[str]) -> Message[Any] | None:
    """`ctx.receive_message`."""
    p.guard()
    names = check_names(name)
    entry = p.recorded("receive", _label(names))
    if entry is None:
        new = p.history.new("receive", _label(names), p.time())
        new.details = payloads.dump_json({"names": list(names)})
        nothing = _instead(new, NOTHING)
        looked: Claimed = p.stored(lambda: messages.take(p.claim, new, names, nothing))
        entry = nothing if looked.taken is None else new
        p.keep(entry, looked.run_status)
    return _convert(entry, lambda data: data)
