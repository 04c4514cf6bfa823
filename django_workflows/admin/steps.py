"""Steps over all runs: the newest, and which are slowest and fail most."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Avg, Count, DurationField, ExpressionWrapper, F, Max, Q, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from django_workflows.admin import display, downloads
from django_workflows.admin.base import ReadOnlyAdmin, row_number
from django_workflows.admin.filters import OneRunFilter
from django_workflows.conf import config
from django_workflows.models import WorkflowStep

FIELDS = (
    "id",
    "run_id",
    "seq",
    "key",
    "name",
    "kind",
    "status",
    "attempts",
    "created_at",
    "started_at",
    "finished_at",
    "run__workflow_id",
    "run__workflow_name",
)
# The report reads this many of the newest records: no index is kept for it, as each would be
# written at every step.
MAX_REPORTED = 50_000
MAX_ROWS = 20


@admin.register(WorkflowStep)
class StepAdmin(ReadOnlyAdmin):
    list_display = ("label", "of_run", "kind", "badge", "attempts", "took", "begun")
    list_display_links = ("label",)
    list_filter = ("status", "kind", OneRunFilter)
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("run").only(*FIELDS)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return super().changelist_view(request, {**(extra_context or {}), "is_step_list": True})

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        prefix = "django_workflows_workflowstep"
        return [
            path("report/", wrap(self.report_view), name=f"{prefix}_report"),
            path("<int:pk>/result/", wrap(self.download_view), name=f"{prefix}_data"),
            *super().get_urls(),
        ]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: Any = None,
    ) -> HttpResponse:
        """A step is best understood among the others, on its run's page."""
        if not self.has_view_permission(request) or request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        key = row_number(object_id)
        rows = self.get_queryset(request)
        step = rows.filter(pk=key).first() if key else None
        if step is None:
            return self.gone(request, object_id)
        return redirect(display.step_url(step.run_id, step.seq, self.admin_site.name))

    def download_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The result as it is stored, whole."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return downloads.payload(WorkflowStep, pk, "result", f"step-{pk}-result")

    def report_view(self, request: HttpRequest) -> HttpResponse:
        """Slowest and most failing steps of the last day."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = report()
        context = self.context(
            request,
            _t("Steps of the last day"),
            slowest=sorted(rows, key=lambda row: row["longest"] or timedelta(0), reverse=True)[
                :MAX_ROWS
            ],
            failing=sorted(
                (row for row in rows if row["failed"] or row["retries"] > 0),
                key=lambda row: (row["failed"], row["retries"]),
                reverse=True,
            )[:MAX_ROWS],
            limit=MAX_REPORTED,
        )
        return TemplateResponse(request, "admin/django_workflows/steps_report.html", context)

    @admin.display(description=_("step"))
    def label(self, step: WorkflowStep) -> str:
        return display.cut(step.key, 80)

    @admin.display(description=_("run"))
    def of_run(self, step: WorkflowStep) -> Any:
        run = step.run
        text = f"{run.workflow_name} {display.cut(run.workflow_id, 60)}"
        return display.link(display.run_url(run.pk, self.admin_site.name), text)

    @admin.display(description=_("status"))
    def badge(self, step: WorkflowStep) -> Any:
        return display.status_badge(step.status)

    @admin.display(description=_("took"))
    def took(self, step: WorkflowStep) -> str:
        if step.finished_at is None:
            return display.EMPTY
        return display.duration(step.finished_at - step.created_at)

    @admin.display(description=_("begun"))
    def begun(self, step: WorkflowStep) -> Any:
        return display.age(step.created_at)


def report() -> list[dict[str, Any]]:
    """Per workflow and step: how many, how slow, how often it failed."""
    steps = WorkflowStep.objects.using(config().database)
    newest = steps.aggregate(newest=Max("pk"))["newest"] or 0
    recent = steps.filter(
        pk__gt=newest - MAX_REPORTED,
        kind="step",
        finished_at__gte=timezone.now() - timedelta(days=1),
    )
    took = ExpressionWrapper(F("finished_at") - F("started_at"), output_field=DurationField())
    rows = recent.values("run__workflow_name", "name").annotate(
        number=Count("pk"),
        average=Avg(took),
        longest=Max(took),
        failed=Count("pk", filter=Q(status="failed")),
        tries=Sum("attempts"),
    )
    found: list[dict[str, Any]] = [{**row} for row in rows[:2000]]
    for row in found:
        row["retries"] = max(0, row["tries"] - row["number"])
        row["average_text"] = display.duration(row["average"])
        row["longest_text"] = display.duration(row["longest"])
        row["share"] = round(100 * row["failed"] / row["number"])
    return found
