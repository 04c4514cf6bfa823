"""What is wrong with runs and workers, for operators and their monitoring. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from django.core import checks
from django.db import connections
from django.db.models import Model, Q, QuerySet

from django_workflows.conf import config
from django_workflows.db.clock import offset
from django_workflows.db.dialects import dialect
from django_workflows.fields import to_local
from django_workflows.models import (
    WorkflowMessage,
    WorkflowRun,
    WorkflowSignal,
    WorkflowStep,
    WorkflowWorker,
)
from django_workflows.querysets import RunQuerySet

# Something that a healthy worker sees to within a poll is a fault once it has lasted this long.
PATIENCE = timedelta(minutes=2)
EXAMPLES = 5
# Counting goes no further: that there are many is all that an alarm needs.
MAX_COUNT = 1000


@dataclass(frozen=True)
class Finding:
    """One fault.

    Attributes:
        kind: stable name, for alarms.
        level: "error" or "warning".
        text: what is wrong and what to do.
        count: how many, at most MAX_COUNT.
        examples: ids of the first ones.
    """

    kind: str
    level: str
    text: str
    count: int = 1
    examples: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def diagnose() -> list[Finding]:
    """Every fault found, errors first."""
    found = [finding for look in LOOKS for finding in look(_now())]
    return sorted(found, key=lambda finding: finding.level)


def _now() -> Any:
    row = dialect().one("SELECT {epoch_now}")
    assert row is not None
    return to_local(dialect().epoch(row[0]))


def _runs() -> RunQuerySet:
    return WorkflowRun.objects.using(dialect().alias)


def _finding(
    kind: str, level: str, text: str, rows: QuerySet[Any], show: Callable[[Any], str] = str
) -> Iterator[Finding]:
    keys = list(rows.values_list("pk", flat=True)[:MAX_COUNT])
    if keys:
        yield Finding(kind, level, text, len(keys), [show(key) for key in keys[:EXAMPLES]])


def _live_workers(now: Any) -> list[WorkflowWorker]:
    workers = WorkflowWorker.objects.using(dialect().alias)
    found = workers.filter(stopped_at=None, lease_until__gte=now)
    # A process that resumes a run holds a lease too, but takes no other.
    return [worker for worker in found if worker.workflows]


def find_nondeterministic(now: Any) -> Iterator[Finding]:
    """Runs whose record the code no longer matches."""
    text = (
        "runs back off because the code differs from their record; deploy code that matches, or "
        "guard the change with ctx.patched()"
    )
    yield from _finding("nondeterministic", "error", text, _runs().stuck())


def find_overdue(now: Any) -> Iterator[Finding]:
    """Runs past their deadline that no worker has ended."""
    text = "runs are past their deadline and not ended; is a worker up?"
    rows = _runs().open().filter(deadline_at__lt=now - PATIENCE)
    yield from _finding("overdue", "error", text, rows)


def find_unclaimed(now: Any) -> Iterator[Finding]:
    """Runs that are due, and of which some live worker knows the workflow, yet wait."""
    text = "runs have been due for minutes and aren't claimed; add workers, threads or processes"
    known = _known_pairs(now)
    if not known:
        return
    pairs = Q(pk__in=[])
    for name, version in sorted(known):
        pairs |= Q(workflow_name=name, version=version)
    rows = _runs().filter(pairs, available_at__lt=now - PATIENCE)
    yield from _finding("unclaimed", "warning", text, rows)


def find_unknown(now: Any) -> Iterator[Finding]:
    """Open runs whose workflow or version no live worker has registered."""
    known = _known_pairs(now)
    if not known:
        # No worker at all is a finding of its own.
        return
    pairs = set(_runs().open().values_list("workflow_name", "version").distinct()[:MAX_COUNT])
    for name, version in sorted(pairs - known):
        rows = _runs().open().filter(workflow_name=name, version=version)
        text = f"open runs of {name!r} version {version!r}, which no live worker has registered"
        yield from _finding("unknown_workflow", "error", text, rows)


def _known_pairs(now: Any) -> set[tuple[str, str]]:
    return {(name, version) for worker in _live_workers(now) for name, version in worker.workflows}


def find_poison(now: Any) -> Iterator[Finding]:
    """Runs given up in the last day because their workers died on them."""
    text = "runs were given up in the last day because their workers died on them"
    # A run that fails by itself has had fewer crashes.
    rows = _runs().filter(
        status="failed",
        crashes__gte=config().max_crashes,
        finished_at__gte=now - timedelta(days=1),
    )
    yield from _finding("poison", "error", text, rows)


def find_stale_workers(now: Any) -> Iterator[Finding]:
    """Workers that stopped renewing their lease without saying goodbye."""
    text = "workers died in the last day without stopping in order; look at their logs"
    rows = WorkflowWorker.objects.using(dialect().alias).filter(
        stopped_at=None,
        lease_until__lt=now,
        heartbeat_at__gte=now - timedelta(days=1),
    )
    yield from _finding("stale_worker", "warning", text, rows)


def find_missing_workers(now: Any) -> Iterator[Finding]:
    """Open runs and nobody to execute them."""
    if not _live_workers(now) and _runs().open().exists():
        text = "there are open runs and no live worker; start manage.py runworkflows"
        yield Finding("no_worker", "error", text)


def find_unrouted(now: Any) -> Iterator[Finding]:
    """Messages that no router has looked at."""
    text = "messages have waited for minutes to be routed; is a worker up?"
    rows = WorkflowMessage.objects.using(dialect().alias).filter(
        routed=False, consumed_by=None, created_at__lt=now - PATIENCE
    )
    yield from _finding("unrouted", "error", text, rows)


def find_missing_indexes(now: Any) -> Iterator[Finding]:
    """Indexes and constraints of the models that the database lacks."""
    connection = connections[dialect().alias]
    models: tuple[type[Model], ...] = (
        *(WorkflowRun, WorkflowStep, WorkflowMessage, WorkflowSignal, WorkflowWorker),
    )
    for model in models:
        wanted = {index.name for index in model._meta.indexes}
        wanted |= {constraint.name for constraint in model._meta.constraints}
        with connection.cursor() as cursor:
            there = connection.introspection.get_constraints(cursor, model._meta.db_table)
        missing = sorted(wanted - set(there))
        if missing:
            text = f"table {model._meta.db_table} lacks indexes; run manage.py migrate"
            yield Finding("missing_index", "error", text, len(missing), missing[:EXAMPLES])


def find_unsafe_settings(now: Any) -> Iterator[Finding]:
    """What the system checks say."""
    for message in checks.run_checks(tags=["django_workflows", checks.Tags.compatibility]):
        if str(message.id).startswith("django_workflows."):
            level = "error" if message.level >= checks.ERROR else "warning"
            yield Finding("settings", level, f"{message.msg} {message.hint}", 1, [str(message.id)])


def find_clock_offset(now: Any) -> Iterator[Finding]:
    """A workflow clock that a test has left moved."""
    if offset():
        text = f"the workflow clock of this process is {offset():g} s ahead; that is for tests"
        yield Finding("clock", "warning", text)


LOOKS: tuple[Callable[[Any], Iterator[Finding]], ...] = (
    find_nondeterministic,
    find_overdue,
    find_unclaimed,
    find_unknown,
    find_poison,
    find_stale_workers,
    find_missing_workers,
    find_unrouted,
    find_missing_indexes,
    find_unsafe_settings,
    find_clock_offset,
)
