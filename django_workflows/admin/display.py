"""Formatting only: statuses, durations, sizes, links."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

from django_workflows import payloads
from django_workflows.gates.inbox import gate_name
from django_workflows.models import RunStatus, StepStatus

EMPTY = "-"
# A sign beside each word, so that a status can be told without its color.
SIGNS = {
    "pending": "○",
    "running": "▶",
    "suspended": "‖",
    "waiting": "‖",
    "completed": "✓",
    "failed": "✗",
    "canceled": "⊘",
    "live": "▶",
    "stale": "✗",
    "stopped": "○",
}


def status_badge(status: str, label: Any = None) -> SafeString:
    """A status as a sign and a word."""
    if label is None:
        label = dict([*RunStatus.choices, *StepStatus.choices]).get(status, status)
    return format_html(
        '<span class="wf-status wf-{}"><span aria-hidden="true">{}</span> {}</span>',
        status,
        SIGNS.get(status, "•"),
        label,
    )


def duration(delta: timedelta | None) -> str:
    """How long something took, in two units at most."""
    if delta is None:
        return EMPTY
    seconds = max(0.0, delta.total_seconds())
    if seconds < 1:
        return _("%(n)s ms") % {"n": round(seconds * 1000)}
    if seconds < 60:
        return _("%(n)s s") % {"n": number_format(seconds, 1)}
    return timesince(timezone.now() - timedelta(seconds=seconds), timezone.now())


def moment(value: datetime | None) -> str:
    """A date and a time to the second, in the current time zone."""
    if value is None:
        return EMPTY
    local = to_local(value)
    return f"{date_format(local, 'SHORT_DATE_FORMAT')} {local:%H:%M:%S}"


def precise(value: datetime) -> str:
    """A time to the second, for titles and downloads."""
    return to_local(value).strftime("%Y-%m-%d %H:%M:%S")


def now() -> datetime:
    """The time, aware as USE_TZ says."""
    return timezone.now()


def to_local(value: datetime) -> datetime:
    return value if timezone.is_naive(value) else timezone.localtime(value)


def instant(epoch: float) -> datetime:
    """A time that details hold as seconds since 1970, as fields give theirs."""
    aware = datetime.fromtimestamp(epoch, tz=timezone.get_default_timezone())
    return aware if timezone.is_aware(timezone.now()) else timezone.make_naive(aware)


def age(value: datetime | None) -> SafeString | str:
    """How long ago, with the time itself as a title."""
    if value is None:
        return EMPTY
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        to_local(value).isoformat(),
        precise(value),
        timesince(value, timezone.now()).split(",")[0],
    )


def size(count: int) -> str:
    """A number of characters."""
    if count < 1024:
        return _("%(n)s characters") % {"n": count}
    if count < 1024 * 1024:
        return _("%(n)s KB") % {"n": number_format(count / 1024, 1)}
    return _("%(n)s MB") % {"n": number_format(count / 1024 / 1024, 1)}


def cut(text: str, limit: int) -> str:
    """`text` that can be shown, at most so long."""
    text = payloads.readable(text)
    return text if len(text) <= limit else f"{text[:limit]}…"


def run_url(run_id: UUID | str, site: str | None = None) -> str:
    return reverse("admin:django_workflows_workflowrun_change", args=[run_id], current_app=site)


def step_url(run_id: UUID | str, seq: int, site: str | None = None) -> str:
    """The step's place on its run's page."""
    return f"{run_url(run_id, site)}?step={seq}#step-{seq}"


def link(url: str, text: Any) -> SafeString:
    return format_html('<a href="{}">{}</a>', url, text)


def message_label(name: str) -> str:
    """A message's name as people know it: a decision is stored under a name of our own."""
    gate = gate_name(name)
    if gate:
        return _("decision on “%(gate)s”") % {"gate": payloads.readable(gate)}
    return payloads.readable(name)


def progress_of(state: Any) -> tuple[float, float] | None:
    """(done, total) of a run's state, where it tells them."""
    if not isinstance(state, dict):
        return None
    done, total = (_number(state.get(name)) for name in ("done", "total"))
    if done is None or total is None:
        return None
    if not 0 < total < float("inf") or not 0 <= done < float("inf"):
        return None
    return min(done, total), total


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    try:
        return float(value) if is_number else None
    except OverflowError:
        return None


def progress_bar(state: Any) -> SafeString | str:
    """`done` of `total` in a run's state as a bar with its numbers."""
    found = progress_of(state)
    if found is None:
        return ""
    done, total = found
    text = f"{number_format(done, 0)} / {number_format(total, 0)}"
    return format_html(
        '<progress class="wf-progress" value="{}" max="{}" aria-label="{}">{}</progress> '
        '<span class="wf-quiet">{}</span>',
        repr(done),
        repr(total),
        _("Progress"),
        text,
        text,
    )
