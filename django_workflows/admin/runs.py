"""Runs: the list, and one run's page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import F, QuerySet
from django.db.models.functions import Length, Substr
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.html import format_html
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from django_workflows import payloads
from django_workflows.admin import actions, bulk, downloads, run_page, words
from django_workflows.admin.display import age, cut, moment, progress_bar, status_badge
from django_workflows.admin.filters import (
    AttentionFilter,
    QueueFilter,
    StartedFilter,
    VersionFilter,
    WaitingFilter,
    WorkflowFilter,
)
from django_workflows.admin.registry_page import RegistryPages
from django_workflows.models import WorkflowRun

PAYLOADS = ("input", "result", "error", "state")
# A state that shows progress is small; of a larger one nothing is shown, and little is read.
STATE_LIMIT = 400


@admin.register(WorkflowRun)
class RunAdmin(RegistryPages):
    list_display = ("workflow", "standing", "waits_for", "next_wake", "started")
    list_display_links = ("workflow",)
    list_filter = (
        AttentionFilter,
        WaitingFilter,
        "status",
        WorkflowFilter,
        VersionFilter,
        QueueFilter,
        StartedFilter,
    )
    search_fields = ("workflow_id",)
    search_help_text = _("The beginning of a workflow id, or a run's id.")
    ordering = ("-id",)
    actions = (bulk.cancel_selected, bulk.rerun_selected)
    change_form_template = "admin/django_workflows/run.html"

    # What may be done, by permission

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return self._has(request, "cancel_workflowrun")

    def has_rerun_permission(self, request: HttpRequest) -> bool:
        return self._has(request, "rerun_workflowrun")

    def _has(self, request: HttpRequest, codename: str) -> bool:
        return bool(request.user.has_perm(f"{self.opts.app_label}.{codename}"))

    # The list

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkflowRun]:
        return super().get_queryset(request).defer(*PAYLOADS)

    def get_search_results(
        self, request: HttpRequest, queryset: Any, search_term: str
    ) -> tuple[Any, bool]:
        term = search_term.strip()
        return (queryset.search(term) if term else queryset), False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        may_start = self.has_start_permission(request)
        return super().changelist_view(
            request, {**(extra_context or {}), "may_start": may_start, "is_run_list": True}
        )

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        self._attach_states(changelist.result_list)
        return changelist

    def _attach_states(self, runs: Any) -> None:
        """Progress of the page's runs, from the beginning of their state alone."""
        found = list(runs)
        states = self._states([run.pk for run in found])
        for run in found:
            run.shown_state = states.get(run.pk)

    def _states(self, keys: list[UUID]) -> dict[UUID, Any]:
        rows = self.model._default_manager.using(actions.alias()).filter(pk__in=keys)
        heads = rows.annotate(
            head=Substr(F("state"), 1, STATE_LIMIT), size=Length(F("state"))
        ).values_list("pk", "head", "size")
        return {
            key: _decode(head) for key, head, size in heads if head != "{}" and size <= STATE_LIMIT
        }

    @admin.display(description=_("workflow id"))
    def workflow(self, run: WorkflowRun) -> Any:
        return format_html(
            '{}<br><span class="wf-quiet">{}</span>',
            cut(run.workflow_id, 80),
            cut(run.workflow_name, 80),
        )

    @admin.display(description=_("status"))
    def standing(self, run: WorkflowRun) -> Any:
        bar = progress_bar(getattr(run, "shown_state", None))
        badge = status_badge(run.status)
        return format_html("{}<br>{}", badge, bar) if bar else badge

    @admin.display(description=_("waiting for"), empty_value="")
    def waits_for(self, run: WorkflowRun) -> Any:
        if run.problem:
            return cut(run.problem, 100)
        if run.status != "suspended" or run.waiting_since is None:
            return ""
        told = words.waiting_for(run)
        return format_html('{}<br><span class="wf-quiet">{}</span>', told, age(run.waiting_since))

    @admin.display(description=_("due"))
    def next_wake(self, run: WorkflowRun) -> str:
        return moment(run.available_at) if run.available_at else ""

    @admin.display(description=_("age"))
    def started(self, run: WorkflowRun) -> Any:
        return age(run.created_at)

    # One run

    def get_urls(self) -> list[Any]:
        def own(route: str, view: Callable[..., Any], name: str) -> Any:
            return path(route, self.admin_site.admin_view(view), name=name)

        prefix = "django_workflows_workflowrun"
        found = [
            own(f"<uuid:run_id>/{name}/", self._action_view(name), f"{prefix}_{name}")
            for name in actions.ACTIONS
        ]
        found.append(own("<uuid:run_id>/data/<str:column>/", self.download_view, f"{prefix}_data"))
        return [*found, *self.registry_urls(own), *super().get_urls()]

    def _action_view(self, name: str) -> Callable[..., HttpResponse]:
        def view(request: HttpRequest, run_id: UUID) -> HttpResponse:
            return actions.ACTIONS[name](self).respond(request, run_id)

        return view

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: Any = None,
    ) -> HttpResponse:
        if not self.has_view_permission(request) or request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        run = self.find(object_id)
        if run is None:
            return self.gone(request, object_id)
        context = self.context(
            request,
            cut(run.workflow_id, 100),
            **run_page.context(run, step=_number(request.GET.get("step")), site=self.admin_site),
            actions=actions.offered(request, run),
            may_decide=self._has(request, "decide_approval"),
            may_see_steps=self._has(request, "view_workflowstep"),
        )
        return TemplateResponse(request, self.change_form_template, context)

    def find(self, run_id: Any) -> WorkflowRun | None:
        """The run of an id from an address."""
        try:
            return run_page.find(run_id if isinstance(run_id, UUID) else UUID(str(run_id)))
        except ValueError:
            return None

    def download_view(self, request: HttpRequest, run_id: UUID, column: str) -> HttpResponse:
        """A payload as it is stored, whole."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if column not in PAYLOADS:
            raise Http404(_t("There is no such payload."))
        return downloads.payload(self.model, run_id, column, f"run-{run_id}-{column}")


def _decode(text: str) -> Any:
    try:
        return payloads.decode(text)
    except Exception:
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None
