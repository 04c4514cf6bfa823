"""Tags: how values that JSON lacks are written, and read again.

A tag is an object with one key that starts with "$", such as `{"$decimal": "9.90"}`. A user's own
dict of that shape is stored under the tag `$dict`, so no payload can forge a tag. Types are
compared exactly, never with isinstance: a subclass would come back as its base, and a replay would
see another type than the first pass did.
"""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django_workflows.exceptions import PayloadError
from django_workflows.payloads.refusals import describe_refusal
from django_workflows.payloads.text import ENCODER, decoder_with, load_json
from django_workflows.payloads.untags import find_enum, untag

MAX_DEPTH = 256
MAX_PATH_STEPS = 12
MAX_KEY_SHOWN = 60

# json.loads joins an escaped high and low surrogate into one character, even if they were two.
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_BETWEEN_SURROGATES = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")

_ATOMS = frozenset({type(None), bool, int, float})
_CONTAINERS = frozenset({list, dict, tuple, set, frozenset})
IMMUTABLE_JSON = _ATOMS | {str}

_load_tagged = decoder_with(untag)


def dump_payload(value: Any, where: str) -> str:
    """The JSON text of a value. Raises: PayloadError, with a path that starts with `where`."""
    if value is None:
        return "null"
    try:
        if _is_plain(value, MAX_DEPTH):
            return ENCODER.encode(value)
    except (ValueError, RecursionError):
        # NaN or an endless int: rare, so the encoder finds it and the careful walk says where.
        pass
    try:
        return ENCODER.encode(_tag(value, _Spot(where)))
    except RecursionError as exc:
        raise PayloadError(
            where, "nested too deep for the recursion limit that is left here; flatten it"
        ) from exc


def load_payload(text: str) -> Any:
    """The value that `dump_payload` wrote. Raises: PayloadError if it can't be read."""
    try:
        return _load_tagged(text) if '"$' in text else load_json(text)
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as exc:
        problem = f"the stored text can't be read: {type(exc).__name__}: {exc}"
        raise PayloadError("data", problem) from exc


def _is_plain(value: Any, room: int) -> bool:
    """Whether json alone round trips the value. The hot path: no paths, no copies."""
    kind = type(value)
    if kind is str:
        return value.isascii() or not _SURROGATE_PAIR.search(value)
    if kind in _ATOMS:
        return True
    if kind is dict:
        if not room or _is_taglike(value):
            return False
        for key, item in value.items():
            if type(key) is not str or not (key.isascii() or _is_plain(key, 0)):
                return False
            if type(item) not in _ATOMS and not _is_plain(item, room - 1):
                return False
        return True
    if kind is list:
        if not room:
            return False
        for item in value:
            if type(item) not in _ATOMS and not _is_plain(item, room - 1):
                return False
        return True
    return False


def _is_taglike(value: dict[Any, Any]) -> bool:
    if len(value) != 1:
        return False
    key = next(iter(value))
    return type(key) is str and key[:1] == "$"


class _Spot:
    """A place in a value; its text is only put together for an error."""

    __slots__ = ("depth", "parent", "step")

    def __init__(self, step: str, parent: _Spot | None = None) -> None:
        self.step = step
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1

    def at(self, key: Any) -> _Spot:
        if type(key) is str:
            shown = key if len(key) <= MAX_KEY_SHOWN else key[:MAX_KEY_SHOWN] + "..."
            return _Spot(f".{key}" if shown.isidentifier() else f"[{ENCODER.encode(shown)}]", self)
        return _Spot(f"[{key}]" if type(key) is int else "[…]", self)

    def refuse(self, problem: str) -> PayloadError:
        return PayloadError(str(self), problem)

    def __str__(self) -> str:
        steps: list[str] = []
        spot: _Spot | None = self
        while spot is not None:
            steps.append(spot.step)
            spot = spot.parent
        steps.reverse()
        return "".join(steps[:MAX_PATH_STEPS]) + ("…" if len(steps) > MAX_PATH_STEPS else "")


def _tag(value: Any, spot: _Spot) -> Any:
    kind = type(value)
    tagger = _TAGGERS.get(kind)
    if tagger is not None:
        if spot.depth >= MAX_DEPTH and kind in _CONTAINERS:
            raise spot.refuse(
                f"nested more than {MAX_DEPTH} levels deep, or it holds itself; "
                "flatten it, or keep it in a model and pass its pk"
            )
        return tagger(value, spot)
    if issubclass(kind, Enum):
        return {"$enum": _name_member(value, spot)}
    raise spot.refuse(describe_refusal(value))


