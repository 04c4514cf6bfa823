"""A form built from a workflow's signature."""

from __future__ import annotations

import datetime as dt
import inspect
import typing
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Any
from uuid import UUID

from django import forms
from django.utils.translation import gettext_lazy as _

from django_workflows.admin.actions import ReasonForm
from django_workflows.definitions import WorkflowDefinition

PREFIX = "input_"
FIELDS: dict[Any, Any] = {
    int: forms.IntegerField,
    float: forms.FloatField,
    Decimal: forms.DecimalField,
    str: forms.CharField,
    dt.date: forms.DateField,
    dt.datetime: forms.DateTimeField,
    dt.time: forms.TimeField,
    dt.timedelta: forms.DurationField,
    UUID: forms.UUIDField,
}


class StartForm(ReasonForm):
    """One field per parameter, and the options of a start."""

    workflow_id = forms.CharField(
        label=_("Workflow id"),
        required=False,
        max_length=255,
        help_text=_("Optional. With one, starting twice is the same as once."),
    )

    def __init__(self, definition: WorkflowDefinition, data: Any = None) -> None:
        super().__init__(data)
        self.parameters = parameters(definition)
        own = {f"{PREFIX}{p.name}": field_for(p) for p in self.parameters}
        self.fields = {**own, **self.fields}

    def input(self) -> dict[str, Any]:
        """The input as the form was filled in; what was left empty keeps its default."""
        given: dict[str, Any] = {}
        for parameter in self.parameters:
            value = self.cleaned_data[f"{PREFIX}{parameter.name}"]
            has_default = parameter.default is not parameter.empty
            if value in (None, "") and (has_default or _is_extra(parameter)):
                continue
            given.update(value if _is_extra(parameter) else {parameter.name: value})
        return given

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        for parameter in self.parameters:
            name = f"{PREFIX}{parameter.name}"
            value = cleaned.get(name)
            if _is_extra(parameter) and value and not isinstance(value, dict):
                self.add_error(name, _("Give an object: names and values."))
        return cleaned


def parameters(definition: WorkflowDefinition) -> list[inspect.Parameter]:
    """A workflow's parameters but for the context, annotations resolved where they can be."""
    found = list(definition.signature.parameters.values())[1:]
    try:
        hints = typing.get_type_hints(definition.fn)
    except Exception:
        # A name that is only there for type checkers: such a parameter takes JSON.
        hints = {}
    return [p.replace(annotation=hints.get(p.name, Any)) for p in found]


def _is_extra(parameter: inspect.Parameter) -> bool:
    return parameter.kind is parameter.VAR_KEYWORD


def field_for(parameter: inspect.Parameter) -> forms.Field:
    """The form field of a parameter; JSON for types that no field is made for."""
    has_default = parameter.default is not parameter.empty
    options: dict[str, Any] = {
        "label": parameter.name,
        "required": not has_default and not _is_extra(parameter),
    }
    if has_default and parameter.default is not None:
        options["initial"] = parameter.default
    kind, optional = _plain(parameter.annotation)
    if optional:
        options["required"] = False
    if kind is bool:
        return forms.BooleanField(**{**options, "required": False})
    if typing.get_origin(kind) is typing.Literal:
        return _choice(typing.get_args(kind), options)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _choice(tuple(kind), options)
    if kind in FIELDS and not _is_extra(parameter):
        field: forms.Field = FIELDS[kind](**options)
        return field
    widget = forms.Textarea(attrs={"rows": 3, "class": "wf-json", "spellcheck": "false"})
    return forms.JSONField(**{**options, "widget": widget, "help_text": _("JSON")})


def _plain(annotation: Any) -> tuple[Any, bool]:
    """The type inside `X | None`, and whether None will do."""
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        others = [arg for arg in typing.get_args(annotation) if arg is not NoneType]
        optional = len(others) < len(typing.get_args(annotation))
        return (others[0] if len(others) == 1 else Any), optional
    return annotation, False


def _choice(values: tuple[Any, ...], options: dict[str, Any]) -> forms.Field:
    texts = [str(value.name if isinstance(value, Enum) else value) for value in values]
    by_text = dict(zip(texts, values, strict=True))
    choices = [
        *([] if options["required"] else [("", "---------")]),
        *((text, text) for text in texts),
    ]
    initial = options.get("initial")
    if initial is not None:
        options["initial"] = initial.name if isinstance(initial, Enum) else str(initial)
    return forms.TypedChoiceField(
        **options, choices=choices, coerce=lambda text: by_text[text], empty_value=None
    )
