"""Filters of the lists. None asks the database which values there are: that would read it all."""

from __future__ import annotations

import calendar
import datetime as dt
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext_lazy as _

from django_workflows.conf import config
from django_workflows.fields import to_epoch
from django_workflows.models import WorkflowRun, WorkflowWorker
from django_workflows.registry import registry

AGES = {
    "1h": (dt.timedelta(hours=1), _("longer than an hour")),
    "1d": (dt.timedelta(days=1), _("longer than a day")),
    "7d": (dt.timedelta(days=7), _("longer than 7 days")),
}
# Ids are made by the clock of whoever starts a run, times by the database's.
CLOCK_SKEW = dt.timedelta(days=1)


class GivenFilter(admin.SimpleListFilter):
    """Choices that this process and the workers know, and whatever the address asks for."""

    def known(self) -> Iterable[str]:
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        known = set(self.known())
        given = request.GET.get(str(self.parameter_name))
        if given:
            known.add(given)
        return [(value, value) for value in sorted(known)]

    def has_output(self) -> bool:
        return bool(self.lookup_choices)


def _workers() -> list[WorkflowWorker]:
    workers = WorkflowWorker.objects.using(config().database).order_by("-heartbeat_at")
    return list(workers.only("workflows", "queues")[:50])


class WorkflowFilter(GivenFilter):
    """By workflow."""

    title = _("workflow")
    parameter_name = "workflow"

    def known(self) -> Iterable[str]:
        here = {name for name, _version in registry.pairs()}
        return here | {pair[0] for worker in _workers() for pair in worker.workflows}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(workflow_name=self.value()) if self.value() else queryset


class VersionFilter(GivenFilter):
    """By version, once a link has asked for one."""

    title = _("version")
    parameter_name = "version"

    def known(self) -> Iterable[str]:
        return ()

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(version=self.value()) if self.value() else queryset


class QueueFilter(GivenFilter):
    """By queue."""

    title = _("queue")
    parameter_name = "queue"

    def known(self) -> Iterable[str]:
        return {definition.queue_name for definition in registry.definitions()}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(queue_name=self.value()) if self.value() else queryset


class AttentionFilter(admin.SimpleListFilter):
    """What an operator looks for first."""

    title = _("attention")
    parameter_name = "attention"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            ("failed", _("failed in the last day")),
            ("stuck", _("stuck on changed code")),
            ("open", _("all that is open")),
        ]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.value() == "failed":
            since = timezone.now() - dt.timedelta(days=1)
            return queryset.filter(status="failed", finished_at__gte=since)
        if self.value() == "stuck":
            return queryset.stuck()
        return queryset.open() if self.value() == "open" else queryset


class WaitingFilter(admin.SimpleListFilter):
    """Parked on a message, a signal, a gate or a child, for longer than."""

    title = _("waiting")
    parameter_name = "waiting"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("any", _("for somebody")), *((key, label) for key, (_d, label) in AGES.items())]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.value() == "any":
            return queryset.waiting()
        if self.value() in AGES:
            return queryset.waiting(longer_than=AGES[str(self.value())][0])
        return queryset


class StartedFilter(admin.ListFilter):
    """Drill-down by day of the start: years, then months, then days.

    Runs' ids are ordered by time, so the primary key finds a day; no index of its own is written
    at each start for the sake of this list.
    """

    title = _("started")
    parameter_name = "started"
    template = "admin/django_workflows/date_filter.html"

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, params, model, model_admin)
        given = params.pop(self.parameter_name, None)
        self.given: str | None = given[-1] if isinstance(given, list) else given
        self.period = _parse(self.given)

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return [self.parameter_name]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.period is None:
            return queryset
        start, end = (_midnight(day) for day in self.period)
        return queryset.filter(
            pk__gte=first_id(start - CLOCK_SKEW),
            pk__lt=first_id(end + CLOCK_SKEW),
            created_at__gte=start,
            created_at__lt=end,
        )

    def choices(self, changelist: Any) -> Iterator[Any]:
        def choice(value: str | None, display: Any, level: str = "") -> dict[str, Any]:
            query = changelist.get_query_string(
                {self.parameter_name: value} if value else {},
                [] if value else [self.parameter_name],
            )
            is_selected = value == self.given
            return {
                "selected": is_selected,
                "query_string": query,
                "display": display,
                "level": level,
            }

        yield choice(None, _("Any time"))
        yield from (choice(*entry) for entry in _offered(self.given, *_span()))


