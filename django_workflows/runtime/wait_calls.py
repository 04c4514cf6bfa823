"""Sleep and messages: one shape of wait. A schema runs after the claim has committed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.utils import timezone

from django_workflows import payloads
from django_workflows.definitions import MAX_NAME, as_seconds, check_message_name, check_name
from django_workflows.exceptions import MessageTimeout
from django_workflows.fields import to_epoch
from django_workflows.runtime.passes import Pass
from django_workflows.runtime.waits import (
    Wait,
    fulfil,
    instead,
    to_message,
    to_new_message,
    wait_seconds,
)
from django_workflows.schemas import form_class, resolve_schema
from django_workflows.store import authority, messages, signals
from django_workflows.store.messages import Claimed
from django_workflows.store.runs import Parking
from django_workflows.values import Message

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
    return tuple(check_message_name(each) for each in names)


def _label(names: tuple[str, ...]) -> str:
    text = "|".join(names)
    if len(text) <= MAX_NAME:
        return text
    return f"{text[: MAX_NAME - 17]}~{sha256(text.encode()).hexdigest()[:16]}"


def _form_reference(schema: Any) -> dict[str, str]:
    """What lets a page offer the wait's own form to whoever sends the message by hand."""
    form = form_class(schema)
    if form is None or "<" in form.__qualname__:
        return {}
    return {"form": authority.reference(form, "schema")}


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
    seconds = wait_seconds(timeout)
    convert = resolve_schema(schema)
    wait = Wait(
        kind="message",
        name=_label(names),
        names=names,
        details={"names": list(names), **_form_reference(schema)},
        take=lambda entry, nothing: p.inbox.take(entry, names, nothing),
        look=lambda entry: messages.is_there(p.run_id, names),
    )
    entry, is_new = fulfil(p, wait, seconds)
    message = to_new_message(p, entry, convert) if is_new else to_message(entry, convert)
    if message is None and required:
        asked = names[0] if len(names) == 1 else names
        raise MessageTimeout(asked, None if seconds is None else dt.timedelta(seconds=seconds))
    return message


def wait_for_signal(
    p: Pass, name: str, timeout: dt.timedelta | float | None, schema: Any
) -> Message[Any] | None:
    """`ctx.wait_for_signal`."""
    p.guard()
    name = check_name(name, "A signal's name")
    seconds = wait_seconds(timeout)
    convert = resolve_schema(schema)
    wait = Wait(
        kind="signal",
        name=name,
        names=(name,),
        details={"names": [name]},
        take=lambda entry, nothing: signals.take(p.claim, entry, nothing),
        look=lambda entry: signals.is_there(entry.id),
        is_broadcast=True,
    )
    entry, is_new = fulfil(p, wait, seconds)
    return to_new_message(p, entry, convert) if is_new else to_message(entry, convert)


def receive_message(p: Pass, name: str | Sequence[str]) -> Message[Any] | None:
    """`ctx.receive_message`."""
    p.guard()
    names = check_names(name)
    entry = p.recorded("receive", _label(names))
    if entry is None:
        new = p.history.new("receive", _label(names), p.time())
        new.details = payloads.dump_json({"names": list(names)})
        nothing = instead(new, NOTHING)
        looked: Claimed = p.stored(lambda: p.inbox.take(new, names, nothing))
        entry = nothing if looked.taken is None else new
        p.keep(entry, looked.run_status)
    return to_message(entry, lambda data: data)
