"""`schema=` of every kind, made one callable data -> value; pydantic is imported here, lazily.

What counts as what, in this order: None; a Django Form class; a type (a pydantic model, dataclass,
TypedDict, Enum, built-in type or typing construct); any other callable, taken as `data -> value`.
Types go to pydantic's TypeAdapter in its lax mode where pydantic is installed ("5" fits int), else
to the converter of our own, which is strict about numbers ("5" doesn't). A class that neither knows
is called with the data.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import lru_cache, partial
from types import GenericAlias, UnionType
from typing import Any

from django.db.models import Model
from django.forms import BaseForm, JSONField
from django.utils.datastructures import MultiValueDict

from django_workflows.schemas.converters import UnknownType, build_converter

ALLOWED = (
    "a dataclass, a TypedDict, a pydantic model, a type that pydantic's TypeAdapter takes, "
    "a Django Form class, or a callable data -> value"
)


def resolve_schema(schema: Any) -> Callable[[Any], Any]:
    """The callable that turns a payload into what `schema` describes.

    Data that doesn't fit makes it raise ValueError (pydantic's ValidationError is one), whose text
    names the place; a callable raises what it likes.

    Raises: TypeError if `schema` is none of the kinds that are allowed.
    """
    if schema is None:
        return _keep
    if form_class(schema) is not None:
        return partial(_clean_form, schema)
    if isinstance(schema, type):
        return _resolve_class(schema)
    if _is_typing_construct(schema):
        return _resolve_type(schema)
    if callable(schema) and not _is_typing_name(schema):
        if inspect.iscoroutinefunction(schema):
            raise TypeError(f"schema {schema_name(schema)} is async; it must be a plain function.")
        return typing.cast(Callable[[Any], Any], schema)
    raise _refuse(schema)


def schema_name(schema: Any) -> str:
    """What people are shown for `schema`; empty for None."""
    if schema is None:
        return ""
    if isinstance(schema, partial):
        return schema_name(schema.func)
    if _is_typing_construct(schema) and not hasattr(schema, "__supertype__"):
        return repr(schema).replace("typing.", "")
    name = getattr(schema, "__qualname__", None) or type(schema).__qualname__
    return str(name).replace("<locals>.", "")


def form_class(schema: Any) -> type[BaseForm] | None:
    """`schema` if it is a Django Form class, else None."""
    return schema if isinstance(schema, type) and issubclass(schema, BaseForm) else None


def _keep(data: Any) -> Any:
    return data


def _refuse(schema: Any) -> TypeError:
    return TypeError(f"schema must be {ALLOWED}, not {schema!r}.")


def _is_typing_construct(schema: Any) -> bool:
    """list[int], int | None, Literal["a"], Annotated[…], NewType and `type X = …`."""
    if isinstance(schema, (GenericAlias, UnionType)) or typing.get_origin(schema) is not None:
        return True
    return schema is Any or hasattr(schema, "__supertype__") or hasattr(schema, "__value__")


def _is_typing_name(schema: Any) -> bool:
    # Bare names such as Optional and TypeVars are callable on some versions, and never a schema.
    return type(schema).__module__ in ("typing", "typing_extensions")


# Only classes are cached, for which building an adapter is dear: they compare by identity, while
# int | str equals str | int, where the order may matter.
@lru_cache(maxsize=256)
def _resolve_class(cls: type) -> Callable[[Any], Any]:
    convert = _find_converter(cls)
    if convert is not None:
        return convert
    # A serializer of Django REST framework is called with an instance, not with data.
    if issubclass(cls, Model) or hasattr(cls, "is_valid"):
        raise TypeError(
            f"schema can't be {cls.__qualname__}, as calling it validates nothing; "
            f"wrap it in a function. Allowed: {ALLOWED}."
        )
    return cls


def _resolve_type(schema: Any) -> Callable[[Any], Any]:
    convert = _find_converter(schema)
    if convert is None:
        raise _refuse(schema)
    return convert


def _find_converter(schema: Any) -> Callable[[Any], Any] | None:
    adapter = _find_adapter(schema)
    if adapter is not None:
        return adapter
    try:
        convert = build_converter(schema)
    except UnknownType as exc:
        if exc.kind is schema:
            return None
        raise
    return lambda data: convert(data, "data")


def _find_adapter(schema: Any) -> Callable[[Any], Any] | None:
    try:
        from pydantic import PydanticUserError, TypeAdapter
    except ImportError:
        return None
    try:
        adapter: Any = TypeAdapter(schema)
    except PydanticUserError:
        # Not a type for pydantic. Before Python 3.12 it refuses typing.TypedDict as well, which
        # the converter of our own takes.
        return None
    return adapter.validate_python if getattr(adapter, "pydantic_complete", True) else None


def _clean_form(form: type[BaseForm], data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"data: {form.__name__} takes a dict, not {type(data).__name__}")
    bound = form(data=_spread(form, data))
    if not bound.is_valid():
        raise ValueError(
            "; ".join(
                f"{'data' if field == '__all__' else f'data.{field}'}: "
                + " ".join(str(error) for error in errors)
                for field, errors in bound.errors.items()
            )
        )
    return dict(bound.cleaned_data)


def _spread(form: type[BaseForm], data: dict[Any, Any]) -> MultiValueDict[str, Any]:
    """`data` as a request would carry it: a list is several values, but for a field of JSON."""
    fields = getattr(form, "base_fields", {})
    return MultiValueDict(
        {
            str(name): list(value)
            if isinstance(value, (list, tuple, set, frozenset))
            and not isinstance(fields.get(name), JSONField)
            else [value]
            for name, value in data.items()
        }
    )
