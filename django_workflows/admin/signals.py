"""Deliveries of broadcast signals."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.translation import gettext_lazy as _

from django_workflows import payloads
from django_workflows.admin import display, downloads
from django_workflows.admin.base import ReadOnlyAdmin, row_number
from django_workflows.admin.cut_payloads import RUN_LIMIT, shown, with_heads
from django_workflows.admin.filters import NameFilter, OneRunFilter
from django_workflows.models import WorkflowSignal

FIELDS = (
    "id",
    "name",
    "run_id",
    "step_id",
    "idempotency_key",
    "created_at",
    "run__workflow_id",
    "run__workflow_name",
    "run__status",
    "step__key",
    "step__seq",
    "step__run_id",
)


@admin.register(WorkflowSignal)
class SignalAdmin(ReadOnlyAdmin):
    list_display = ("label", "to_run", "to_step", "sent")
    list_display_links = ("label",)
    list_filter = (NameFilter, OneRunFilter)
    search_fields = ("name",)
    search_help_text = _("A signal's name, exactly.")
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("run", "step").only(*FIELDS)

    def get_search_results(
        self, request: HttpRequest, queryset: Any, search_term: str
    ) -> tuple[Any, bool]:
        term = search_term.strip()
        return (queryset.filter(name=term) if term else queryset), False

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.download_view)
        name = "django_workflows_workflowsignal_data"
        return [path("<int:pk>/data/", view, name=name), *super().get_urls()]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: Any = None,
    ) -> HttpResponse:
        if not self.has_view_permission(request) or request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        rows = with_heads(self.get_queryset(request), "data", limit=RUN_LIMIT)
        key = row_number(object_id)
        signal = rows.filter(pk=key).first() if key else None
        if signal is None:
            return self.gone(request, object_id)
        name = payloads.readable(signal.name)
        data = shown(signal, "data", RUN_LIMIT)
        context = self.context(request, name, signal=signal, data=data)
        return TemplateResponse(request, "admin/django_workflows/signal.html", context)

    def download_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The data as it is stored, whole."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return downloads.payload(WorkflowSignal, pk, "data", f"signal-{pk}")

    @admin.display(description=_("signal"))
    def label(self, signal: WorkflowSignal) -> str:
        return display.cut(signal.name, 100)

    @admin.display(description=_("run"))
    def to_run(self, signal: WorkflowSignal) -> Any:
        run = signal.run
        text = f"{run.workflow_name} {display.cut(run.workflow_id, 60)}"
        return display.link(display.run_url(run.pk, self.admin_site.name), text)

    @admin.display(description=_("step"))
    def to_step(self, signal: WorkflowSignal) -> Any:
        step = signal.step
        url = display.step_url(step.run_id, step.seq, self.admin_site.name)
        return display.link(url, display.cut(step.key, 60))

    @admin.display(description=_("age"))
    def sent(self, signal: WorkflowSignal) -> Any:
        return display.age(signal.created_at)
