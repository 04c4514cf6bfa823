"""Make a decision, and say in words what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from django_workflows import api
from django_workflows.exceptions import (
    ApprovalDenied,
    GateDecided,
    PayloadError,
    RunFinished,
    RunNotFound,
)
from django_workflows.gates.forms import GateForm
from django_workflows.gates.inbox import Gate
from django_workflows.store import approvals
from django_workflows.values import Approval


@dataclass(frozen=True)
class Outcome:
    """What came of an attempt to decide.

    Attributes:
        level: "success", "warning" or "error", as Django's messages have them.
        is_stored: this click's decision stands, and is new.
    """

    level: str
    text: str
    is_stored: bool = False


def decide(gate: Gate, form: GateForm, *, approved: bool, user: Any) -> Outcome:
    """Approve or reject a gate with a valid form."""
    act = api.approve if approved else api.reject
    key = f"page:{gate.pk}:{user.pk}:{form.comment.cleaned_data['page']}"
    try:
        message = act(
            gate.run,
            gate.step,
            by=user,
            comment=form.comment.cleaned_data["comment"],
            data=form.value(approved=approved),
            idempotency_key=key,
        )
    except GateDecided as decided:
        return _already(decided.approval)
    except RunFinished:
        return Outcome("error", _("Too late: this run has ended, nothing was decided."))
    except RunNotFound:
        return Outcome("error", _("This run doesn't exist any more."))
    except ApprovalDenied as denied:
        return Outcome(
            "error", _("You may not decide this: %(reason)s.") % {"reason": denied.reason}
        )
    except (ValueError, PayloadError, ImportError) as error:
        return Outcome("error", _("Nothing was decided: %(error)s") % {"error": error})
    if message.deduplicated and message.data["approved"] != approved:
        return _already(approvals.to_approval(message.data))
    title = gate.title
    if approved:
        return Outcome("success", _("You approved “%(title)s”.") % {"title": title}, True)
    return Outcome("success", _("You rejected “%(title)s”.") % {"title": title}, True)


def _already(approval: Approval | None) -> Outcome:
    if approval is None:
        return Outcome("error", _("Too late: this gate is no longer open, nothing was decided."))
    told = {
        "who": approval.by.text,
        "when": date_format(localtime(approval.decided_at), "DATETIME_FORMAT"),
    }
    if approval.approved:
        return Outcome("warning", _("This is approved already, by %(who)s: %(when)s") % told)
    return Outcome("warning", _("This is rejected already, by %(who)s: %(when)s") % told)


def localtime(value: datetime) -> datetime:
    """In the current time zone, as templates show times."""
    return value if timezone.is_naive(value) else timezone.localtime(value)