def _keep(value: Any, spot: _Spot) -> Any:
    return value


def _tag_int(value: int, spot: _Spot) -> int:
    try:
        int.__repr__(value)
    except ValueError as exc:
        limit = sys.get_int_max_str_digits()
        raise spot.refuse(
            f"an int of more than {limit:,} digits can't be stored; pass hex(value)"
        ) from exc
    return value


def _tag_float(value: float, spot: _Spot) -> Any:
    return value if value - value == 0.0 else {"$float": repr(value)}


def _tag_text(value: str, spot: _Spot) -> Any:
    parts = _BETWEEN_SURROGATES.split(value)
    return value if len(parts) == 1 else {"$text": parts}


def _tag_items(values: Any, spot: _Spot) -> list[Any]:
    # A comprehension is a frame of its own before Python 3.12, and 256 levels of them would come
    # too near to the recursion limit.
    tagged = []
    for index, item in enumerate(values):
        tagged.append(_tag(item, spot.at(index)))
    return tagged


def _tag_set(values: Any, spot: _Spot) -> list[Any]:
    # Sorted, as a set's order changes from process to process and equal input makes equal text.
    inside = _Spot("[*]", spot)
    return sorted((_tag(item, inside) for item in values), key=ENCODER.encode)


def _tag_dict(values: dict[Any, Any], spot: _Spot) -> Any:
    as_pairs = _is_taglike(values)
    pairs = []
    for index, (key, item) in enumerate(values.items()):
        if type(key) is str:
            tagged_key = _tag_text(key, spot)
        else:
            tagged_key = _tag(key, _Spot(f".keys()[{index}]", spot))
        as_pairs = as_pairs or type(tagged_key) is not str
        pairs.append([tagged_key, _tag(item, spot.at(key))])
    return {"$dict": pairs} if as_pairs else dict(pairs)


def _tag_moment(value: datetime | time, spot: _Spot) -> str:
    text = value.isoformat()
    if value.tzinfo is not None and type(value.tzinfo) is not timezone:
        text += f"[{_name_zone(value.tzinfo, spot)}]"
    return text + "[fold=1]" if value.fold else text


def _name_zone(zone: tzinfo, spot: _Spot) -> str:
    if type(zone) is ZoneInfo and zone.key is not None:
        return zone.key
    raise spot.refuse(
        f"a time zone of type {type(zone).__name__} can't be stored; use zoneinfo.ZoneInfo with a "
        "key or datetime.timezone, for instance value.astimezone(datetime.timezone.utc)"
    )


def _name_member(member: Enum, spot: _Spot) -> list[Any]:
    cls = type(member)
    reference = f"{cls.__module__}:{cls.__qualname__}"
    try:
        importable = cls.__module__ != "__main__" and find_enum(reference) is cls
    except Exception:
        importable = False
    if not importable:
        raise spot.refuse(
            f"the Enum class {reference} can't be imported by that name in a worker; "
            "define it at the top level of a module"
        )
    if member._name_ in cls.__members__:
        return [reference, member._name_]
    # Combined flags are no members, so they have no name that could be looked up.
    return [reference, _tag_int(int(member._value_), spot)]


def _tagged_as(tag: str, body: Callable[[Any, _Spot], Any]) -> Callable[[Any, _Spot], Any]:
    return lambda value, spot: {tag: body(value, spot)}


_TAGGERS: dict[type, Callable[[Any, _Spot], Any]] = {
    type(None): _keep,
    bool: _keep,
    int: _tag_int,
    float: _tag_float,
    str: _tag_text,
    list: _tag_items,
    dict: _tag_dict,
    tuple: _tagged_as("$tuple", _tag_items),
    set: _tagged_as("$set", _tag_set),
    frozenset: _tagged_as("$frozenset", _tag_set),
    datetime: _tagged_as("$datetime", _tag_moment),
    time: _tagged_as("$time", _tag_moment),
    date: _tagged_as("$date", lambda value, spot: value.isoformat()),
    timedelta: _tagged_as("$timedelta", lambda v, spot: [v.days, v.seconds, v.microseconds]),
    Decimal: _tagged_as("$decimal", lambda value, spot: str(value)),
    UUID: _tagged_as("$uuid", lambda value, spot: str(value)),
    bytes: _tagged_as("$bytes", lambda value, spot: b64encode(value).decode("ascii")),
}
