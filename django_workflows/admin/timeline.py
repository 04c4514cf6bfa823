"""A run's record as a picture: one row per step, bars on a time axis. Pure; no queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django_workflows import payloads
from django_workflows.admin import words
from django_workflows.admin.cut_payloads import ROW_LIMIT, Shown, shown
from django_workflows.admin.display import cut, duration, instant, to_local
from django_workflows.models import WorkflowRun, WorkflowStep

# The axis has this many units; a bar is at least so wide that it can be seen.
UNITS = 1000
NARROWEST = 4
TICKS = 2
MAX_ERROR = 500
MAX_TRACEBACK = 3_000


@dataclass(frozen=True)
class Bar:
    """A span on the axis."""

    x: int
    width: int
    css: str


@dataclass(frozen=True)
class Mark:
    """A moment on the axis."""

    x: int
    css: str


@dataclass(frozen=True)
class Attempt:
    """One failed attempt of a step."""

    number: int
    type: str
    message: str
    at: datetime
    took: str


@dataclass
class Row:
    """One step: what it was, what came of it, and where it lies in time."""

    step: WorkflowStep
    details: dict[str, Any]
    words: str
    took: str = ""
    bars: list[Bar] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    error: dict[str, str] | None = None
    result: Shown | None = None
    is_copied: bool = False
    message_id: int | None = None
    child_id: str = ""
    target_id: str = ""

    @property
    def has_other_error(self) -> bool:
        """Whether the error says more than the last of the attempts beside it."""
        if self.error is None or self.step.status == "completed":
            return False
        last = self.attempts[-1] if self.attempts else None
        return last is None or last.type != self.error["type"]

    @property
    def label(self) -> str:
        """The step's key, without the kind that stands beside it."""
        return cut(self.step.key.removeprefix(f"{self.step.kind}:"), 200)

    @property
    def is_gate(self) -> bool:
        return self.step.kind == "approval"


@dataclass(frozen=True)
class Axis:
    """Where moments lie between two of them."""

    start: datetime
    end: datetime

    def x(self, when: datetime) -> int:
        """Position of a moment; those outside lie at the edge."""
        span = (self.end - self.start).total_seconds() or 1.0
        return round(min(1.0, max(0.0, (when - self.start).total_seconds() / span)) * UNITS)

    def bar(self, start: datetime, end: datetime, css: str) -> Bar:
        x = min(self.x(start), UNITS - NARROWEST)
        return Bar(x, max(NARROWEST, self.x(end) - x), css)

    def ticks(self) -> list[str]:
        """Labels at equal distances: the beginning as a time, the others as what passed since."""
        span = self.end - self.start
        passed = [f"+{duration(span * n / TICKS)}" for n in range(1, TICKS + 1)]
        return [f"{to_local(self.start):%H:%M:%S}", *passed]


@dataclass(frozen=True)
class Timeline:
    """The picture of a run, or of a part of it."""

    axis: Axis
    rows: list[Row]
    queued: Bar | None


def build(run: WorkflowRun, steps: list[WorkflowStep], now: datetime, *, whole: bool) -> Timeline:
    """The timeline of steps in their order.

    Args:
        whole: they begin with the run's first, so the axis begins with its start.
    """
    begin = run.created_at
    if not whole and steps:
        begin = max(begin, steps[0].created_at)
    end = run.finished_at or now
    if not whole and steps and steps[-1].finished_at is not None:
        end = min(end, max(step.finished_at or now for step in steps))
    axis = Axis(begin, max(end, begin + timedelta(milliseconds=1)))
    queued = None
    if whole:
        queued = axis.bar(run.created_at, run.started_at or end, "queued")
    return Timeline(axis, [_row(run, step, axis, end) for step in steps], queued)


def _row(run: WorkflowRun, step: WorkflowStep, axis: Axis, end: datetime) -> Row:
    details = load_details(step.details)
    row = Row(step, details, words.outcome(step, details, is_over=run.is_finished))
    # A rerun's record begins with steps of the run that it goes on from.
    row.is_copied = step.created_at < run.created_at and run.rerun_of_id is not None
    row.attempts = [_attempt(told) for told in details.get("attempts", ())]
    row.error = _error(step)
    row.result = (
        shown(step, "result", ROW_LIMIT) if step.kind not in words.SELF_EXPLAINING else None
    )
    row.message_id = (details.get("message") or {}).get("id") if step.kind != "send" else None
    row.child_id = str(details.get("child") or "")
    row.target_id = str(details.get("run") or "")
    if row.is_copied:
        return row
    begin = step.started_at or step.created_at
    until = step.finished_at or end
    row.took = duration(until - step.created_at) if step.kind in words.TAKING_TIME else ""
    _draw(row, axis, begin, until)
    return row


def _draw(row: Row, axis: Axis, begin: datetime, until: datetime) -> None:
    step = row.step
    if row.attempts:
        row.bars.append(axis.bar(step.created_at, until, "waiting"))
    for attempt in row.attempts:
        row.marks.append(Mark(axis.x(attempt.at), "failed"))
    is_between = step.status == "waiting" and row.attempts
    if not is_between:
        row.bars.append(axis.bar(begin, until, step.status))
    message = row.details.get("message")
    if isinstance(message, dict) and message.get("sent_at"):
        row.marks.append(Mark(axis.x(instant(message["sent_at"])), "message"))


def load_details(text: str) -> dict[str, Any]:
    """A step's details."""
    found = payloads.load_json(text) if text else {}
    return found if isinstance(found, dict) else {}


def _attempt(told: dict[str, Any]) -> Attempt:
    try:
        message = payloads.unseal(told.get("message", ""))
    except Exception:
        message = "…"
    at = instant(told["at"])
    began = told.get("started_at")
    took = duration(at - instant(began)) if began is not None else ""
    return Attempt(told.get("number", 0), cut(told["type"], 200), cut(message, 500), at, took)


def _error(step: WorkflowStep) -> dict[str, str] | None:
    try:
        told = step.error
    except Exception as unreadable:
        return {"type": type(unreadable).__name__, "message": cut(str(unreadable), MAX_ERROR)}
    return error_parts(told, MAX_ERROR, MAX_TRACEBACK)


def error_parts(told: Any, message: int, traceback: int) -> dict[str, str] | None:
    """An error's parts, cut for a page; of a traceback its end says most."""
    if not isinstance(told, dict):
        return None
    trace = payloads.readable(str(told.get("traceback") or ""))
    if len(trace) > traceback:
        trace = f"…{trace[-traceback:]}"
    return {
        "type": cut(str(told.get("type", "")), 200),
        "message": cut(str(told.get("message", "")), message),
        "traceback": trace,
    }
