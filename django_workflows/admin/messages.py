"""Inboxes over all runs."""

from __future__ import annotations

from django.contrib import admin

from django_workflows.admin.display import ReadOnlyAdmin
from django_workflows.models import WorkflowMessage, WorkflowStep


@admin.register(WorkflowMessage)
class MessageAdmin(ReadOnlyAdmin):
    list_display = ("name", "run", "consumed_by", "created_at")
    list_select_related = ("run", "consumed_by")
    search_fields = ("name__exact",)
    show_full_result_count = False
    ordering = ("id",)


@admin.register(WorkflowStep)
class StepAdmin(ReadOnlyAdmin):
    list_display = ("key", "run", "kind", "status", "attempts", "finished_at")
    list_select_related = ("run",)
    list_filter = ("kind", "status")
    show_full_result_count = False
    ordering = ("-id",)
