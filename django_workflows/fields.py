"""Columns of our own: payload text that becomes a value in Python, and instants in UTC."""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.conf import settings
from django.db import models
from django.utils import timezone

from django_workflows import payloads
from django_workflows.payloads import Encoded

if TYPE_CHECKING:
    _TextField = models.TextField[Any, Any]
    _DateTimeField = models.DateTimeField[Any, Any]
else:
    _TextField, _DateTimeField = models.TextField, models.DateTimeField

_lock = threading.Lock()
_last = 0


def uuid7() -> UUID:
    """A time-ordered UUID (RFC 9562, version 7), increasing within this process.

    Random keys scatter inserts over the whole index; these keep them at its right end.
    """
    global _last
    with _lock:
        # 48 bits of milliseconds, then 12 bits of the millisecond's fraction.
        stamp = time.time_ns() * 4096 // 1_000_000
        _last = stamp = max(stamp, _last + 1)
    milliseconds, fraction = divmod(stamp, 4096)
    tail = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    return UUID(
        int=(milliseconds & ((1 << 48) - 1)) << 80 | 7 << 76 | fraction << 64 | 2 << 62 | tail
    )


class _LazyPayload:
    """Decodes on first access, so that a list of runs pays for no payload that it doesn't show."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: models.Model | None, owner: type[models.Model]) -> Any:
        if instance is None:
            return self
        values = instance.__dict__
        if self.name not in values:
            instance.refresh_from_db(fields=[self.name])
        value = values[self.name]
        if isinstance(value, Encoded):
            value = values[self.name] = payloads.decode(value)
        return value

    def __set__(self, instance: models.Model, value: Any) -> None:
        instance.__dict__[self.name] = value


class PayloadField(_TextField):
    """Readable JSON text in the database, the value in Python.

    A text column because jsonb reorders keys, folds numbers and refuses NUL; NULL is None.
    """

    def contribute_to_class(
        self, cls: type[models.Model], name: str, private_only: bool = False
    ) -> None:
        super().contribute_to_class(cls, name, private_only)
        setattr(cls, name, _LazyPayload(name))

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        return None if value is None else Encoded(value)

    def get_prep_value(self, value: Any) -> str | None:
        if value is None and self.null:
            return None
        if isinstance(value, Encoded):
            return str.__str__(value)
        return payloads.encode(value, self.name)

    # Fixtures hold the encoded text, so that dumpdata and loaddata keep every type. Django asks
    # to_python() for what a fixture says, and for values in clean(), which are no text.
    def to_python(self, value: Any) -> Any:
        return Encoded(value) if isinstance(value, str) else value

    def clean(self, value: Any, model_instance: models.Model | None) -> Any:
        return value

    def value_from_object(self, obj: models.Model) -> Encoded | None:
        text = self.get_prep_value(getattr(obj, self.attname))
        return None if text is None else Encoded(text)

    def value_to_string(self, obj: models.Model) -> str:
        return self.value_from_object(obj) or ""


class InstantField(_DateTimeField):
    """A point in time, stored as such on SQLite too.

    Django stores local times on SQLite when USE_TZ is off, which repeat for an hour when the
    clocks go back; a run that sleeps a day over that night would wake an hour off.
    """

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        if connection.vendor != "sqlite":
            return super().get_db_prep_value(value, connection, prepared)
        value = value if prepared else self.get_prep_value(value)
        if not isinstance(value, dt.datetime):
            return super().get_db_prep_value(value, connection, prepared=True)
        return sqlite_text(value)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        if connection.vendor != "sqlite" or not isinstance(value, dt.datetime):
            return value
        aware = value.replace(tzinfo=dt.UTC)
        return aware if settings.USE_TZ else timezone.make_naive(aware)


def sqlite_text(value: dt.datetime) -> str:
    """How SQLite holds an instant: UTC, in text that sorts by time."""
    aware = timezone.make_aware(value) if timezone.is_naive(value) else value
    return str(aware.astimezone(dt.UTC).replace(tzinfo=None))


def to_local(epoch: float) -> dt.datetime:
    """A datetime as Django hands them out: aware in UTC, or naive local when USE_TZ is off."""
    whole = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=round(epoch * 1e6))
    return whole if settings.USE_TZ else timezone.make_naive(whole)


def to_epoch(value: dt.datetime) -> float:
    """Seconds since 1970 of a datetime; a naive one is taken in the current time zone."""
    return (timezone.make_aware(value) if timezone.is_naive(value) else value).timestamp()
