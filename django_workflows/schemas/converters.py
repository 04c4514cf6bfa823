"""Types turned into converters without pydantic: dataclasses, TypedDicts, containers, scalars.

A converter takes data and its path, and returns a value of the type or raises a ValueError that
names the path. It takes what payloads carry: the types themselves, ISO text for dates and times,
text for UUID and Decimal, an Enum's value; nothing else is coerced, and of Annotated only the type
counts.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import typing
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Required
from uuid import UUID

Converter = Callable[[Any, str], Any]
Known = dict[type, Converter]


class UnknownType(TypeError):
    """There is no converter for `kind`."""

    def __init__(self, kind: Any) -> None:
        super().__init__(kind)
        self.kind = kind

    def __str__(self) -> str:
        return (
            f"schema holds {self.kind!r}, a type that can't be read from data; "
            "use a plain type there, or a callable data -> value as the schema"
        )


def build_converter(kind: Any) -> Converter:
    """The converter of a type. Raises: UnknownType, TypeError for annotations without meaning."""
    return _build(kind, {})


def _build(kind: Any, known: Known) -> Converter:
    inner = _unwrap(kind)
    origin = typing.get_origin(inner) or inner
    if origin in _SCALARS:
        return _SCALARS[origin]
    if origin in _GENERIC:
        return _GENERIC[origin](typing.get_args(inner), known)
    if not isinstance(inner, type):
        raise UnknownType(kind)
    if issubclass(inner, Enum):
        return _build_enum(inner)
    if not dataclasses.is_dataclass(inner) and not _is_typed_dict(inner):
        raise UnknownType(kind)
    return known[inner] if inner in known else _build_object(inner, known)


def _unwrap(kind: Any) -> Any:
    """The type inside Annotated, Required, NotRequired, NewType and `type X = …`."""
    while True:
        if typing.get_origin(kind) in (Annotated, Required, NotRequired):
            kind = typing.get_args(kind)[0]
        elif hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        elif type(kind).__name__ == "TypeAliasType":
            kind = kind.__value__
        else:
            return kind


def _mismatch(path: str, wanted: str, data: Any) -> ValueError:
    return ValueError(f"{path}: needs {wanted}, got {type(data).__name__}")


def _child(path: str, key: Any) -> str:
    if isinstance(key, str):
        return f"{path}.{key}" if key.isidentifier() else f'{path}["{key}"]'
    return f"{path}[{key!r}]"


# Scalars


def _keep(data: Any, path: str) -> Any:
    return data


def _exactly(kind: type) -> Converter:
    def convert(data: Any, path: str) -> Any:
        # A bool is an int to isinstance, and a datetime a date.
        if type(data) is kind:
            return data
        raise _mismatch(path, "None" if kind is NoneType else kind.__name__, data)

    return convert


def _from_text(kind: type, parse: Callable[[str], Any], *numbers: type) -> Converter:
    def convert(data: Any, path: str) -> Any:
        if type(data) is kind:
            return data
        if type(data) is not str and type(data) not in numbers:
            raise _mismatch(path, f"{kind.__name__} or its text", data)
        try:
            return parse(str(data))
        except (ValueError, ArithmeticError):
            raise ValueError(f"{path}: this text is no {kind.__name__}") from None

    return convert


def _convert_float(data: Any, path: str) -> float:
    if type(data) not in (int, float):
        raise _mismatch(path, "float", data)
    try:
        return float(data)
    except OverflowError:
        raise ValueError(f"{path}: this int is too large for a float") from None


_SCALARS: dict[Any, Converter] = {
    Any: _keep,
    object: _keep,
    None: _exactly(NoneType),
    **{kind: _exactly(kind) for kind in (NoneType, bool, int, str, bytes, timedelta)},
    float: _convert_float,
    datetime: _from_text(datetime, datetime.fromisoformat),
    date: _from_text(date, date.fromisoformat),
    time: _from_text(time, time.fromisoformat),
    Decimal: _from_text(Decimal, Decimal, int, float),
    UUID: _from_text(UUID, UUID),
}


# Containers, unions and literals


def _build_list(args: tuple[Any, ...], known: Known) -> Converter:
    return _build_items(list, (list, tuple), args, known)


def _build_set(args: tuple[Any, ...], known: Known) -> Converter:
    return _build_items(set, (set, frozenset, list, tuple), args, known)


def _build_frozenset(args: tuple[Any, ...], known: Known) -> Converter:
    return _build_items(frozenset, (set, frozenset, list, tuple), args, known)


def _build_items(
    kind: type, sources: tuple[type, ...], args: tuple[Any, ...], known: Known
) -> Converter:
    item = _build(args[0] if args else Any, known)

    def convert(data: Any, path: str) -> Any:
        if type(data) not in sources:
            raise _mismatch(path, kind.__name__, data)
        items = [item(one, f"{path}[{index}]") for index, one in enumerate(data)]
        try:
            return kind(items)
        except TypeError as exc:
            raise ValueError(f"{path}: {exc}") from exc

    return convert


def _build_tuple(args: tuple[Any, ...], known: Known) -> Converter:
    if not args or args[-1] is Ellipsis:
        return _build_items(tuple, (list, tuple), args, known)
    parts = [_build(arg, known) for arg in args]

    def convert(data: Any, path: str) -> Any:
        if type(data) not in (list, tuple):
            raise _mismatch(path, "tuple", data)
        if len(data) != len(parts):
            raise ValueError(f"{path}: needs {len(parts)} items, got {len(data)}")
        return tuple(
            part(item, f"{path}[{index}]")
            for index, (part, item) in enumerate(zip(parts, data, strict=True))
        )

    return convert


def _build_dict(args: tuple[Any, ...], known: Known) -> Converter:
    key, item = (_build(arg, known) for arg in args or (Any, Any))

    def convert(data: Any, path: str) -> Any:
        if type(data) is not dict:
            raise _mismatch(path, "dict", data)
        return {key(k, f"{path}.keys()"): item(v, _child(path, k)) for k, v in data.items()}

    return convert


def _build_union(args: tuple[Any, ...], known: Known) -> Converter:
    options = [_build(arg, known) for arg in args if arg is not NoneType]
    optional = NoneType in args
    names = " | ".join(getattr(arg, "__name__", repr(arg)) for arg in args)

    def convert(data: Any, path: str) -> Any:
        if data is None and optional:
            return None
        if len(options) == 1:
            return options[0](data, path)
        found = []
        for option in options:
            try:
                found.append(option(data, path))
            except ValueError:
                continue
        if not found:
            raise _mismatch(path, names, data)
        # Text stays text in Decimal | str: the option that leaves the data alone goes first.
        return next((value for value in found if value is data), found[0])

    return convert


def _build_literal(args: tuple[Any, ...], known: Known) -> Converter:
    def convert(data: Any, path: str) -> Any:
        for arg in args:
            if type(arg) is type(data) and arg == data:
                return arg
        raise ValueError(f"{path}: needs one of {', '.join(map(repr, args))}")

    return convert


_GENERIC: dict[Any, Callable[[tuple[Any, ...], Known], Converter]] = {
    list: _build_list,
    collections.abc.Sequence: _build_list,
    set: _build_set,
    frozenset: _build_frozenset,
    tuple: _build_tuple,
    dict: _build_dict,
    collections.abc.Mapping: _build_dict,
    typing.Union: _build_union,
    UnionType: _build_union,
    Literal: _build_literal,
}


# Classes


def _build_enum(cls: type[Enum]) -> Converter:
    def convert(data: Any, path: str) -> Any:
        for member in cls:
            # By type too: IntEnum members equal True and 1.0.
            if data is member or (type(data) is type(member.value) and data == member.value):
                return member
        values = ", ".join(repr(member.value) for member in cls)
        raise ValueError(f"{path}: needs one of {values}")

    return convert


def _is_typed_dict(cls: type) -> bool:
    # typing.is_typeddict doesn't know the class that typing_extensions has for older Pythons.
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def _build_object(cls: Any, known: Known) -> Converter:
    fields: dict[str, tuple[Converter, bool]] = {}
    make: Any = cls if dataclasses.is_dataclass(cls) else dict

    def convert(data: Any, path: str) -> Any:
        if make is cls and type(data) is cls:
            return data
        if type(data) is not dict:
            raise _mismatch(path, f"a dict for {cls.__name__}", data)
        _check_keys(fields, data, path)
        values = {name: fields[name][0](data[name], _child(path, name)) for name in data}
        try:
            return make(**values)
        except (TypeError, ValueError) as exc:
            raise ValueError(f"{path}: {exc}") from exc

    # Known before its fields are read, as a class may hold itself.
    known[cls] = convert
    for name, (kind, required) in _read_fields(cls).items():
        fields[name] = (_build(kind, known), required)
    return convert


def _check_keys(fields: dict[str, tuple[Converter, bool]], data: Any, path: str) -> None:
    for key in data:
        if key not in fields:
            known = ", ".join(fields)
            raise ValueError(f"{_child(path, key)}: unknown key; known: {known}")
    for name, (_, required) in fields.items():
        if required and name not in data:
            raise ValueError(f"{_child(path, name)}: missing")


def _read_fields(cls: Any) -> dict[str, tuple[Any, bool]]:
    """Type and whether it is required, by name."""
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError as exc:
        raise TypeError(
            f"schema {cls.__qualname__} has an annotation that can't be resolved: {exc}; "
            "define the class at the top level of a module"
        ) from exc
    if dataclasses.is_dataclass(cls):
        missing = dataclasses.MISSING
        return {
            field.name: (
                hints[field.name],
                field.default is missing and field.default_factory is missing,
            )
            for field in dataclasses.fields(cls)
            if field.init
        }
    return {name: (hint, _is_required(cls, name, hint)) for name, hint in hints.items()}


def _is_required(cls: Any, name: str, hint: Any) -> bool:
    # The class itself misses the markers where annotations are strings (PEP 563).
    if typing.get_origin(hint) in (Required, NotRequired):
        return typing.get_origin(hint) is Required
    return name in cls.__required_keys__
