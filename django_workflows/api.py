"""The public functions: signature, docs, argument checks, one call down.

Imports of what needs the app registry sit inside the functions, so that
`from django_workflows import send_message` works before Django is set up.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async

from django_workflows.definitions import (
    MAX_GATE,
    WorkflowDefinition,
    as_seconds,
    check_message_name,
    check_name,
    check_version,
)
from django_workflows.exceptions import RunNotFound
from django_workflows.registry import registry
from django_workflows.values import Page, SignalWithStart

if TYPE_CHECKING:
    from django.db.models import Model

    from django_workflows.models import WorkflowMessage, WorkflowRun, WorkflowStep
    from django_workflows.store.runs import NewRun

P = ParamSpec("P")
T = TypeVar("T")

MAX_KEY = 255
MAX_PAGE = 1000


def _twin(fn: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """The async twin of a function: the same in Django's thread for database work."""

    @functools.wraps(fn)
    async def twin(*args: P.args, **kwargs: P.kwargs) -> T:
        return await sync_to_async(fn)(*args, **kwargs)

    twin.__name__ = twin.__qualname__ = f"a{fn.__name__}"
    twin.__doc__ = f"Async twin of `{fn.__name__}`."
    return twin


def _definition(workflow: Any, version: str | int | None = None) -> WorkflowDefinition:
    if isinstance(workflow, str):
        named = None if version is None else check_version(version)
        return registry.get(check_name(workflow, "A workflow's name"), named)
    definition = getattr(workflow, "definition", workflow)
    if not isinstance(definition, WorkflowDefinition):
        raise TypeError(
            f"Expected a workflow or its name, got {type(workflow).__name__}. "
            "Decorate the function with @workflow."
        )
    return definition


def _point(
    value: dt.datetime | dt.timedelta | float | None, what: str
) -> tuple[float | None, float]:
    """(epoch, seconds from now) of a time that was given either way."""
    from django.conf import settings
    from django.utils import timezone

    from django_workflows.fields import to_epoch

    if value is None:
        return None, 0.0
    if isinstance(value, dt.datetime):
        if settings.USE_TZ and timezone.is_naive(value):
            raise ValueError(f"{what} must be an aware datetime while USE_TZ is on, got {value!r}.")
        return to_epoch(value), 0.0
    if isinstance(value, (dt.timedelta, int, float)):
        return None, as_seconds(value, what)
    raise TypeError(f"{what} must be a datetime or a timedelta, not {type(value).__name__}.")


def _choice(value: str, choices: tuple[str, ...], what: str) -> str:
    if value not in choices:
        raise ValueError(f"{what} must be one of {', '.join(choices)}; got {value!r}.")
    return value


def _check_priority(priority: Any) -> int:
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise TypeError(f"priority must be an int, not {type(priority).__name__}.")
    if not -(2**31) <= priority < 2**31:
        raise ValueError(f"priority must fit 32 bits, got {priority}.")
    return priority


def start(
    workflow: Any,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the contract's name
    *,
    version: str | int | None = None,
    workflow_id: str | None = None,
    subject: Model | None = None,
    queue_name: str | None = None,
    run_after: dt.datetime | dt.timedelta | None = None,
    deadline: dt.datetime | dt.timedelta | None = None,
    priority: int = 0,
    id_conflict: str = "return",
    id_reuse: str = "return",
) -> WorkflowRun:
    """Record a run, in the caller's transaction; a worker executes it after the commit.

    Args:
        workflow: a workflow or its registered name.
        input: arguments of its function by name.
        version: for a name of which several versions are registered; default the newest.
        workflow_id: 1 to 255 characters; with it a start is idempotent: a run of that id, open
            or ended, is returned with `deduplicated` true and its own input.
        subject: saved model instance that the run is about.
        queue_name: default the workflow's own.
        run_after: datetime, or timedelta from now, before which no worker takes it.
        deadline: datetime, or timedelta from now, after which it fails with DeadlineExceeded;
            default the workflow's timeout.
        priority: higher goes first; default 0.
        id_conflict: "return", or "raise" when an open run has the id.
        id_reuse: "return", "raise", "allow" or "allow_failed" when an ended run has the id.

    Raises:
        WorkflowNotRegistered: unknown name or version.
        TypeError: the input doesn't fit the signature.
        ValueError: an empty id, a bad option.
        PayloadError: the input can't be stored; nothing is written.
        WorkflowAlreadyStarted: as asked for, or the id belongs to another workflow.

    Source: nevo-messaging WorkflowEngine, "start" and "idempotent start".
    """
    from django_workflows.store import runs

    definition = _definition(workflow, version)
    new = _new_run(
        definition,
        input,
        workflow_id=workflow_id,
        subject=subject,
        queue_name=queue_name,
        run_after=run_after,
        deadline=deadline,
        priority=priority,
    )
    return runs.start(
        dataclasses.replace(
            new,
            id_conflict=_choice(id_conflict, runs.ID_CONFLICT, "id_conflict"),
            id_reuse=_choice(id_reuse, runs.ID_REUSE, "id_reuse"),
        )
    )


