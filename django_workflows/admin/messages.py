"""Inboxes over all runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.translation import gettext_lazy as _

from django_workflows import payloads
from django_workflows.admin import display, downloads
from django_workflows.admin.base import ReadOnlyAdmin, row_number
from django_workflows.admin.cut_payloads import RUN_LIMIT, shown, with_heads
from django_workflows.admin.filters import AgeFilter, NameFilter, OneRunFilter, StateFilter
from django_workflows.models import WorkflowMessage

# Of the run and the step only what the links to them need.
OF_OTHERS = (
    "run__workflow_id",
    "run__workflow_name",
    "run__status",
    "consumed_by__key",
    "consumed_by__seq",
    "consumed_by__run_id",
)
OWN = ("id", "run_id", "name", "consumed_by_id", "consumed_at", "refused", "created_at")


@admin.register(WorkflowMessage)
class MessageAdmin(ReadOnlyAdmin):
    list_display = ("label", "to_run", "run_status", "sent", "taken_by")
    list_display_links = ("label",)
    list_filter = (StateFilter, AgeFilter, NameFilter, OneRunFilter)
    search_fields = ("name",)
    search_help_text = _("A message's name, exactly, or a run's id.")
    # Oldest first: what has waited longest needs a look first.
    ordering = ("id",)

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request).select_related("run", "consumed_by")
        return rows.only(*OWN, *OF_OTHERS)

    def get_search_results(
        self, request: HttpRequest, queryset: Any, search_term: str
    ) -> tuple[Any, bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            return queryset.filter(Q(run_id=UUID(term)) | Q(name=term)), False
        except ValueError:
            return queryset.filter(name=term), False

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.download_view)
        name = "django_workflows_workflowmessage_data"
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
        found = self.get_queryset(request).only(*OWN, *OF_OTHERS, "idempotency_key", "routed")
        rows = with_heads(found, "data", limit=RUN_LIMIT)
        key = row_number(object_id)
        message = rows.filter(pk=key).first() if key else None
        if message is None:
            return self.gone(request, object_id)
        context = self.context(
            request,
            display.message_label(message.name),
            message=message,
            label=display.message_label(message.name),
            data=shown(message, "data", RUN_LIMIT),
            badge=display.status_badge(message.run.status),
            refused=payloads.readable(message.refused),
        )
        return TemplateResponse(request, "admin/django_workflows/message.html", context)

    def download_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The data as it is stored, whole."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return downloads.payload(WorkflowMessage, pk, "data", f"message-{pk}")

    @admin.display(description=_("message"))
    def label(self, message: WorkflowMessage) -> str:
        return display.cut(display.message_label(message.name), 100)

    @admin.display(description=_("run"))
    def to_run(self, message: WorkflowMessage) -> Any:
        run = message.run
        text = f"{run.workflow_name} {display.cut(run.workflow_id, 60)}"
        return display.link(display.run_url(run.pk, self.admin_site.name), text)

    @admin.display(description=_("run's status"))
    def run_status(self, message: WorkflowMessage) -> Any:
        return display.status_badge(message.run.status)

    @admin.display(description=_("age"))
    def sent(self, message: WorkflowMessage) -> Any:
        return display.age(message.created_at)

    @admin.display(description=_("taken by"), empty_value="")
    def taken_by(self, message: WorkflowMessage) -> Any:
        step = message.consumed_by
        if step is None:
            return _("nobody yet")
        url = display.step_url(step.run_id, step.seq, self.admin_site.name)
        return display.link(url, display.cut(step.key, 60))
