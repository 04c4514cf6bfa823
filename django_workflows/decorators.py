"""`@workflow` and `Workflow`, a definition that can `start` and `using`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from django_workflows import api
from django_workflows.context import WorkflowContext
from django_workflows.definitions import WorkflowDefinition, define
from django_workflows.registry import registry
from django_workflows.retry import RetryPolicy

if TYPE_CHECKING:
    from django.db.models import Model

    from django_workflows.models import WorkflowRun

P = ParamSpec("P")
R = TypeVar("R")


class Workflow(Generic[P, R]):
    """A workflow that can be started; calling it with a context calls the function itself."""

    def __init__(
        self, definition: WorkflowDefinition, options: dict[str, Any] | None = None
    ) -> None:
        self.definition = definition
        self._options = options or {}
        functools.update_wrapper(self, definition.fn)

    def __get__(self, instance: object, owner: type | None = None) -> Workflow[P, R]:
        """A method's workflow seen through an instance calls the instance's own function."""
        if instance is None or not self.definition.is_method:
            return self
        return Workflow(_bound(self.definition, instance), self._options)

    def __repr__(self) -> str:
        return f"<Workflow {self.definition.name} version {self.definition.version}>"

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def version(self) -> str:
        return self.definition.version

    def __call__(self, ctx: WorkflowContext, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.definition.fn(ctx, *args, **kwargs)
        return result

    def start(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowRun:
        """Record a run of this workflow; a worker executes it once the transaction commits.

        Raises:
            TypeError: the input doesn't fit the function's signature.
            PayloadError: the input can't be stored; nothing is written.
            WorkflowAlreadyStarted: as asked for by `using()`.

        Source: nevo-messaging WorkflowEngine, "start".
        """
        given = self.definition.bind(args, kwargs)
        return api.start(self, given, **self._options)

    async def astart(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowRun:
        """Async twin of `start`."""
        given = self.definition.bind(args, kwargs)
        return await api.astart(self, given, **self._options)

    def using(
        self,
        *,
        workflow_id: str | None = None,
        subject: Model | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | None = None,
        deadline: datetime | timedelta | None = None,
        priority: int | None = None,
        id_conflict: str | None = None,
        id_reuse: str | None = None,
    ) -> Workflow[P, R]:
        """Options for the next `start`; this workflow itself stays as it is. See `api.start`."""
        given = {
            "workflow_id": workflow_id,
            "subject": subject,
            "queue_name": queue_name,
            "run_after": run_after,
            "deadline": deadline,
            "priority": priority,
            "id_conflict": id_conflict,
            "id_reuse": id_reuse,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        return Workflow(self.definition, {**self._options, **chosen})


@overload
def workflow(fn: Callable[Concatenate[WorkflowContext, P], R], /) -> Workflow[P, R]: ...
@overload
def workflow(fn: Callable[Concatenate[Any, WorkflowContext, P], R], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: str | int = "1",
    queue_name: str = "default",
    retry: RetryPolicy | None = None,
    timeout: timedelta | float | None = None,
) -> Callable[[Callable[Concatenate[WorkflowContext, P], R]], Workflow[P, R]]: ...
def workflow(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: str | int = "1",
    queue_name: str = "default",
    retry: RetryPolicy | None = None,
    timeout: timedelta | float | None = None,
) -> Any:
    """Register a function as a workflow.

    Args:
        fn: `def f(ctx, …)`; parameters after `ctx` are the input, given by name.
        name: default `<package that holds workflows.py>.<function>`.
        version: text or number; runs go on only where their own version is registered.
        queue_name: for workers started with `--queue`.
        retry: for the body's own exceptions; default one attempt.
        timeout: timedelta or seconds from the start after which a run fails with
            DeadlineExceeded.

    Raises:
        TypeError: an async function, or a signature that input can't be given to by name.
        ValueError: an empty or too long name, version or queue.

    Source: nevo-messaging WorkflowEngine, "decorator and discovery".
    """
    if fn is None:
        return functools.partial(
            workflow,
            name=name,
            version=version,
            queue_name=queue_name,
            retry=retry,
            timeout=timeout,
        )
    definition = define(
        fn, name=name, version=version, queue_name=queue_name, retry=retry, timeout=timeout
    )
    if not definition.is_method:
        registry.register(definition)
    return Workflow(definition)


def _bound(definition: WorkflowDefinition, instance: object) -> WorkflowDefinition:
    fn = definition.fn.__get__(instance)
    return dataclasses.replace(definition, fn=fn, is_method=False)


def register(instance: object) -> list[str]:
    """Register the workflows that are methods of an object, bound to it.

    Args:
        instance: of a class with methods decorated by `@workflow`.

    Returns: the registered names, `<Class>.<method>` by default, sorted.
    Raises:
        TypeError: a class instead of an instance of it.
        ValueError: it has no such methods.

    Source: nevo-messaging WorkflowEngine, "decorator and discovery".
    """
    if isinstance(instance, type):
        raise TypeError(f"register() needs an instance: register({instance.__name__}(…)).")
    names = []
    for attribute in dir(type(instance)):
        found = getattr(type(instance), attribute, None)
        if isinstance(found, Workflow) and found.definition.is_method:
            registry.register(_bound(found.definition, instance))
            names.append(found.name)
    if not names:
        raise ValueError(f"{type(instance).__name__} has no methods decorated by @workflow.")
    return sorted(set(names))