def _new_run(
    definition: WorkflowDefinition,
    given: Mapping[str, Any] | None,
    *,
    workflow_id: str | None,
    subject: Model | None,
    queue_name: str | None,
    run_after: dt.datetime | dt.timedelta | None,
    deadline: dt.datetime | dt.timedelta | None,
    priority: int,
) -> NewRun:
    """A start's arguments, checked and encoded."""
    from django_workflows import payloads
    from django_workflows.querysets import subject_label
    from django_workflows.store import runs

    bound = definition.bind((), {} if given is None else dict(given))
    run_at, run_in = _point(run_after, "run_after")
    deadline = definition_timeout(definition) if deadline is None else deadline
    deadline_at, deadline_in = _point(deadline, "deadline")
    if workflow_id is not None:
        workflow_id = check_name(workflow_id, "A workflow id", limit=MAX_KEY)
    if queue_name is not None:
        queue_name = check_name(queue_name, "A queue's name", limit=100)
    return runs.NewRun(
        workflow_name=definition.name,
        version=definition.version,
        queue_name=queue_name or definition.queue_name,
        input=payloads.encode(bound, "input"),
        workflow_id=workflow_id,
        priority=_check_priority(priority),
        run_at=run_at,
        run_in=run_in,
        deadline_at=deadline_at,
        deadline_in=None if deadline is None or deadline_at is not None else deadline_in,
        subject_key=("", "") if subject is None else subject_label(subject),
    )


def definition_timeout(definition: WorkflowDefinition) -> dt.timedelta | None:
    """A workflow's own timeout."""
    seconds = definition.timeout
    return None if seconds is None else dt.timedelta(seconds=seconds)


def send_message(
    run: WorkflowRun | UUID | str,
    name: str,
    data: Any = None,
    *,
    idempotency_key: str | None = None,
) -> WorkflowMessage:
    """Store a message in a run's inbox, to be consumed exactly once.

    Joins the caller's transaction: a parked run wakes on commit, a rollback leaves nothing. Safe
    before the run reaches its wait, while no worker is up, and twice with the same key.

    Args:
        run: the run or its id.
        name: 1 to 200 characters, matched exactly; messages of one name are FIFO.
        data: any payload, at most MAX_PAYLOAD_BYTES once encoded.
        idempotency_key: 1 to 255 characters, unique per run over all names. A repeat returns the
            stored message with `deduplicated` true, also after the run has ended.

    Raises:
        ValueError: an empty name or key.
        PayloadError: before anything is written.
        RunNotFound: there is no such run.
        RunFinished: the run has ended (`status` tells how); nothing is stored.

    Source: OpenWorkflow messages proposal (#894).
    """
    from django_workflows import payloads
    from django_workflows.store import messages

    name = check_message_name(name)
    idempotency_key = _check_key(idempotency_key)
    text = payloads.encode(data)
    message = messages.send(_run_id(run), name, text, idempotency_key)
    assert message is not None
    return message


def _check_key(key: str | None) -> str | None:
    return None if key is None else check_name(key, "An idempotency key", limit=MAX_KEY)


