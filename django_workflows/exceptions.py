"""Every exception of the package. Each takes data, keeps it as attributes and owns its message."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeGuard
from uuid import UUID

if TYPE_CHECKING:
    from django_workflows.models import WorkflowRun
    from django_workflows.values import Approval


class WorkflowError(Exception):
    """Base of everything this package raises on purpose."""


class WorkflowNotRegistered(WorkflowError):
    """No workflow of this name (and version) is registered in this process."""

    def __init__(self, name: str, version: str | None = None, known: tuple[str, ...] = ()) -> None:
        super().__init__(name, version)
        self.name = name
        self.version = version
        self.known = known

    def __str__(self) -> str:
        label = self.name if self.version is None else f"{self.name} version {self.version}"
        known = ", ".join(self.known) or "none"
        return (
            f"No workflow named {label!r} is registered. Registered: {known}. "
            "Put it into a module called workflows.py of an installed app."
        )


class RunNotFound(WorkflowError):
    """There is no run of this id."""

    def __init__(self, identifier: object, *, kind: str = "id") -> None:
        super().__init__(identifier)
        self.identifier = identifier
        self.kind = kind

    def __str__(self) -> str:
        return (
            f"There is no workflow run with {self.kind} {str(self.identifier)!r}. "
            "Check the id, and that the transaction that started it has been committed."
        )


class RunFinished(WorkflowError):
    """The run has ended, so it takes nothing more; nothing was stored."""

    def __init__(self, run_id: UUID, status: str) -> None:
        super().__init__(run_id, status)
        self.run_id = run_id
        self.status = status

    def __str__(self) -> str:
        return f"Run {self.run_id} has already ended as {self.status!r}; nothing was stored."


class WorkflowAlreadyStarted(WorkflowError):
    """A run of this workflow id is there already. `run` is that run."""

    def __init__(self, run: WorkflowRun, workflow_name: str) -> None:
        super().__init__(run, workflow_name)
        self.run = run
        self.workflow_name = workflow_name

    def __str__(self) -> str:
        run = self.run
        if run.workflow_name != self.workflow_name:
            return (
                f"Workflow id {run.workflow_id!r} belongs to run {run.pk} of workflow "
                f"{run.workflow_name!r}, so {self.workflow_name!r} can't be started with it. "
                "Give each workflow ids of its own, for instance with a prefix."
            )
        return (
            f"Workflow id {run.workflow_id!r} of {self.workflow_name!r} was started already: "
            f"run {run.pk} is {run.status!r}."
        )


class StepFailed(WorkflowError):
    """A step's attempts are used up; raised in the body, the same on every replay.

    Attributes:
        step: the step's name.
        type: name of the exception that the last attempt raised.
        message: its text.
        attempts: how many times the step was tried.
    """

    def __init__(self, step: str, type: str, message: str, attempts: int) -> None:  # noqa: A002
        super().__init__(step, type, message, attempts)
        self.step = step
        self.type = type
        self.message = message
        self.attempts = attempts

    def __str__(self) -> str:
        times = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"Step {self.step!r} failed after {times}: {self.type}: {self.message}"


class MessageTimeout(WorkflowError):
    """A required message didn't come in time. `name` is the name, or names, waited for."""

    def __init__(self, name: str | tuple[str, ...], timeout: timedelta | None = None) -> None:
        super().__init__(name, timeout)
        self.name = name
        self.timeout = timeout

    def __str__(self) -> str:
        within = "" if self.timeout is None else f" within {self.timeout}"
        return f"No message {self.name!r} came{within}."


class NonDeterminismError(WorkflowError):
    """The code asks for something else than the run's record holds at this position.

    Attributes:
        position: 0-based index in the run's record.
        recorded: what the record holds there, or None where it has ended.
        asked: what the code asked for, or None where the code has ended.
    """

    def __init__(self, position: int, recorded: str | None, asked: str | None) -> None:
        super().__init__(position, recorded, asked)
        self.position = position
        self.recorded = recorded
        self.asked = asked

    def __str__(self) -> str:
        return (
            f"Replay differs from the record at position {self.position}: recorded "
            f"{self.recorded or 'nothing more'}, but the code asked for "
            f"{self.asked or 'nothing more'}. Deploy code that matches the record, "
            "or guard the change with ctx.patched()."
        )


