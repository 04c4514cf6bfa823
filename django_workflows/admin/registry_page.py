"""The workflows that this process knows: how their runs stand, and a form to start one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.contrib.admin.models import ADDITION
from django.core.exceptions import PermissionDenied
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from django_workflows import api
from django_workflows.admin import display, fleet, log
from django_workflows.admin.base import ReadOnlyAdmin
from django_workflows.admin.filters import first_id
from django_workflows.admin.start_form import StartForm
from django_workflows.conf import config
from django_workflows.exceptions import WorkflowError, WorkflowNotRegistered
from django_workflows.models import RunStatus, WorkflowRun
from django_workflows.registry import registry

STATUSES = ("pending", "running", "suspended", "completed", "failed", "canceled")


class RegistryPages(ReadOnlyAdmin):
    """The registry's pages, mixed into the admin of runs, under whose address they are."""

    def registry_urls(self, own: Callable[..., Any]) -> list[Any]:
        return [
            own("registry/", self.registry_view, "django_workflows_registry"),
            own("start/", self.start_view, "django_workflows_start"),
        ]

    def has_start_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("django_workflows.add_workflowrun"))

    def registry_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        served = fleet.served_pairs()
        known = {(found.name, found.version): found for found in registry.definitions()}
        counts = run_counts()
        rows = [
            {
                "name": pair[0],
                "version": pair[1],
                "definition": known.get(pair),
                "is_served": pair in served,
                "counts": [(status, counts.get(pair, {}).get(status, 0)) for status in STATUSES],
                "has_open": any(counts.get(pair, {}).get(status) for status in STATUSES[:3]),
            }
            for pair in sorted({*known, *counts, *served})
        ]
        context = self.context(
            request,
            _("Workflows"),
            rows=rows,
            statuses=[(status, RunStatus(status).label) for status in STATUSES],
            may_start=self.has_start_permission(request),
        )
        return TemplateResponse(request, "admin/django_workflows/registry.html", context)

    def start_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_start_permission(request):
            raise PermissionDenied
        try:
            definition = registry.get(
                request.GET.get("workflow", ""), request.GET.get("version") or None
            )
        except WorkflowNotRegistered as unknown:
            raise Http404(str(unknown)) from unknown
        form = StartForm(definition, request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            answer = self._start(request, definition, form)
            if answer is not None:
                return answer
        context = self.context(
            request,
            _("Start %(name)s") % {"name": definition.name},
            definition=definition,
            form=form,
        )
        return TemplateResponse(request, "admin/django_workflows/start.html", context)

    def _start(self, request: HttpRequest, definition: Any, form: Any) -> HttpResponse | None:
        try:
            run = api.start(
                definition,
                form.input(),
                version=definition.version,
                workflow_id=form.cleaned_data["workflow_id"] or None,
            )
        except (WorkflowError, TypeError, ValueError) as refused:
            form.add_error(None, display.cut(str(refused), 1000))
            return None
        if run.deduplicated:
            messages.warning(request, _("A run with this workflow id is there already."))
        else:
            why = form.cleaned_data["reason"]
            log.record(request, run, _("Started in the admin."), why, ADDITION)
            messages.success(request, _("The run has started; this is it."))
        return redirect(display.run_url(run.pk, self.admin_site.name))


def run_counts() -> dict[tuple[str, str], dict[str, int]]:
    """Runs by (name, version) and status: all that are open, and those ended that were started in
    the last day. All runs that ever were would have to be counted one by one."""
    runs = WorkflowRun.objects.using(config().database)
    since = first_id(timezone.now() - timedelta(days=1))
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for rows in (runs.open(), runs.finished().filter(pk__gte=since)):
        grouped = rows.values_list("workflow_name", "version", "status").annotate(n=Count("pk"))
        for name, version, status, number in grouped:
            counts.setdefault((name, version), {})[status] = number
    return counts