def signal_with_start(
    workflow: Any,
    *,
    workflow_id: str,
    name: str,
    data: Any = None,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the contract's name
    idempotency_key: str | None = None,
    version: str | int | None = None,
    subject: Model | None = None,
    queue_name: str | None = None,
    run_after: dt.datetime | dt.timedelta | None = None,
    deadline: dt.datetime | dt.timedelta | None = None,
    priority: int = 0,
    id_conflict: str = "return",
    id_reuse: str = "allow",
) -> SignalWithStart:
    """Deliver a message to the live run of a workflow id, or start it and deliver; atomically.

    Any number of callers at once start one run, and none of their messages is lost: a new run has
    the message in its inbox before its body first runs. Joins the caller's transaction.

    Args:
        workflow: a workflow or its registered name.
        workflow_id: 1 to 255 characters; at most one open run has it.
        name: the message's name.
        data: its payload.
        input: arguments of the function by name; ignored while a run is open.
        idempotency_key: a repeat of a key that a run of this workflow id accepted, ended or not,
            returns that run and message and starts nothing.
        version, subject, queue_name, run_after, deadline, priority: as for `start`.
        id_conflict: "return", or "raise" when a run is open.
        id_reuse: "allow" a new run after an ended one, "allow_failed", or "raise".

    Returns: the run, the stored message, and `started`.
    Raises:
        WorkflowNotRegistered, TypeError, ValueError, PayloadError: nothing is written.
        WorkflowAlreadyStarted: as asked for, or the id belongs to another workflow.

    Source: signal-with-start pattern.
    """
    from django_workflows import payloads
    from django_workflows.store import runs
    from django_workflows.store import signal_with_start as store

    definition = _definition(workflow, version)
    if workflow_id is None:
        raise TypeError("signal_with_start() needs a workflow_id.")

    def make() -> NewRun:
        return _new_run(
            definition,
            input,
            workflow_id=workflow_id,
            subject=subject,
            queue_name=queue_name,
            run_after=run_after,
            deadline=deadline,
            priority=priority,
        )

    return store.signal_with_start(
        make,
        workflow_id=check_name(workflow_id, "A workflow id", limit=MAX_KEY),
        workflow_name=definition.name,
        name=check_message_name(name),
        data=payloads.encode(data),
        key=_check_key(idempotency_key),
        id_conflict=_choice(id_conflict, runs.ID_CONFLICT, "id_conflict"),
        id_reuse=_choice(id_reuse, ("allow", "allow_failed", "raise"), "id_reuse"),
    )


def send_signal(name: str, data: Any = None, *, idempotency_key: str | None = None) -> list[UUID]:
    """Deliver to every run that waits for `name` at this moment; with no waiter nothing is stored.

    Joins the caller's transaction: waiters wake on commit, a rollback delivers nothing. Until then
    the waits reached don't time out.

    Args:
        name: 1 to 200 characters, matched exactly.
        data: any payload, at most MAX_PAYLOAD_BYTES once encoded.
        idempotency_key: a repeat with this name and key returns the first result and delivers
            nothing.

    Returns: ids of the runs reached, oldest wait first; empty without waiters.
    Raises:
        ValueError: an empty name or key.
        PayloadError: before anything is written.

    Source: OpenWorkflow messages proposal (#894), "Signals unchanged".
    """
    from django_workflows import payloads
    from django_workflows.store import signals

    name = check_name(name, "A signal's name")
    return signals.send(name, payloads.encode(data), _check_key(idempotency_key))


def approve(
    run: WorkflowRun | UUID | str,
    gate: str | WorkflowStep,
    *,
    by: Any,
    comment: str = "",
    data: Any = None,
    idempotency_key: str | None = None,
) -> WorkflowMessage:
    """Approve a gate of a run, before or while the run waits at it.

    While it waits, permission, approvers and exclusions are checked before anything is stored. An
    earlier decision is kept, and checked when the gate is reached, as its authority stands then.

    Args:
        run: the run or its id.
        gate: the gate's name; or its step, for a page that shows one gate and must not decide
            a later one of the same name.
        by: a saved user.
        comment: why, in the person's words.
        data: what the gate's form asks for.
        idempotency_key: a repeat returns the stored decision.

    Raises:
        RunNotFound, RunFinished: as for `send_message`.
        ApprovalDenied: this person may not (`reason` tells why).
        GateDecided: another decision stands (`approval`), or it is too late.
        ValueError: the data doesn't fit the gate's form.
        PayloadError: before anything is written.
    """
    return _decide(run, gate, True, by, comment, data, idempotency_key)


def reject(
    run: WorkflowRun | UUID | str,
    gate: str | WorkflowStep,
    *,
    by: Any,
    comment: str = "",
    data: Any = None,
    idempotency_key: str | None = None,
) -> WorkflowMessage:
    """Reject a gate of a run; arguments and errors as for `approve`."""
    return _decide(run, gate, False, by, comment, data, idempotency_key)


def _decide(
    run: Any, gate: Any, approved: bool, by: Any, comment: str, data: Any, key: str | None
) -> WorkflowMessage:
    from django_workflows.models import WorkflowStep
    from django_workflows.store import approvals

    run_id = _run_id(run)
    if isinstance(gate, WorkflowStep):
        if gate.run_id != run_id or gate.kind != "approval":
            raise ValueError(f"Step {gate.pk} is not a gate of run {run_id}.")
    else:
        gate = check_name(gate, "A gate's name", limit=MAX_GATE)
    if getattr(by, "pk", None) is None:
        raise TypeError(f"by= needs a saved user, not {by!r}.")
    if not isinstance(comment, str):
        raise TypeError(f"comment must be a str, not {type(comment).__name__}.")
    return approvals.decide(
        run_id,
        gate,
        approved=approved,
        by=by,
        comment=comment,
        data=data,
        key=_check_key(key),
    )


