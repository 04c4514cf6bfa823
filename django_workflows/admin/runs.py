"""Runs with their steps and messages."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_workflows.admin.display import ReadOnlyAdmin, ReadOnlyInline
from django_workflows.models import WorkflowMessage, WorkflowRun, WorkflowStep

PAYLOADS = ("input", "result", "error", "state")


class StepInline(ReadOnlyInline):
    model = WorkflowStep
    fields = ("seq", "key", "kind", "status", "attempts", "wake_at", "finished_at")
    ordering = ("seq",)


class MessageInline(ReadOnlyInline):
    model = WorkflowMessage
    fields = ("name", "idempotency_key", "consumed_by", "consumed_at", "created_at")
    ordering = ("id",)


@admin.register(WorkflowRun)
class RunAdmin(ReadOnlyAdmin):
    list_display = ("workflow_id", "workflow_name", "status", "waiting", "available_at", "created")
    list_filter = ("status", "workflow_name", "queue_name")
    search_fields = ("workflow_id__exact", "id__exact")
    show_full_result_count = False
    ordering = ("-id",)
    inlines = (StepInline, MessageInline)
    exclude = ("claim_token", "claimed_by", "claim_count")

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkflowRun]:
        runs: QuerySet[WorkflowRun] = super().get_queryset(request)
        match = request.resolver_match
        is_list = match is not None and match.url_name == "django_workflows_workflowrun_changelist"
        return runs.defer(*PAYLOADS) if is_list else runs

    @admin.display(description=_("waiting for"))
    def waiting(self, run: WorkflowRun) -> str:
        return ", ".join(run.waiting_names) or run.waiting_kind

    @admin.display(description=_("created at"), ordering="id")
    def created(self, run: WorkflowRun) -> Any:
        return run.created_at
