"""WorkflowContext: what a body can ask for. Signatures and docs; the work is handed on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload
from uuid import UUID

from django_workflows.values import Approval, Message

if TYPE_CHECKING:
    from django_workflows.models import WorkflowRun

P = ParamSpec("P")
T = TypeVar("T")


class Calls(Protocol):
    """What a context hands its calls on to."""

    run_id: UUID
    workflow_id: str
    logger: logging.LoggerAdapter[logging.Logger]

    @property
    def input(self) -> dict[str, Any]: ...
    @property
    def is_replaying(self) -> bool: ...
    def step(self, name: str, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def sleep(self, duration: timedelta | float) -> None: ...
    def sleep_until(self, when: datetime) -> None: ...
    def now(self) -> datetime: ...
    def uuid4(self) -> UUID: ...
    def random(self) -> float: ...
    def wait_for_message(
        self,
        name: str | Sequence[str],
        timeout: timedelta | float | None,
        schema: Any,
        required: bool,
    ) -> Message[Any] | None: ...
    def receive_message(self, name: str | Sequence[str]) -> Message[Any] | None: ...
    def send_message(self, run: WorkflowRun | UUID | str, name: str, data: Any) -> None: ...
    def wait_for_signal(
        self, name: str, timeout: timedelta | float | None, schema: Any
    ) -> Message[Any] | None: ...
    def send_signal(self, name: str, data: Any) -> list[UUID]: ...
    def wait_for_approval(self, gate: str, **asked: Any) -> Approval | None: ...
    def start_child(
        self, workflow: Any, given: Mapping[str, Any] | None, **options: Any
    ) -> UUID: ...
    def child_result(self, workflow: Any, child_id: UUID) -> Any: ...
    def patched(self, change_id: str) -> bool: ...
    def set_state(self, values: dict[str, Any]) -> None: ...


class ChildHandle:
    """A child run that a body has started."""

    def __init__(self, calls: Calls, workflow: Any, run_id: UUID) -> None:
        self._calls = calls
        self._workflow = workflow
        self.run_id = run_id

    def result(self) -> Any:
        """What the child returned; the parent is parked until it has ended.

        Raises:
            ChildFailed: it ended without a result.
        """
        return self._calls.child_result(self._workflow, self.run_id)


class WorkflowContext:
    """Handed to a body as its first argument.

    A body is re-run from the top after every suspension; the calls below short-circuit through
    the run's record, so a body must make the same calls in the same order each time. Anything
    that may differ (time, random numbers, queries, network) goes through a call of the context.

    Source: nevo-messaging WorkflowEngine, "replay" and "determinism contract".
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @property
    def run_id(self) -> UUID:
        """Id of this run, a UUIDv7."""
        return self._calls.run_id

    @property
    def workflow_id(self) -> str:
        """The id that the caller gave, else the run id's text."""
        return self._calls.workflow_id

    @property
    def input(self) -> dict[str, Any]:
        """The input as given to `start`, by parameter name."""
        return self._calls.input

    @property
    def is_replaying(self) -> bool:
        """True while calls are answered from the record."""
        return self._calls.is_replaying

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """Logger `django_workflows.run`, silent while replaying, with run id, workflow and step."""
        return self._calls.logger

    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `fn` once and record what it returned; a replay gets the record.

        What comes back is the decoded record, on the first pass too, so type and value are the
        same on every pass.

        Args:
            name: 1 to 200 characters. A repeated name gets a key of its own: charge, charge:1.
            fn: any callable; its options come from `step(...)`.
            args, kwargs: all handed to `fn`. They aren't stored.

        Raises:
            StepFailed: attempts used up, or a failure that isn't to be retried.
            NonDeterminismError: the record holds something else at this position.

        Source: nevo-messaging WorkflowEngine, "steps".
        """
        result: T = self._calls.step(name, fn, args, kwargs)
        return result

    def sleep(self, duration: timedelta | float) -> None:
        """Park the run for a timedelta or seconds; no worker is held.

        Raises:
            TypeError: neither a timedelta nor a number.
            ValueError: negative, or beyond what the database can store.
        """
        self._calls.sleep(duration)

    def sleep_until(self, when: datetime) -> None:
        """Park the run until `when`; a time that has passed returns at once.

        Raises:
            TypeError: not a datetime.
            ValueError: naive although USE_TZ is on, or beyond what the database can store.
        """
        self._calls.sleep_until(when)

    def now(self) -> datetime:
        """The database's time, recorded; aware per USE_TZ."""
        return self._calls.now()

    def uuid4(self) -> UUID:
        """A random UUID, recorded."""
        return self._calls.uuid4()

    def random(self) -> float:
        """A random float in [0, 1), recorded."""
        return self._calls.random()

    @overload
    def wait_for_message(
        self,
        name: str | Sequence[str],
        *,
        schema: type[T],
        timeout: timedelta | float | None = ...,
        required: bool = ...,
    ) -> Message[T] | None: ...
    @overload
    def wait_for_message(
        self,
        name: str | Sequence[str],
        *,
        timeout: timedelta | float | None = ...,
        schema: Any = ...,
        required: bool = ...,
    ) -> Message[Any] | None: ...
    def wait_for_message(
        self,
        name: str | Sequence[str],
        *,
        timeout: timedelta | float | None = None,
        schema: Any = None,
        required: bool = False,
    ) -> Message[Any] | None:
        """Take the oldest message of a name from this run's inbox, parked until there is one.

        Args:
            name: a name, or several: then the oldest message with any of them.
            timeout: timedelta or seconds from the first arrival here; None waits for ever, 0
                doesn't wait. A message stored before the timeout is recorded wins over it.
            schema: a dataclass, TypedDict, pydantic type, Django Form class, or `data -> value`.
            required: raise MessageTimeout instead of returning None.

        Returns: the message, or None when the time is over.
        Raises:
            MessageTimeout: timed out and `required`.
            StepFailed: the data doesn't fit the schema; the message is consumed.

        Source: OpenWorkflow messages proposal (#894).
        """
        return self._calls.wait_for_message(name, timeout, schema, required)

    def receive_message(self, name: str | Sequence[str]) -> Message[Any] | None:
        """Take the oldest message of a name without waiting; None if there is none now.

        Recorded either way, so a replay gives the same answer.
        Source: OpenWorkflow messages proposal (#894).
        """
        return self._calls.receive_message(name)

    def send_message(self, run: WorkflowRun | UUID | str, name: str, data: Any = None) -> None:
        """Send to another run, once: neither a replay nor a crash sends it again.

        Raises:
            StepFailed: of type RunNotFound or RunFinished, recorded.

        Source: OpenWorkflow messages proposal (#894).
        """
        self._calls.send_message(run, name, data)

    def wait_for_signal(
        self,
        name: str,
        *,
        timeout: timedelta | float | None = None,
        schema: Any = None,
    ) -> Message[Any] | None:
        """Park until the next `send_signal` of this name; what was sent before doesn't count.

        Args:
            name: 1 to 200 characters.
            timeout: timedelta or seconds from the first arrival here; None waits for ever.
            schema: as for `wait_for_message`.

        Returns: the delivery, or None when the time is over.
        Raises:
            StepFailed: the data doesn't fit the schema.

        Source: OpenWorkflow messages proposal (#894), "Signals unchanged".
        """
        return self._calls.wait_for_signal(name, timeout, schema)

    def send_signal(self, name: str, data: Any = None) -> list[UUID]:
        """Broadcast once: neither a replay nor a crash sends it again.

        Returns: ids of the runs reached.
        Source: OpenWorkflow messages proposal (#894), "Signals unchanged".
        """
        return self._calls.send_signal(name, data)

    def wait_for_approval(
        self,
        gate: str,
        *,
        permission: str | Callable[[Any, WorkflowRun], bool] | None = None,
        approvers: Any = None,
        timeout: timedelta | float | None = None,
        form: Any = None,
        title: str = "",
        description: str = "",
        exclude: Any = None,
    ) -> Approval | None:
        """Park until somebody who may has approved or rejected.

        Args:
            gate: 1 to 180 characters; what `approve()` and `reject()` name.
            permission: "app_label.codename", or an importable callable (user, run) -> bool.
            approvers: a user, a pk, a group or a group's name, or several: one of them decides.
            timeout: timedelta or seconds from the first arrival here; None waits for ever.
            form: schema of the decision's data; a Django Form is shown in the admin.
            title, description: what approvers read, stored with the gate.
            exclude: users, or their pks, who may not decide (four eyes).

        Returns: the decision, or None when the time is over.
        """
        return self._calls.wait_for_approval(
            gate,
            permission=permission,
            approvers=approvers,
            timeout=timeout,
            form=form,
            title=title,
            description=description,
            exclude=exclude,
        )

    def start_child(
        self,
        workflow: Any,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the contract's name
        *,
        workflow_id: str | None = None,
        timeout: timedelta | float | None = None,
        on_parent_close: str = "cancel",
    ) -> ChildHandle:
        """Start a child run, once, and go on; `handle.result()` awaits it.

        Args:
            workflow: a workflow or its registered name.
            input: arguments of its function by name.
            workflow_id: default derived from this run and step.
            timeout: timedelta or seconds from the child's start, after which it fails.
            on_parent_close: "cancel" the child when this run ends, or "abandon" it.

        Raises:
            StepFailed: of type WorkflowAlreadyStarted, when an open run has the workflow id.
        """
        child_id = self._calls.start_child(
            workflow,
            input,
            workflow_id=workflow_id,
            timeout=timeout,
            on_parent_close=on_parent_close,
        )
        return ChildHandle(self._calls, workflow, child_id)

    def run_child(
        self,
        workflow: Any,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the contract's name
        *,
        workflow_id: str | None = None,
        timeout: timedelta | float | None = None,
        on_parent_close: str = "cancel",
    ) -> Any:
        """Start a child run and return its result; this run is parked meanwhile.

        Raises:
            ChildFailed: it failed, was canceled or passed its timeout.
            StepFailed: as for `start_child`.
        """
        handle = self.start_child(
            workflow,
            input,
            workflow_id=workflow_id,
            timeout=timeout,
            on_parent_close=on_parent_close,
        )
        return handle.result()

    def patched(self, change_id: str) -> bool:
        """Tell which code a run takes after a deploy changed its body.

        True for runs that reach this point new, false for those whose record is already past it.
        """
        return self._calls.patched(change_id)

    def set_state(self, /, **values: Any) -> None:
        """Merge small values into `run.state`, for views and the admin to show.

        `{"done": 3, "total": 10}` shows as a progress bar. Not written again while replaying.

        Raises:
            PayloadError: a value can't be stored.
        """
        self._calls.set_state(values)
