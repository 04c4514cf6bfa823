"""Why a value can't be stored, and what to pass instead."""

from __future__ import annotations

import inspect
import io
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Iterator, KeysView, ValuesView
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from django.core.files.base import File
from django.db.models import Model, QuerySet
from django.utils.functional import Promise
from django.utils.safestring import SafeString

PLAIN = "a plain value: None, bool, int, float, str, list, dict, or a type of reference/payloads"
Types = type | tuple[type, ...]

# The first that fits, so the narrower types stand first. An empty noun: the name of the type.
_REMEDIES: tuple[tuple[Types, str, str], ...] = (
    (Model, "", "pass its pk"),
    (QuerySet, "", 'pass a list of pks: list(queryset.values_list("pk", flat=True))'),
    (Promise, "a lazy text", "pass str(value)"),
    ((File, io.IOBase), "", "store the file and pass its name"),
    (
        Coroutine,
        "a coroutine",
        "return a plain value; a coroutine is the call of an async function",
    ),
    ((Awaitable, AsyncGenerator), "", "return a plain value"),
    (Iterator, "", "return a plain value, for instance list(value)"),
    (SafeString, "", 'pass value + "", which is a plain str'),
    (BaseException, "", "pass str(value)"),
    ((type, FunctionType, MethodType, BuiltinFunctionType), "", "pass its dotted path as a str"),
    (str, "", "pass str(value)"),
    (int, "", "pass int(value)"),
    (float, "", "pass float(value)"),
    ((bytes, bytearray, memoryview), "", "pass bytes(value)"),
    (dict, "", "pass dict(value)"),
    ((list, range, KeysView, ValuesView), "", "pass list(value)"),
    (set, "", "pass set(value)"),
    (frozenset, "", "pass frozenset(value)"),
    ((datetime, date, time, timedelta, Decimal), "", "pass the plain type that it derives from"),
    (Enum, "", "pass its value"),
)


def describe_refusal(value: Any) -> str:
    """The problem and the remedy for a value of a type that isn't stored."""
    noun, remedy = _find_remedy(value)
    return f"{noun} can't be stored; {remedy}"


def _find_remedy(value: Any) -> tuple[str, str]:
    name = type(value).__name__
    named = f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name} instance"
    if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
        # Nobody will await it now, and Python would warn about that far from here.
        value.close()
    if hasattr(type(value), "model_dump"):
        return named, f"pass value.model_dump(), and read it back with schema={name}"
    if is_dataclass(value) and not isinstance(value, type):
        return named, f"pass dataclasses.asdict(value), and read it back with schema={name}"
    if isinstance(value, tuple):
        extra = " or value._asdict()" if hasattr(type(value), "_asdict") else ""
        return named, f"pass tuple(value){extra}"
    for types, noun, remedy in _REMEDIES:
        if isinstance(value, types):
            return noun or named, remedy
    return named, f"pass {PLAIN}"
