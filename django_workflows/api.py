"""The public functions: signature, docs, argument checks, one call down.

Imports of what needs the app registry sit inside the functions, so that
`from django_workflows import send_message` works before Django is set up.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async

from django_workflows.definitions import (
    WorkflowDefinition,
    as_seconds,
    check_message_name,
    check_name,
    check_version,
)
from django_workflows.registry import registry
from django_workflows.values import Page

if TYPE_CHECKING:
    from django.db.models import Model

    from django_workflows.models import WorkflowMessage, WorkflowRun

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
    from django_workflows import payloads
    from django_workflows.store import runs

    definition = _definition(workflow, version)
    given = definition.bind((), {} if input is None else dict(input))
    run_at, run_in = _point(run_after, "run_after")
    deadline = definition_timeout(definition) if deadline is None else deadline
    deadline_at, deadline_in = _point(deadline, "deadline")
    if workflow_id is not None:
        workflow_id = check_name(workflow_id, "A workflow id", limit=MAX_KEY)
    if queue_name is not None:
        queue_name = check_name(queue_name, "A queue's name", limit=100)
    new = runs.NewRun(
        workflow_name=definition.name,
        version=definition.version,
        queue_name=queue_name or definition.queue_name,
        input=payloads.encode(given, "input"),
        workflow_id=workflow_id,
        priority=_check_priority(priority),
        run_at=run_at,
        run_in=run_in,
        deadline_at=deadline_at,
        deadline_in=None if deadline is None or deadline_at is not None else deadline_in,
        subject=subject,
        id_conflict=_choice(id_conflict, runs.ID_CONFLICT, "id_conflict"),
        id_reuse=_choice(id_reuse, runs.ID_REUSE, "id_reuse"),
    )
    return runs.start(new)


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
        ValueError: a bad state, limit or cursor.

    Source: OpenWorkflow messages proposal (#894).
    """
    from django_workflows.store import messages

    if state is not None:
        _choice(state, ("pending", "consumed"), "state")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise ValueError(f"limit must be an int from 1 to {MAX_PAGE}, got {limit!r}.")
    found = messages.listing(_run_id(run), state, name).select_related("consumed_by")
    if cursor is not None:
        if not (isinstance(cursor, str) and cursor.isascii() and cursor.isdigit()):
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
    if workflow_id is not None:
        return runs.get_by_workflow_id(workflow_id)
    return runs.get(_run_id(run_id))


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
