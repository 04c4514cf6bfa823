"""Live and past worker processes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import BooleanField, Case, F, Q, Value, When
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_workflows.admin import display, fleet
from django_workflows.admin.base import ReadOnlyAdmin
from django_workflows.models import WorkflowWorker

LABELS = {"live": _("live"), "stale": _("no sign of life"), "stopped": _("stopped")}


class LifeFilter(admin.SimpleListFilter):
    """Live ones, unless asked otherwise, are what people look for."""

    title = _("state")
    parameter_name = "life"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(LABELS.items())

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.value() == "live":
            return queryset.filter(stopped_at=None, lease_until__gt=Now())
        if self.value() == "stale":
            return queryset.filter(stopped_at=None, lease_until__lte=Now())
        return queryset.exclude(stopped_at=None) if self.value() == "stopped" else queryset


@admin.register(WorkflowWorker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ("label", "life", "version", "queue_names", "running_now", "heartbeat")
    list_filter = (LifeFilter,)
    ordering = ("-heartbeat_at",)

    def get_queryset(self, request: HttpRequest) -> Any:
        # By the database's clock, which the lease was written by.
        alive = Case(
            When(Q(stopped_at=None, lease_until__gt=Now()), then=Value(True)),
            default=Value(False),
            output_field=BooleanField(),
        )
        return super().get_queryset(request).annotate(is_live=alive, lease=F("lease_until"))

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        workers = list(changelist.result_list)
        counts = fleet.running_counts(workers)
        for worker in workers:
            worker.running_count = counts.get(worker.pk, 0)
        return changelist

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: Any = None,
    ) -> HttpResponse:
        if not self.has_view_permission(request) or request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        try:
            worker = self.get_queryset(request).filter(pk=UUID(object_id)).first()
        except ValueError:
            worker = None
        if worker is None:
            return self.gone(request, object_id)
        doing = [
            {**slot, "url": display.run_url(slot["run"], self.admin_site.name)}
            for slot in worker.doing
            if isinstance(slot, dict) and slot.get("run")
        ]
        running = fleet.running_counts([worker]).get(worker.pk, 0)
        context = self.context(
            request,
            worker.name,
            worker=worker,
            life=self.life(worker),
            doing=doing,
            running=running,
        )
        return TemplateResponse(request, "admin/django_workflows/worker.html", context)

    @admin.display(description=_("name"))
    def label(self, worker: WorkflowWorker) -> Any:
        where = _("%(host)s, process %(pid)s") % {"host": worker.host, "pid": worker.pid}
        return format_html('{}<br><span class="wf-quiet">{}</span>', worker.name, where)

    @admin.display(description=_("state"))
    def life(self, worker: Any) -> Any:
        state = "stopped" if worker.stopped_at else ("live" if worker.is_live else "stale")
        return display.status_badge(state, LABELS[state])

    @admin.display(description=_("queues"))
    def queue_names(self, worker: WorkflowWorker) -> Any:
        return ", ".join(worker.queues) if worker.queues else _("all")

    @admin.display(description=_("running now"))
    def running_now(self, worker: Any) -> str:
        count = str(getattr(worker, "running_count", 0))
        steps = [str(slot.get("step")) for slot in worker.doing if slot.get("step")]
        return f"{count} ({', '.join(steps[:3])})" if steps else count

    @admin.display(description=_("last heartbeat"))
    def heartbeat(self, worker: WorkflowWorker) -> Any:
        return display.age(worker.heartbeat_at)
