"""Which gates are open, who may decide them, and what has been decided. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from django_workflows import payloads
from django_workflows.db.dialects import dialect
from django_workflows.exceptions import PayloadError
from django_workflows.models import DECISION_PREFIX, WorkflowMessage, WorkflowRun, WorkflowStep
from django_workflows.querysets import OPEN_STATUSES
from django_workflows.store import approvals, authority
from django_workflows.values import Approval

# What a page about a gate shows of its run; a permission's callable may fetch the rest.
RUN_FIELDS = (
    "run__workflow_id",
    "run__workflow_name",
    "run__version",
    "run__status",
    "run__subject_type",
    "run__subject_pk",
    "run__created_at",
    "run__finished_at",
)
STEP_FIELDS = (
    "seq",
    "key",
    "name",
    "kind",
    "status",
    "details",
    "wake_at",
    "created_at",
    "finished_at",
    "run",
)
# "For me" can't be asked of the database, as a permission may be a function of the project's own:
# this many open gates are looked through for one page.
BATCH = 200
MAX_SCANNED = 1000


@dataclass(frozen=True)
class Refused:
    """An early decision that didn't hold when its gate was reached."""

    approval: Approval
    reason: str


@dataclass
class Gate:
    """One gate: its step, its run, and how it stands."""

    step: WorkflowStep
    pending: Approval | None = None
    refused: list[Refused] = field(default_factory=list)
    may_decide: bool = False
    why_not: str = ""

    @property
    def pk(self) -> int:
        return int(self.step.pk)

    @property
    def run(self) -> WorkflowRun:
        return self.step.run

    @cached_property
    def asked(self) -> dict[str, Any]:
        """What the gate asks, as it was when the run reached it."""
        asked: dict[str, Any] = self._details.get("gate", {})
        return asked

    @cached_property
    def _details(self) -> dict[str, Any]:
        details: dict[str, Any] = payloads.load_json(self.step.details or "{}")
        return details

    @property
    def title(self) -> str:
        return payloads.readable(self.asked.get("title") or self.step.name)

    @property
    def description(self) -> str:
        return payloads.readable(self.asked.get("description") or "")

    @cached_property
    def decision(self) -> Approval | None:
        """The decision that stands, whether the run has taken it yet or not."""
        if self.pending is not None or self.step.status != "completed":
            return self.pending
        try:
            return approvals.of_step(self.step)
        except PayloadError:
            # The codec's key is gone, say. The page still tells what was asked.
            return None

    @property
    def is_open(self) -> bool:
        """True while a decision can still be made."""
        return self.step.status == "waiting" and self.pending is None and not self.run.is_finished

    @property
    def is_settled(self) -> bool:
        """True once nothing on its page will change any more."""
        return self.step.status != "waiting" or self.run.is_finished

    @property
    def is_timed_out(self) -> bool:
        return bool(self._details.get("timed_out"))

    @property
    def since(self) -> datetime:
        asked_at: datetime = self.step.created_at
        return asked_at

    @property
    def names_somebody(self) -> bool:
        """True where the gate itself says who may decide it."""
        return bool(self.asked.get("permission") or self.asked.get("approvers"))

    @cached_property
    def deciders(self) -> list[str]:
        """Who may decide it, in words; asks the database for the names."""
        told = []
        approvers = self.asked.get("approvers") or {}
        if approvers.get("groups"):
            told.append(_("members of %(groups)s") % {"groups": ", ".join(approvers["groups"])})
        if approvers.get("users"):
            told.append(", ".join(_user_names(approvers["users"])))
        if self.asked.get("permission"):
            told.append(_permission_words(self.asked["permission"]))
        return told


def _user_names(keys: list[str]) -> list[str]:
    users = get_user_model()._default_manager
    try:
        names = {str(user.pk): str(user) for user in users.filter(pk__in=keys[:20])}
    except (ValueError, ValidationError):
        # What the workflow named isn't a key; then nobody is among them either.
        names = {}
    return [names.get(key, key) for key in keys]


def _permission_words(permission: str) -> str:
    if ":" in permission:
        return _("whoever passes the check %(check)s") % {"check": permission}
    app, _dot, codename = permission.partition(".")
    known = Permission.objects.filter(content_type__app_label=app, codename=codename).first()
    return _("whoever has the permission “%(name)s”") % {
        "name": known.name if known else permission
    }


@dataclass(frozen=True)
class GatePage:
    """One page of an inbox; `next_cursor` is None at the end."""

    gates: list[Gate]
    next_cursor: int | None