def _parse(text: str | None) -> tuple[dt.date, dt.date] | None:
    """The first day of a year, month or day, and the day after its last."""
    try:
        parts = [int(part) for part in (text or "").split("-")] if text else []
        if len(parts) == 1:
            return dt.date(parts[0], 1, 1), dt.date(parts[0] + 1, 1, 1)
        if len(parts) == 2:
            year, month = parts
            days = calendar.monthrange(year, month)[1]
            return dt.date(year, month, 1), dt.date(year, month, 1) + dt.timedelta(days=days)
        if len(parts) == 3:
            day = dt.date(*parts)
            return day, day + dt.timedelta(days=1)
    except (ValueError, OverflowError, calendar.IllegalMonthError):
        pass
    return None


def _midnight(day: dt.date) -> dt.datetime:
    naive = dt.datetime.combine(day, dt.time())
    return timezone.make_aware(naive) if timezone.is_aware(timezone.now()) else naive


def first_id(when: dt.datetime) -> UUID:
    """The smallest id (UUID, version 7) that a run started at this time could have."""
    milliseconds = max(0, int(to_epoch(when) * 1000)) & ((1 << 48) - 1)
    return UUID(int=milliseconds << 80)


def _span() -> tuple[dt.date, dt.date]:
    """Days of the first and of the last start."""
    runs = WorkflowRun.objects.using(config().database)
    first = runs.order_by("pk").values_list("created_at", flat=True).first()
    today = timezone.now() if timezone.is_naive(timezone.now()) else timezone.localtime()
    if first is None:
        return today.date(), today.date()
    local = first if timezone.is_naive(first) else timezone.localtime(first)
    return min(local.date(), today.date()), today.date()


def _offered(given: str | None, first: dt.date, last: dt.date) -> Iterator[tuple[str, Any, str]]:
    """Years; of the chosen year its months; of the chosen month its days."""
    chosen = (given or "").split("-") if _parse(given) is not None else []
    years = range(last.year, first.year - 1, -1)
    if len(years) == 1 and not chosen:
        chosen = [str(last.year)]
    for year in years:
        yield f"{year:04}", str(year), "year"
        if not chosen or int(chosen[0]) != year:
            continue
        for month in range(12, 0, -1):
            begin = dt.date(year, month, 1)
            if begin > last or (year, month) < (first.year, first.month):
                continue
            yield f"{year:04}-{month:02}", date_format(begin, "YEAR_MONTH_FORMAT"), "month"
            if len(chosen) > 1 and int(chosen[1]) == month:
                yield from _days(year, month, first, last)


def _days(year: int, month: int, first: dt.date, last: dt.date) -> Iterator[tuple[str, Any, str]]:
    for number in range(calendar.monthrange(year, month)[1], 0, -1):
        day = dt.date(year, month, number)
        if first <= day <= last:
            yield day.isoformat(), date_format(day, "MONTH_DAY_FORMAT"), "day"


class StateFilter(admin.SimpleListFilter):
    """Messages: those that wait, unless asked otherwise."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            ("pending", _("pending")),
            ("consumed", _("consumed")),
            ("refused", _("refused decisions")),
            ("all", _("all")),
        ]

    def choices(self, changelist: Any) -> Iterator[Any]:
        for value, label in self.lookup_choices:
            yield {
                "selected": value == (self.value() or "pending"),
                "query_string": changelist.get_query_string({self.parameter_name: value}),
                "display": label,
            }

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        value = self.value() or "pending"
        if value == "all":
            return queryset
        if value == "pending":
            return queryset.filter(consumed_by=None)
        taken = queryset.filter(~Q(consumed_by=None))
        return taken.exclude(refused="") if value == "refused" else taken


class AgeFilter(admin.SimpleListFilter):
    """Messages sent longer ago than."""

    title = _("sent")
    parameter_name = "age"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            ("1h", _("more than an hour ago")),
            ("1d", _("more than a day ago")),
            ("7d", _("more than 7 days ago")),
        ]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.value() in AGES:
            return queryset.filter(created_at__lte=timezone.now() - AGES[str(self.value())][0])
        return queryset


class NameFilter(GivenFilter):
    """By name, once a link has asked for one."""

    title = _("name")
    parameter_name = "name"

    def known(self) -> Iterable[str]:
        return ()

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset.filter(name=self.value()) if self.value() else queryset


class OneRunFilter(GivenFilter):
    """Of one run, once a link has asked for it."""

    title = _("run")
    parameter_name = "run"

    def known(self) -> Iterable[str]:
        return ()

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if not self.value():
            return queryset
        try:
            return queryset.filter(run_id=UUID(str(self.value())))
        except ValueError:
            return queryset.none()
