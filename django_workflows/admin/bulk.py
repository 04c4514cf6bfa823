"""The same for many runs at once, after a page that lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_workflows import api
from django_workflows.admin import display, log
from django_workflows.admin.actions import Cancel, ReasonForm, Rerun, RerunForm
from django_workflows.exceptions import WorkflowError
from django_workflows.models import WorkflowRun

MAX_REFUSALS = 5


@admin.action(description=_("Cancel the selected runs"), permissions=["cancel"])
def cancel_selected(model_admin: Any, request: HttpRequest, queryset: Any) -> HttpResponse | None:
    def perform(run: WorkflowRun, given: dict[str, Any]) -> str:
        api.cancel(run, reason=given["reason"] or _t("canceled in the admin"))
        return _t("Canceled.")

    return _respond(model_admin, request, queryset, Cancel, ReasonForm, perform)


@admin.action(description=_("Rerun the selected runs"), permissions=["rerun"])
def rerun_selected(model_admin: Any, request: HttpRequest, queryset: Any) -> HttpResponse | None:
    def perform(run: WorkflowRun, given: dict[str, Any]) -> str:
        new = api.rerun(run, from_start=given["begin"] == "start")
        return _t("Rerun, as %(id)s.") % {"id": new.pk}

    return _respond(model_admin, request, queryset, Rerun, RerunForm, perform)


def _respond(
    model_admin: Any,
    request: HttpRequest,
    queryset: Any,
    action: Any,
    form_class: type[ReasonForm],
    perform: Callable[[WorkflowRun, dict[str, Any]], str],
) -> HttpResponse | None:
    runs = list(queryset[: model_admin.list_per_page])
    is_confirmed = "confirmed" in request.POST
    form = form_class(request.POST if is_confirmed else None)
    if is_confirmed and form.is_valid():
        _perform_all(request, runs, form.cleaned_data, perform)
        return None
    suited = [run for run in runs if action.suits(run)]
    context = model_admin.context(
        request,
        str(action.label),
        runs=suited,
        left_out=len(runs) - len(suited),
        form=form,
        action=action,
        action_name=request.POST["action"],
        checkbox_name=ACTION_CHECKBOX_NAME,
    )
    return TemplateResponse(request, "admin/django_workflows/bulk_action.html", context)


def _perform_all(
    request: HttpRequest,
    runs: list[WorkflowRun],
    given: dict[str, Any],
    perform: Callable[[WorkflowRun, dict[str, Any]], str],
) -> None:
    done = 0
    refusals = []
    for run in runs:
        try:
            told = perform(run, given)
        except WorkflowError as refused:
            refusals.append(str(refused))
            continue
        done += 1
        log.record(request, run, told, given["reason"])
    if done:
        told = ngettext("%(n)s run: done.", "%(n)s runs: done.", done) % {"n": done}
        messages.success(request, told)
    for refusal in refusals[:MAX_REFUSALS]:
        messages.error(request, display.cut(refusal, 500))
    if len(refusals) > MAX_REFUSALS:
        more = len(refusals) - MAX_REFUSALS
        messages.error(request, _t("%(n)s more were refused.") % {"n": more})