class NonRetryableError(WorkflowError):
    """Raise it in a step to give up at once, whatever the retry policy says."""


class ContextMisuse(NonRetryableError):
    """`ctx` was used where it can't work: inside a step's function or from another thread."""


class RetryAfter(WorkflowError):
    """Raise it in a step to name when its next try is due; counts as an attempt.

    Args:
        delay: timedelta or seconds, zero or more.
        message: why, for the record.
    """

    def __init__(self, delay: timedelta | float, message: str = "") -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"RetryAfter needs a delay of zero or more seconds, got {delay!r}.")
        super().__init__(delay, message)
        self.delay = timedelta(seconds=min(seconds, 10 * 365 * 86400.0))
        self.message = message

    def __str__(self) -> str:
        return self.message or f"try again after {self.delay}"


class DeadlineExceeded(WorkflowError):
    """The run's deadline has passed before it was done."""

    def __init__(self, run_id: UUID, deadline_at: datetime) -> None:
        super().__init__(run_id, deadline_at)
        self.run_id = run_id
        self.deadline_at = deadline_at

    def __str__(self) -> str:
        return f"Run {self.run_id} wasn't done by its deadline {self.deadline_at.isoformat()}."


class PayloadError(WorkflowError):
    """A value can't be stored. `path` names where in the value, `problem` what and the remedy."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class ApprovalDenied(WorkflowError):
    """This person may not decide this gate; nothing was stored."""

    def __init__(self, gate: str, reason: str) -> None:
        super().__init__(gate, reason)
        self.gate = gate
        self.reason = reason

    def __str__(self) -> str:
        return f"Gate {self.gate!r} can't be decided so: {self.reason}."


class GateDecided(WorkflowError):
    """The gate has been decided, or its time is over. `approval` is what stands, or None."""

    def __init__(self, gate: str, approval: Approval | None) -> None:
        super().__init__(gate, approval)
        self.gate = gate
        self.approval = approval

    def __str__(self) -> str:
        if self.approval is None:
            return f"It is too late to decide gate {self.gate!r}: it is no longer open."
        verb = "approved" if self.approval.approved else "rejected"
        return (
            f"Gate {self.gate!r} was {verb} already, by {self.approval.by.text} at "
            f"{self.approval.decided_at.isoformat()}."
        )


class ChildFailed(WorkflowError):
    """A child run ended without a result.

    Attributes:
        run_id: of the child.
        status: "failed" or "canceled".
        error: the child's error, `{"type", "message", "traceback"}`.
    """

    def __init__(self, run_id: UUID, status: str, error: Mapping[str, Any]) -> None:
        super().__init__(run_id, status, error)
        self.run_id = run_id
        self.status = status
        self.error = error

    def __str__(self) -> str:
        told = f"{self.error.get('type')}: {self.error.get('message')}"
        return f"Child run {self.run_id} ended as {self.status!r}: {told}"


class LeaseLost(WorkflowError):
    """Another worker has taken the run over; what this one did since wasn't written."""

    def __init__(self, run_id: UUID) -> None:
        super().__init__(run_id)
        self.run_id = run_id

    def __str__(self) -> str:
        return f"The lease on run {self.run_id} was lost; nothing more is written for it here."


class WorkflowSuspended(BaseException):
    """Unwinds a body that has to wait. A BaseException, so `except Exception` can't swallow it."""

    def __init__(self, waiting_for: str) -> None:
        super().__init__(waiting_for)
        self.waiting_for = waiting_for

    def __str__(self) -> str:
        return f"The workflow is suspended until {self.waiting_for}."


def is_workflow_suspended(exc: object) -> TypeGuard[WorkflowSuspended]:
    """Tell whether `exc` is the suspension, for code that has to catch BaseException."""
    return isinstance(exc, WorkflowSuspended)


def describe(exc: BaseException) -> Mapping[str, Any]:
    """Type name and text of any exception, also of one whose `__str__` raises."""
    try:
        text = str(exc)
    except Exception as broken:
        text = f"<{type(exc).__name__}.__str__ raised {type(broken).__name__}>"
    return {"type": type(exc).__name__, "message": text}
