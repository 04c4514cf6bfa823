"""What a WorkflowContext talks to: looks in the history, else acts."""

from __future__ import annotations

import datetime as dt
import logging
import random
from collections.abc import Mapping, MutableMapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from django_workflows import payloads
from django_workflows.definitions import check_message_name, check_name
from django_workflows.exceptions import RunFinished, RunNotFound
from django_workflows.fields import to_local
from django_workflows.runtime import approval_calls, child_calls, step_calls, wait_calls
from django_workflows.runtime.passes import Pass
from django_workflows.store import messages, signals
from django_workflows.values import Approval, Message

if TYPE_CHECKING:
    from django_workflows.models import WorkflowRun


class RunLogger(logging.LoggerAdapter[logging.Logger]):
    """Silent while replaying; carries run id, workflow and step."""

    def __init__(self, p: Pass) -> None:
        super().__init__(logging.getLogger("django_workflows.run"))
        self._pass = p

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's own name
        return not self._pass.history.is_replaying and super().isEnabledFor(level)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        claim = self._pass.claim
        extra = {
            "run_id": str(claim.run_id),
            "workflow_id": claim.workflow_id,
            "workflow": claim.name,
            "step": self._pass.current_step,
        }
        kwargs["extra"] = {**extra, **kwargs.get("extra", {})}
        return msg, kwargs


class RunCalls:
    """The calls of one pass."""

    def __init__(self, p: Pass) -> None:
        self._pass = p
        self.run_id = p.claim.run_id
        self.workflow_id = p.claim.workflow_id
        self.logger: logging.LoggerAdapter[logging.Logger] = RunLogger(p)

    @cached_property
    def input(self) -> dict[str, Any]:
        value: dict[str, Any] = payloads.decode(self._pass.claim.input)
        return value

    @property
    def is_replaying(self) -> bool:
        return self._pass.history.is_replaying

    def step(self, name: str, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return step_calls.call_step(self._pass, name, fn, args, kwargs)

    def sleep(self, duration: dt.timedelta | float) -> None:
        wait_calls.sleep(self._pass, duration)

    def sleep_until(self, when: dt.datetime) -> None:
        wait_calls.sleep_until(self._pass, when)

    def now(self) -> dt.datetime:
        value: float = self._pass.value("now", "now", self._pass.time)
        return to_local(value)

    def uuid4(self) -> UUID:
        value: UUID = self._pass.value("uuid", "uuid", uuid4)
        return value

    def random(self) -> float:
        value: float = self._pass.value("random", "random", random.random)
        return value

    def wait_for_message(
        self,
        name: str | Sequence[str],
        timeout: dt.timedelta | float | None,
        schema: Any,
        required: bool,
    ) -> Message[Any] | None:
        return wait_calls.wait_for_message(self._pass, name, timeout, schema, required)

    def receive_message(self, name: str | Sequence[str]) -> Message[Any] | None:
        return wait_calls.receive_message(self._pass, name)

    def send_message(self, run: WorkflowRun | UUID | str, name: str, data: Any) -> None:
        p = self._pass
        p.guard()
        name = check_message_name(name)
        run_id = as_run_id(run)
        entry = p.recorded("send", name)
        if entry is None:
            entry = p.history.new("send", name, p.time())
            text = payloads.encode(data)
            p.before_effect()
            self._send(entry, run_id, name, text)
        if entry.status == "failed":
            raise step_calls.failure(entry)

    def _send(self, entry: Any, run_id: UUID, name: str, text: str) -> None:
        # The key makes a second send, after a crash before the record, find the first.
        key = f"{self.run_id}:{entry.seq}"
        entry.status, entry.details = "completed", payloads.dump_json({"run": str(run_id)})
        try:
            message = self._pass.stored(lambda: messages.send(run_id, name, text, key))
        except (RunNotFound, RunFinished) as refused:
            entry.status = "failed"
            entry.error = payloads.dump_error(payloads.encode_error(refused))
        else:
            entry.details = payloads.dump_json({"run": str(run_id), "message": message.pk})
        self._pass.record(entry)

    def wait_for_signal(
        self, name: str, timeout: dt.timedelta | float | None, schema: Any
    ) -> Message[Any] | None:
        return wait_calls.wait_for_signal(self._pass, name, timeout, schema)

    def send_signal(self, name: str, data: Any) -> list[UUID]:
        p = self._pass
        p.guard()
        name = check_name(name, "A signal's name")
        entry = p.recorded("send_signal", name)
        if entry is None:
            entry = p.history.new("send_signal", name, p.time())
            text = payloads.encode(data)
            p.before_effect()
            key = f"{self.run_id}:{entry.seq}"
            reached = p.stored(lambda: signals.send(name, text, key))
            entry.status, entry.result = "completed", payloads.encode(reached, "runs reached")
            p.record(entry)
        found: list[UUID] = payloads.decode(entry.result or "[]")
        return found

    def wait_for_approval(self, gate: str, **asked: Any) -> Approval | None:
        return approval_calls.wait_for_approval(self._pass, gate, **asked)

    def start_child(self, workflow: Any, given: Mapping[str, Any] | None, **options: Any) -> UUID:
        return child_calls.start_child(self._pass, workflow, given, **options)

    def child_result(self, workflow: Any, child_id: UUID) -> Any:
        return child_calls.child_result(self._pass, workflow, child_id)

    def patched(self, change_id: str) -> bool:
        p = self._pass
        p.guard()
        change_id = check_name(change_id, "A change id")
        decided = p.history.decide(change_id)
        if decided is not None:
            return decided
        entry = p.history.new("patch", change_id, p.time())
        entry.status = "completed"
        p.record(entry)
        return True

    def set_state(self, values: dict[str, Any]) -> None:
        self._pass.merge_state(values)


def as_run_id(run: WorkflowRun | UUID | str) -> UUID:
    """The id of what the API calls *run*.

    Raises:
        RunNotFound: text that isn't a UUID.
        TypeError: neither a run nor an id.
    """
    value = getattr(run, "pk", run)
    if isinstance(value, UUID):
        return value
    if not isinstance(value, str):
        raise TypeError(f"A run must be a WorkflowRun, a UUID or a str, not {type(run).__name__}.")
    try:
        return UUID(value)
    except ValueError:
        raise RunNotFound(value) from None