def rerun(run: WorkflowRun | UUID | str, *, from_start: bool = False) -> WorkflowRun:
    """Start a new run (`rerun_of`) with the input of one that has ended.

    Its completed steps are copied with their results, so it goes on from the failed one, with a
    fresh retry budget and an empty inbox. The old run stays as it is.

    Args:
        run: the run or its id.
        from_start: copy no steps.

    Raises:
        RunNotFound: there is no such run.
        WorkflowError: it hasn't ended.
        WorkflowAlreadyStarted: an open run has its workflow id.
    """
    from django_workflows.store import reruns

    return reruns.rerun(_run_id(run), from_start=bool(from_start))


def list_messages(
    run: WorkflowRun | UUID | str,
    *,
    state: str | None = None,
    name: str | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[WorkflowMessage]:
    """One page of a run's messages, oldest first, each with `consumed_by`.

    Args:
        run: the run or its id.
        state: "pending", "consumed", or None for both.
        name: only messages of this name.
        limit: 1 to 1000.
        cursor: `next_cursor` of the page before.

    Raises:
        RunNotFound: there is no such run.
        ValueError: a bad state, name, limit or cursor.

    Source: OpenWorkflow messages proposal (#894).
    """
    from django_workflows.store import messages

    if state is not None:
        _choice(state, ("pending", "consumed"), "state")
    if name is not None:
        name = check_name(name, "A message's name")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise ValueError(f"limit must be an int from 1 to {MAX_PAGE}, got {limit!r}.")
    found = messages.listing(_run_id(run), state, name).select_related("consumed_by")
    if cursor is not None:
        is_number = isinstance(cursor, str) and cursor.isascii() and cursor.isdigit()
        if not is_number or len(cursor) > 19:
            raise ValueError(f"cursor must be a next_cursor that a page gave, got {cursor!r}.")
        found = found.filter(id__gt=int(cursor))
    items = list(found[: limit + 1])
    more = len(items) > limit
    items = items[:limit]
    return Page(items, str(items[-1].pk) if more else None)


def get_run(run_id: UUID | str | None = None, *, workflow_id: str | None = None) -> WorkflowRun:
    """The run of an id; by workflow id the open run, else the newest.

    Raises:
        RunNotFound: there is none.
        TypeError: neither or both ids given.
    """
    from django_workflows.store import runs

    if (run_id is None) == (workflow_id is None):
        raise TypeError("get_run() takes either a run id or workflow_id=.")
    if workflow_id is None:
        return runs.get(_run_id(run_id))
    try:
        return runs.get_by_workflow_id(check_name(workflow_id, "A workflow id", limit=MAX_KEY))
    except ValueError:
        # No run can have it, and the database might not even take it as a question.
        raise RunNotFound(workflow_id, kind="workflow id") from None


def cancel(run: WorkflowRun | UUID | str, *, reason: str = "") -> WorkflowRun:
    """End a run as canceled: a parked or pending one at once; a running one takes no further
    step, though its current step may finish.

    Again on a canceled run changes nothing. Joins the caller's transaction.

    Args:
        run: the run or its id.
        reason: kept as the run's error text.

    Raises:
        RunNotFound: there is no such run.
        RunFinished: it has completed or failed.
    """
    from django_workflows.store import runs

    if not isinstance(reason, str):
        raise TypeError(f"reason must be a str, not {type(reason).__name__}.")
    return runs.cancel(_run_id(run), reason)


def resume(run: WorkflowRun | UUID | str) -> WorkflowRun:
    """Execute a due run in this process until it suspends or ends; one that isn't due, or that
    another worker holds, is returned as it stands.

    Raises:
        RunNotFound: there is no such run.
        WorkflowNotRegistered: this process doesn't know its workflow.

    Source: nevo-messaging WorkflowEngine, "resume".
    """
    from django_workflows.runtime import inline

    return inline.resume(_run_id(run))


def _run_id(run: Any) -> UUID:
    from django_workflows.runtime.calls import as_run_id

    return as_run_id(run)


astart = _twin(start)
asend_message = _twin(send_message)
alist_messages = _twin(list_messages)
aget_run = _twin(get_run)
acancel = _twin(cancel)
aresume = _twin(resume)
asignal_with_start = _twin(signal_with_start)
asend_signal = _twin(send_signal)
aapprove = _twin(approve)
areject = _twin(reject)
arerun = _twin(rerun)
