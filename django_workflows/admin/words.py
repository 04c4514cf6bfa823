"""What came of a step, and how a run stands, in a sentence each."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils.timesince import timesince, timeuntil
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_workflows import payloads
from django_workflows.admin.cut_payloads import value_of
from django_workflows.admin.display import cut, duration, instant, moment
from django_workflows.models import WorkflowRun, WorkflowStep

# The sentence says it all: no need to show the result beside it.
SELF_EXPLAINING = ("sleep", "approval", "send", "patch", "child")
# Recorded values and sends take no time worth a figure.
TAKING_TIME = ("step", "sleep", "message", "signal", "approval", "child_result")


def outcome(step: WorkflowStep, details: dict[str, Any], *, is_over: bool) -> str:
    """One sentence about a step; with `is_over` its run has ended, so that it waits no more."""
    if step.status == "waiting" and is_over:
        return _("Was still waiting when the run ended.")
    say = _SAYINGS.get(step.kind)
    return say(step, details) if say is not None else ""


def _name(step: WorkflowStep) -> str:
    return cut(step.name, 200)


def _until(step: WorkflowStep) -> str:
    if step.wake_at is None:
        return _("without a time limit")
    return _("until %(when)s at the latest") % {"when": moment(step.wake_at)}


def _tries(count: int) -> str:
    return ngettext("%(n)s attempt", "%(n)s attempts", count) % {"n": count}


def _step(step: WorkflowStep, details: dict[str, Any]) -> str:
    if step.status == "running":
        return _("Is running, attempt %(n)s.") % {"n": step.attempts}
    if step.status == "waiting":
        given = {"tries": _tries(step.attempts), "when": moment(step.wake_at)}
        return _("Failed so far, %(tries)s; next one due %(when)s.") % given
    if step.status == "failed":
        return _("Failed for good after %(tries)s.") % {"tries": _tries(step.attempts)}
    if step.attempts > 1:
        return _("Done after %(tries)s.") % {"tries": _tries(step.attempts)}
    return _("Done.")


def _sleep(step: WorkflowStep, details: dict[str, Any]) -> str:
    if step.status == "waiting":
        return _("Sleeps until %(when)s.") % {"when": moment(step.wake_at)}
    return _("Slept until %(when)s.") % {"when": moment(step.wake_at or step.finished_at)}


def _message(step: WorkflowStep, details: dict[str, Any]) -> str:
    if step.status == "waiting":
        given = {"name": _name(step), "until": _until(step)}
        return _("Waits for message “%(name)s”, %(until)s.") % given
    return _taken(step, details)


def _taken(step: WorkflowStep, details: dict[str, Any]) -> str:
    told = details.get("message")
    if not told:
        if details.get("timed_out"):
            return _("Nothing came in time.")
        return _("Found nothing in the inbox.")
    given = {
        "name": cut(str(told.get("name", "")), 200),
        "when": moment(instant(told["sent_at"])) if told.get("sent_at") else "",
    }
    if step.status == "failed":
        return _("Took “%(name)s”, sent %(when)s, which doesn't fit what is asked for.") % given
    return _("Took “%(name)s”, sent %(when)s.") % given


def _signal(step: WorkflowStep, details: dict[str, Any]) -> str:
    if step.status == "waiting":
        given = {"name": _name(step), "until": _until(step)}
        return _("Waits for signal “%(name)s”, %(until)s.") % given
    return _taken(step, details)


def _approval(step: WorkflowStep, details: dict[str, Any]) -> str:
    if step.status == "waiting":
        return _("Waits for a decision, %(until)s.") % {"until": _until(step)}
    decision = value_of(step, "result", 20_000) if hasattr(step, "result_head") else step.result
    if not isinstance(decision, dict):
        return _("Nobody decided in time.") if details.get("timed_out") else _("Decided.")
    given = {"who": cut(str(decision["by"]["text"]), 200), "why": cut(decision["comment"], 300)}
    if decision["approved"]:
        told = _("Approved by %(who)s.") % given
    else:
        told = _("Rejected by %(who)s.") % given
    return _("%(told)s “%(why)s”") % {"told": told, "why": given["why"]} if given["why"] else told


def _send(step: WorkflowStep, details: dict[str, Any]) -> str:
    given = {"name": _name(step)}
    if step.status == "failed":
        return _("Couldn't send “%(name)s”.") % given
    return _("Sent “%(name)s” to another run.") % given


def _send_signal(step: WorkflowStep, details: dict[str, Any]) -> str:
    reached = value_of(step, "result", 1_000) if hasattr(step, "result_head") else None
    if isinstance(reached, list):
        told = ngettext("It reached %(n)s run.", "It reached %(n)s runs.", len(reached))
        return (
            _("Sent signal “%(name)s”.") % {"name": _name(step)} + " " + told % {"n": len(reached)}
        )
    return _("Sent signal “%(name)s”.") % {"name": _name(step)}


def _child(step: WorkflowStep, details: dict[str, Any]) -> str:
    if step.status == "failed":
        return _("Couldn't start the child run.")
    return _("Started a run of %(name)s.") % {"name": _name(step)}


def _child_result(step: WorkflowStep, details: dict[str, Any]) -> str:
    if step.status == "waiting":
        return _("Waits for its child run.")
    if step.status == "failed":
        return _("The child run ended as %(status)s.") % {"status": details.get("status", "")}
    return _("The child run completed.")


def _recorded(step: WorkflowStep, details: dict[str, Any]) -> str:
    return _("Recorded, so that a replay sees the same.")


def _patch(step: WorkflowStep, details: dict[str, Any]) -> str:
    return _("Took the new code's path.")


_SAYINGS = {
    "step": _step,
    "sleep": _sleep,
    "message": _message,
    "receive": _taken,
    "signal": _signal,
    "approval": _approval,
    "send": _send,
    "send_signal": _send_signal,
    "child": _child,
    "child_result": _child_result,
    "now": _recorded,
    "uuid": _recorded,
    "random": _recorded,
    "patch": _patch,
}


def standing(run: WorkflowRun, now: datetime, *, is_served: bool = True) -> str:
    """How a run stands, in a sentence or two.

    Args:
        is_served: a live worker knows its workflow and version.
    """
    told = _STANDINGS[run.status](run, now)
    if run.status == "pending" and not is_served:
        told += " " + _(
            "No live worker has registered %(name)s, version %(version)s, so nothing will take it."
        ) % {"name": run.workflow_name, "version": run.version}
    return payloads.readable(told)


def _pending(run: WorkflowRun, now: datetime) -> str:
    if run.problem:
        given = {"count": run.problem_count, "when": moment(run.available_at)}
        return _("Backs off: seen %(count)s times, the next try is due %(when)s.") % given
    if run.available_at is not None and run.available_at > now:
        given = {"when": moment(run.available_at), "left": timeuntil(run.available_at, now)}
        return _("Is due %(when)s, in %(left)s.") % given
    return _("Is due, and waits for a worker.")


def _running(run: WorkflowRun, now: datetime) -> str:
    return _("A worker is executing it now.")


def waiting_for(run: WorkflowRun) -> str:
    """What a parked run waits for, in a few words."""
    names = ", ".join(f"“{cut(name, 100)}”" for name in run.waiting_names)
    kinds = {
        "message": _("message %(names)s"),
        "signal": _("signal %(names)s"),
        "approval": _("approval %(names)s"),
        "child_result": _("a child run"),
        "sleep": _("the end of its sleep"),
        "step": _("the next attempt of a step"),
    }
    if not run.waiting_kind:
        return ""
    return kinds.get(run.waiting_kind, run.waiting_kind) % {"names": names}


def _suspended(run: WorkflowRun, now: datetime) -> str:
    since = run.waiting_since or now
    given = {"what": waiting_for(run), "age": timesince(since, now)}
    told = _("Waits for %(what)s, for %(age)s so far.") % given
    if run.available_at is None:
        return told + " " + _("There is no time limit: it waits until it comes.")
    if run.available_at <= now:
        return told + " " + _("It is due, and waits for a worker.")
    given = {"when": moment(run.available_at), "left": timeuntil(run.available_at, now)}
    return told + " " + _("It goes on at %(when)s at the latest, in %(left)s.") % given


def _ended(run: WorkflowRun, now: datetime) -> str:
    took = duration(run.finished_at - run.created_at) if run.finished_at else "?"
    given = {"when": moment(run.finished_at), "took": took}
    return {
        "completed": _("Completed %(when)s, %(took)s after its start."),
        "failed": _("Failed %(when)s, %(took)s after its start."),
        "canceled": _("Canceled %(when)s, %(took)s after its start."),
    }[run.status] % given


_STANDINGS = {
    "pending": _pending,
    "running": _running,
    "suspended": _suspended,
    "completed": _ended,
    "failed": _ended,
    "canceled": _ended,
}
