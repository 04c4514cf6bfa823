"""Live and past worker processes."""

from __future__ import annotations

from django.contrib import admin

from django_workflows.admin.display import ReadOnlyAdmin
from django_workflows.models import WorkflowWorker


@admin.register(WorkflowWorker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ("name", "host", "pid", "queues", "started_at", "heartbeat_at", "stopped_at")
    ordering = ("-heartbeat_at",)
