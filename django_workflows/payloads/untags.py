"""Reading tags. Nothing named by a stored text is ever called, but for Enum classes."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from importlib import import_module
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django_workflows.exceptions import PayloadError


def untag(value: dict[str, Any]) -> Any:
    """What a tag stands for; any other object is returned as it is."""
    if len(value) != 1:
        return value
    ((key, body),) = value.items()
    if key[:1] != "$":
        return value
    read = _READERS.get(key)
    if read is None:
        # Users' dicts are never written like this, so it isn't theirs to get.
        raise PayloadError("data", f"unknown tag {key!r}; it takes a newer django_workflows")
    return read(body)


def find_enum(reference: str) -> type[Enum]:
    """The Enum class of "module:qualname". Raises: whatever the import does, TypeError."""
    module, _, qualname = reference.partition(":")
    found: Any = import_module(module)
    for name in qualname.split("."):
        found = getattr(found, name)
    if not (isinstance(found, type) and issubclass(found, Enum)):
        raise TypeError(f"{reference} is no Enum class")
    return found


def _read_member(body: list[Any]) -> Enum:
    reference, name = body
    try:
        cls = find_enum(reference)
        if isinstance(name, str):
            return cls[name]
        if issubclass(cls, Flag):
            return cls(name)
        raise TypeError(f"{reference} is no Flag class")
    except Exception as exc:
        raise PayloadError(
            "data",
            f"the Enum member {name!r} of {reference} is gone ({type(exc).__name__}: {exc}); "
            "keep what stored payloads name, under its old name too",
        ) from exc


def _split_marks(text: str) -> tuple[str, ZoneInfo | None, int]:
    """`<iso>[Europe/Berlin][fold=1]`, where both marks may be missing."""
    iso, *marks = text.replace("]", "").split("[")
    fold = 1 if "fold=1" in marks else 0
    zone = next((ZoneInfo(mark) for mark in marks if mark != "fold=1"), None)
    return iso, zone, fold


def _read_datetime(text: str) -> datetime:
    iso, zone, fold = _split_marks(text)
    stored = datetime.fromisoformat(iso).replace(fold=fold)
    if zone is None:
        return stored
    local = stored.replace(tzinfo=zone)
    # The zone's rules may have changed since: then the instant is kept, not what the clock showed.
    return local if local.utcoffset() == stored.utcoffset() else stored.astimezone(zone)


def _read_time(text: str) -> time:
    iso, zone, fold = _split_marks(text)
    stored = time.fromisoformat(iso).replace(fold=fold)
    return stored if zone is None else stored.replace(tzinfo=zone)


_READERS: dict[str, Callable[[Any], Any]] = {
    "$text": "".join,
    "$float": float,
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$dict": dict,
    "$datetime": _read_datetime,
    "$date": date.fromisoformat,
    "$time": _read_time,
    "$timedelta": lambda body: timedelta(*body),
    "$decimal": Decimal,
    "$uuid": UUID,
    "$bytes": b64decode,
    "$enum": _read_member,
}
