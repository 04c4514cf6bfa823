"""The workers: which are alive, what they know, and which runs nobody serves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Count, Q
from django.db.models.functions import Now

from django_workflows.conf import config
from django_workflows.models import WorkflowRun, WorkflowWorker

Pair = tuple[str, str]
# Enough to say that something is wrong, without reading every open run.
MAX_ORPHANS = 1000


def live_workers() -> Any:
    """Workers whose lease stands, by the database's clock."""
    workers = WorkflowWorker.objects.using(config().database)
    return workers.filter(stopped_at=None, lease_until__gt=Now())


def served_pairs() -> set[Pair]:
    """(name, version) of every workflow that a live worker has registered."""
    return pairs_of(live_workers().only("workflows")[:1000])


def pairs_of(workers: Iterable[WorkflowWorker]) -> set[Pair]:
    return {(name, version) for worker in workers for name, version in worker.workflows}


def orphans() -> list[tuple[str, str, int]]:
    """(name, version, number) of runs that are due, or will be, and that no live worker knows.

    At most `MAX_ORPHANS` runs are counted, so a number of that size means "at least".
    """
    served = Q()
    for name, version in served_pairs():
        served |= Q(workflow_name=name, version=version)
    runs = WorkflowRun.objects.using(config().database).open()
    if served:
        runs = runs.exclude(served)
    counted: dict[Pair, int] = {}
    for pair in runs.values_list("workflow_name", "version")[:MAX_ORPHANS]:
        counted[pair] = counted.get(pair, 0) + 1
    return [(*pair, number) for pair, number in sorted(counted.items())]


def running_counts(workers: Iterable[WorkflowWorker]) -> dict[Any, int]:
    """Number of runs that each worker executes now."""
    keys = [worker.pk for worker in workers]
    runs = WorkflowRun.objects.using(config().database).filter(status="running")
    counted = runs.filter(claimed_by__in=keys).values("claimed_by").annotate(number=Count("pk"))
    return {row["claimed_by"]: row["number"] for row in counted}
