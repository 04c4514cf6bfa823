"""The form of a gate: what it asks for, a comment, and two buttons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _

from django_workflows import payloads
from django_workflows.exceptions import PayloadError
from django_workflows.gates.inbox import Gate
from django_workflows.schemas import form_class
from django_workflows.store import authority

PREFIX = "data"


class CommentForm(forms.Form):
    """Why, and which page this is: a second click of one page is the same decision."""

    comment = forms.CharField(
        label=_("Comment"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=_("Optional. Everybody who looks at this run will see it."),
    )
    page = forms.CharField(widget=forms.HiddenInput, max_length=64)


class DataForm(forms.Form):
    """What a gate or a message takes that has no Django Form of its own."""

    value = forms.JSONField(
        label=_("Data (JSON)"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 6, "class": "wf-json", "spellcheck": "false"}),
    )


@dataclass
class GateForm:
    """The forms of one gate's page, bound or not.

    Attributes:
        fault: why the gate's own form can't be shown.
    """

    comment: CommentForm
    data: forms.BaseForm | None
    fault: str = ""

    @property
    def is_plain(self) -> bool:
        """True where data is given as JSON."""
        return isinstance(self.data, DataForm)

    def is_valid(self, *, approved: bool) -> bool:
        """Whether it can be sent; whoever rejects needn't fill in the gate's own form."""
        valid = self.comment.is_valid()
        if not approved or self.data is None:
            return valid
        return self.data.is_valid() and valid

    def value(self, *, approved: bool) -> Any:
        """The decision's data; None for a rejection without it."""
        if self.data is None or not self.data.is_valid():
            return None
        if isinstance(self.data, DataForm):
            return self.data.cleaned_data["value"]
        return form_values(self.data)


def build(gate: Gate, given: QueryDict | None = None) -> GateForm:
    """The forms of a gate, filled with what was posted."""
    initial = {"page": uuid4().hex}
    comment = CommentForm(given, initial=initial)
    path = gate.asked.get("form")
    if not path:
        return GateForm(comment, None)
    try:
        schema = authority.dereference(path)
    except Exception as error:
        return GateForm(comment, None, fault=f"{path}: {error}")
    form: type[forms.BaseForm] = form_class(schema) or DataForm
    return GateForm(comment, form(given, prefix=PREFIX))


def form_values(form: forms.BaseForm) -> dict[str, Any]:
    """What a valid form holds, as a payload from which the same form can be filled again.

    A value that can't be stored (a model instance) is given as the request had it: its key.
    """
    values = {}
    for name, field in form.fields.items():
        value = form.cleaned_data.get(name)
        try:
            payloads.encode(value)
        except PayloadError:
            value = field.widget.value_from_datadict(form.data, form.files, form.add_prefix(name))
        values[name] = value
    return values
