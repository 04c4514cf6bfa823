"""Send a message by hand: the name that is waited for, its own form or JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django import forms
from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from django_workflows import api
from django_workflows.admin import display, log
from django_workflows.admin.actions import ReasonForm, RunAction, alias, offer
from django_workflows.admin.timeline import load_details
from django_workflows.definitions import check_message_name
from django_workflows.gates.forms import PREFIX, DataForm, form_values
from django_workflows.models import WorkflowRun, WorkflowStep
from django_workflows.schemas import form_class
from django_workflows.store import authority


class SendForm(ReasonForm):
    """To which wait, and why; what it says is a form of its own."""

    field_order = ("name", "reason")
    name = forms.CharField(
        label=_("Name"),
        max_length=200,
        widget=forms.TextInput(attrs={"list": "wf-names", "autocomplete": "off"}),
        help_text=_("Exactly as the workflow waits for it."),
    )
    page = forms.CharField(widget=forms.HiddenInput, max_length=64)

    def clean_name(self) -> str:
        try:
            return check_message_name(self.cleaned_data["name"])
        except ValueError as refused:
            raise forms.ValidationError(str(refused)) from refused


@dataclass(frozen=True)
class SendForms:
    """Both forms of the page."""

    message: SendForm
    data: forms.BaseForm


@offer
class SendMessage(RunAction):
    name = "send"
    permission = "django_workflows.send_message"
    label = _("Send a message")
    title = _("Send a message to this run")
    explanation = _("It is stored at once, and taken by the step that waits for its name.")
    template = "admin/django_workflows/send_message.html"

    @classmethod
    def suits(cls, run: WorkflowRun) -> bool:
        return not run.is_finished

    def form(self, request: HttpRequest, run: WorkflowRun) -> SendForms:
        self.waits = waits_of(run)
        given = request.POST if request.method == "POST" else None
        first = next(iter(self.waits), "")
        name = (given or request.GET).get("name") or first
        message = SendForm(given, initial={"name": name, "page": uuid4().hex})
        kind: type[forms.BaseForm] = self.waits.get(name) or DataForm
        return SendForms(message, kind(given, prefix=PREFIX))

    def is_valid(self, form: SendForms) -> bool:
        is_valid = form.message.is_valid()
        return form.data.is_valid() and is_valid

    def given(self, form: SendForms) -> dict[str, Any]:
        is_json = isinstance(form.data, DataForm)
        data = form.data.cleaned_data["value"] if is_json else form_values(form.data)
        return {**form.message.cleaned_data, "data": data}

    def perform(self, request: HttpRequest, run: WorkflowRun, given: dict[str, Any]) -> str:
        name = given["name"]
        # One page is one message, however often its button is clicked.
        key = f"admin:{given['page']}"
        message = api.send_message(run, name, given["data"], idempotency_key=key)
        if not message.deduplicated:
            told = _t("Sent message “%(name)s” (#%(id)s).") % {"name": name, "id": message.pk}
            log.record(request, run, told, given["reason"])
        messages.success(request, _t("The message “%(name)s” is sent.") % {"name": name})
        return self.url(run)

    def more(self, request: HttpRequest, run: WorkflowRun, form: SendForms) -> dict[str, Any]:
        return {
            "names": [display.cut(name, 200) for name in self.waits],
            "is_json": isinstance(form.data, DataForm),
        }


def waits_of(run: WorkflowRun) -> dict[str, type[forms.BaseForm] | None]:
    """Names of messages that the run waits for now, each with its Django Form if it has one."""
    steps = WorkflowStep.objects.using(alias()).filter(run=run, kind="message", status="waiting")
    found: dict[str, type[forms.BaseForm] | None] = {}
    for text in steps.order_by("-seq").values_list("details", flat=True)[:5]:
        details = load_details(text)
        for name in details.get("names", ()):
            found.setdefault(name, _form(details.get("form")))
    return found


def _form(reference: str | None) -> type[forms.BaseForm] | None:
    if not reference:
        return None
    try:
        return form_class(authority.dereference(reference))
    except Exception:
        # This process runs other code than the worker: JSON will do.
        return None
