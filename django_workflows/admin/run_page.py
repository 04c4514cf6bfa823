"""Everything that one run's page shows, in as few queries as there are tables."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Model, Q
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_workflows import payloads
from django_workflows.admin import fleet, log, timeline, words
from django_workflows.admin.cut_payloads import (
    ROW_LIMIT,
    RUN_LIMIT,
    Shown,
    shown,
    value_of,
    with_heads,
)
from django_workflows.conf import config
from django_workflows.models import WorkflowMessage, WorkflowRun, WorkflowStep, WorkflowWorker

LABELS = {"input": _("input"), "result": _("result"), "state": _("state")}
PAYLOADS = tuple(LABELS)
RELATED = ("id", "workflow_id", "workflow_name", "status", "created_at")
MAX_STEPS = 100
MAX_MESSAGES = 50
MAX_RELATED = 20
# An error is at most this long: 10,000 characters of message and 50,000 of traceback.
ERROR_MESSAGE = 10_000
ERROR_TRACEBACK = 20_000


@dataclass(frozen=True)
class Inbox:
    """A run's messages: those that wait, and those that steps took."""

    pending: list[Any]
    consumed: list[Any]
    more_pending: bool
    more_consumed: bool


def find(run_id: UUID) -> WorkflowRun | None:
    """The run with what its page shows of its payloads."""
    runs = WorkflowRun.objects.using(config().database).select_related("parent", "rerun_of")
    heads = with_heads(runs, *PAYLOADS, limit=RUN_LIMIT)
    related = [f"{name}__{payload}" for name in ("parent", "rerun_of") for payload in PAYLOADS]
    found: WorkflowRun | None = (
        heads.defer(*PAYLOADS, *related, "parent__error", "rerun_of__error")
        .filter(pk=run_id)
        .first()
    )
    return found


def context(run: WorkflowRun, *, step: int | None, site: admin.AdminSite) -> dict[str, Any]:
    """What the run's template needs.

    Args:
        step: position of a step that has to be among those shown.
    """
    now = timezone.now()
    steps, older, newer = _steps(run, step)
    inbox = _inbox(run)
    pairs = fleet.served_pairs() if run.status == "pending" else None
    is_served = pairs is None or (run.workflow_name, run.version) in pairs
    state = value_of(run, "state", RUN_LIMIT)
    return {
        "run": run,
        "now": now,
        "standing": words.standing(run, now, is_served=is_served),
        "problem": payloads.readable(run.problem),
        "worker": _worker(run),
        "gate": _open_gate(run, steps),
        "state": state if isinstance(state, dict) else None,
        "error": _error(run),
        "payloads": _payloads(run),
        "timeline": timeline.build(run, steps, now, whole=older is None),
        "older": older,
        "newer": newer,
        "inbox": inbox,
        "children": _related(run.children),
        "reruns": _related(run.reruns),
        **subject(run, site),
        "log": log.entries(run),
        "version": _version(run, steps, inbox, now),
    }


def _steps(run: WorkflowRun, wanted: int | None) -> tuple[list[Any], int | None, int | None]:
    """A window of the record, and where the windows before and after it begin, if there are."""
    rows = with_heads(_steps_of(run), "result", limit=max(ROW_LIMIT, 1))
    if wanted is not None:
        first = max(0, wanted - MAX_STEPS // 2)
        found = list(rows.filter(seq__gte=first).order_by("seq")[: MAX_STEPS + 1])
        newer = found[MAX_STEPS].seq if len(found) > MAX_STEPS else None
        found = found[:MAX_STEPS]
        older = max(0, first - MAX_STEPS // 2) if first > 0 else None
        return found, older, None if newer is None else newer + MAX_STEPS // 2
    found = list(rows.order_by("-seq")[: MAX_STEPS + 1])
    older = max(0, found[MAX_STEPS].seq + 1 - MAX_STEPS // 2) if len(found) > MAX_STEPS else None
    return found[:MAX_STEPS][::-1], older, None


def _steps_of(run: WorkflowRun) -> Any:
    return WorkflowStep.objects.using(config().database).filter(run=run)


def _inbox(run: WorkflowRun) -> Inbox:
    messages = WorkflowMessage.objects.using(config().database).filter(run=run)
    rows = with_heads(messages, "data", limit=ROW_LIMIT)
    pending = list(rows.pending()[: MAX_MESSAGES + 1])
    taken = rows.filter(~Q(consumed_by=None)).select_related("consumed_by")
    # Of the step only what the link to it needs.
    taken = taken.defer(
        "data", *(f"consumed_by__{name}" for name in ("result", "error", "details"))
    )
    consumed = list(taken.order_by("-id")[: MAX_MESSAGES + 1])
    for message in (*pending, *consumed):
        message.shown = shown(message, "data", ROW_LIMIT)
    return Inbox(
        pending[:MAX_MESSAGES],
        consumed[:MAX_MESSAGES][::-1],
        len(pending) > MAX_MESSAGES,
        len(consumed) > MAX_MESSAGES,
    )


def _payloads(run: WorkflowRun) -> list[tuple[str, Any, Shown]]:
    found = []
    for column in PAYLOADS:
        what = shown(run, column, RUN_LIMIT)
        if what is not None:
            found.append((column, LABELS[column], what))
    return found


def _error(run: WorkflowRun) -> dict[str, str] | None:
    try:
        return timeline.error_parts(run.error, ERROR_MESSAGE, ERROR_TRACEBACK)
    except Exception as unreadable:
        return {"type": type(unreadable).__name__, "message": str(unreadable), "traceback": ""}


def _open_gate(run: WorkflowRun, steps: list[Any]) -> Any:
    """The newest gate that the run waits at."""
    if run.is_finished:
        return None
    waiting = (step for step in reversed(steps) if step.kind == "approval")
    return next((step for step in waiting if step.status == "waiting"), None)


def _worker(run: WorkflowRun) -> WorkflowWorker | None:
    if run.claimed_by is None:
        return None
    workers = WorkflowWorker.objects.using(config().database)
    return workers.filter(pk=run.claimed_by).first()


def _related(runs: Any) -> list[Any]:
    return list(runs.only(*RELATED).order_by("-id")[:MAX_RELATED])


def subject(run: WorkflowRun, site: admin.AdminSite) -> dict[str, Any]:
    """What the run is about, with a link to its own page in this admin if it has one."""
    if not run.subject_type:
        return {}
    found: Model | None = run.subject
    told = {"subject_label": f"{run.subject_type} {run.subject_pk}", "subject": found}
    if found is not None and site.is_registered(type(found)):
        name = f"admin:{found._meta.app_label}_{found._meta.model_name}_change"
        with suppress(NoReverseMatch):
            told["subject_url"] = reverse(name, args=[found.pk], current_app=site.name)
    return told


def _version(run: WorkflowRun, steps: list[Any], inbox: Inbox, now: datetime) -> str:
    """Changes whenever the page would, so that a page which hasn't isn't replaced."""
    last = steps[-1] if steps else None
    parts = (
        run.status,
        run.claim_count,
        run.attempts,
        run.available_at,
        run.problem_count,
        len(steps),
        last and (last.status, last.attempts),
        len(inbox.pending),
        len(inbox.consumed),
        hash(getattr(run, "state_head", "")),
        # The picture grows with time.
        int(now.timestamp()) // 5 if run.status == "running" else int(now.timestamp()) // 30,
    )
    return "|".join(map(str, parts))
