"""The admin's own history: who did what to a run, and why."""

from __future__ import annotations

from typing import Any, cast

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_workflows.admin.display import cut
from django_workflows.models import WorkflowRun

MAX_SHOWN = 20


def record(request: HttpRequest, obj: Model, what: str, why: str = "", flag: int = CHANGE) -> None:
    """Add an entry to the admin's history of a run."""
    told = _("%(what)s Why: %(why)s") % {"what": what, "why": why} if why else what
    LogEntry.objects.create(
        user=cast(Any, request.user),
        content_type_id=ContentType.objects.get_for_model(WorkflowRun).pk,
        object_id=str(obj.pk),
        object_repr=str(obj)[:200],
        action_flag=flag,
        change_message=cut(told, 2000),
    )


def entries(run: WorkflowRun) -> list[Any]:
    """The newest entries of a run."""
    found = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(WorkflowRun), object_id=str(run.pk)
    )
    return list(found.select_related("user").order_by("-action_time")[:MAX_SHOWN])