def user_groups(user: Any) -> frozenset[str]:
    """Names of a user's groups, asked for once per page."""
    return frozenset(user.groups.values_list("name", flat=True))


def judge(gate: Gate, user: Any, groups: Collection[str]) -> Gate:
    """Say on the gate whether this user may decide it, and why not."""
    try:
        reason = authority.why_not(gate.asked, user, gate.run, groups)
    except Exception as error:
        # A project's own function, or one that is gone: the gate is shown all the same.
        reason = _("the check raised %(error)s") % {"error": f"{type(error).__name__}: {error}"}
    gate.why_not = reason or ""
    gate.may_decide = reason is None
    return gate


def open_gates(
    user: Any, *, mine: bool, after: int = 0, limit: int = 50, allow_unnamed: bool = True
) -> GatePage:
    """Gates that wait for a decision, oldest first.

    Args:
        mine: only those that this user may decide.
        after: `next_cursor` of the page before.
        allow_unnamed: whether gates that name nobody are for this user.
    """
    found: list[Gate] = []
    groups = user_groups(user)
    scanned = 0
    while len(found) <= limit and scanned < MAX_SCANNED:
        steps = list(_open_steps().filter(pk__gt=after)[:BATCH])
        scanned += len(steps)
        for gate in _undecided(steps):
            judge(gate, user, groups)
            gate.may_decide = gate.may_decide and (allow_unnamed or gate.names_somebody)
            if gate.may_decide or not mine:
                found.append(gate)
        if len(steps) < BATCH:
            more = found[limit - 1].pk if len(found) > limit else None
            return GatePage(found[:limit], more)
        after = steps[-1].pk
    more = found[limit - 1].pk if len(found) > limit else after
    return GatePage(found[:limit], more)


def decided_gates(*, before: int | None = None, limit: int = 50) -> GatePage:
    """Gates that are over, the latest first."""
    steps = _steps().filter(kind="approval", status="completed").order_by("-pk")
    if before:
        steps = steps.filter(pk__lt=before)
    rows = list(steps[: limit + 1])
    gates = [Gate(step) for step in rows[:limit]]
    return GatePage(gates, gates[-1].pk if len(rows) > limit else None)


def load(step_id: int) -> Gate | None:
    """One gate with all that its page shows; None when there is none of this id."""
    step = _steps().filter(kind="approval", pk=step_id).first()
    if step is None:
        return None
    gate = _with_pending([step])[0]
    refused = WorkflowMessage.objects.using(dialect().alias).filter(consumed_by=step)
    gate.refused = [
        Refused(approvals.to_approval(message.data), message.refused)
        for message in refused.exclude(refused="").order_by("id")[:20]
    ]
    return gate


def _steps() -> Any:
    steps = WorkflowStep.objects.using(dialect().alias).select_related("run")
    return steps.only(*STEP_FIELDS, "result", *RUN_FIELDS)


def _open_steps() -> Any:
    steps = WorkflowStep.objects.using(dialect().alias).select_related("run")
    waiting = steps.filter(kind="approval", status="waiting", run__status__in=OPEN_STATUSES)
    return waiting.only(*STEP_FIELDS, *RUN_FIELDS).order_by("pk")


def _undecided(steps: Iterable[WorkflowStep]) -> list[Gate]:
    """Gates of steps without those whose decision no worker has taken yet."""
    steps = list(steps)
    decided = set(_decisions(steps).values_list("decides", flat=True)) if steps else set()
    return [Gate(step) for step in steps if f"gate:{step.pk}" not in decided]


def _decisions(steps: list[WorkflowStep]) -> Any:
    messages = WorkflowMessage.objects.using(dialect().alias)
    return messages.filter(
        run__in=[step.run_id for step in steps],
        decides__in=[f"gate:{step.pk}" for step in steps],
        consumed_by=None,
    )


def _with_pending(steps: list[WorkflowStep]) -> list[Gate]:
    waiting = [step for step in steps if step.status == "waiting"]
    found = {message.decides: message for message in _decisions(waiting)} if waiting else {}
    gates = []
    for step in steps:
        message = found.get(f"gate:{step.pk}")
        gates.append(
            Gate(step, pending=None if message is None else approvals.to_approval(message.data))
        )
    return gates


def gate_name(message_name: str) -> str:
    """Name of the gate that a message decides; empty for an ordinary message."""
    if not message_name.startswith(DECISION_PREFIX):
        return ""
    return message_name.removeprefix(DECISION_PREFIX)
