"""Domain verbs on querysets. Read only."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import connections, models
from django.db.models import Q
from django.db.models.functions import Now

if TYPE_CHECKING:
    from django_workflows.models import WorkflowMessage, WorkflowRun  # noqa: F401 - in the bases

WAITING_KINDS = ("message", "signal", "approval", "child_result")
OPEN_STATUSES = ("pending", "running", "suspended")


def subject_label(subject: models.Model) -> tuple[str, str]:
    """What identifies a subject in the run's row; a label rather than a foreign key to content
    types, so that runs may live in another database than their subjects."""
    if not isinstance(subject, models.Model):
        raise TypeError(f"A subject must be a model instance, not {type(subject).__name__}.")
    if subject.pk is None:
        raise ValueError(f"A subject must be saved first; this {type(subject).__name__} has no pk.")
    # A proxy's rows are those of its concrete model.
    return subject._meta.concrete_model._meta.label_lower, str(subject.pk)  # type: ignore[union-attr]


class RunQuerySet(models.QuerySet["WorkflowRun"]):
    """`WorkflowRun.objects`."""

    def open(self) -> RunQuerySet:
        """Runs that haven't ended."""
        return self.filter(status__in=OPEN_STATUSES)

    def finished(self) -> RunQuerySet:
        """Runs that have ended, whichever way."""
        return self.exclude(status__in=OPEN_STATUSES)

    def due(self) -> RunQuerySet:
        """Runs that a worker may claim now."""
        return self.filter(available_at__lte=Now())

    def for_subject(self, subject: models.Model) -> RunQuerySet:
        """Runs that were started about this model instance, newest first."""
        label, pk = subject_label(subject)
        return self.filter(subject_type=label, subject_pk=pk).order_by("-id")

    def search(self, text: str) -> RunQuerySet:
        """Runs whose workflow id begins with `text`, or whose run id it is."""
        try:
            return self.filter(Q(pk=UUID(text)) | Q(workflow_id=text))
        except ValueError:
            pass
        if connections[self.db].vendor == "sqlite":
            # SQLite's LIKE ignores case and, with an escape character, its indexes too.
            return self.filter(workflow_id__gte=text, workflow_id__lt=f"{text}\U0010ffff")
        return self.filter(workflow_id__startswith=text)

    def waiting(self, *, longer_than: timedelta | None = None) -> RunQuerySet:
        """Runs parked on a message, a signal, a gate or a child; for alarms, since at least
        `longer_than`."""
        # The kinds are spelled out because the index of waits begins with them.
        waiting = self.filter(
            status="suspended", waiting_kind__in=WAITING_KINDS, waiting_since__isnull=False
        ).exclude(waiting_for="")
        if longer_than is not None:
            waiting = waiting.filter(waiting_since__lte=Now() - longer_than)
        return waiting

    def stuck(self) -> RunQuerySet:
        """Open runs that back off because the code no longer matches their record."""
        return self.open().exclude(problem="")


class MessageQuerySet(models.QuerySet["WorkflowMessage"]):
    """`run.messages`, oldest first."""

    def pending(self) -> MessageQuerySet:
        """Messages that no step has taken."""
        return self.filter(consumed_by=None).order_by("id")

    def consumed(self) -> MessageQuerySet:
        """Messages that a step has taken."""
        return self.filter(~Q(consumed_by=None)).order_by("id")
