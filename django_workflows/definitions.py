"""What was declared: workflows and steps, with input bound to the signature. Knows no run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, overload

from django_workflows.retry import RetryPolicy

P = ParamSpec("P")
R = TypeVar("R")

MAX_NAME = 200
# Leaves room for the prefix of the messages that decide a gate.
MAX_GATE = 180
_OPTIONS = "__workflow_step__"


def check_name(value: Any, what: str, *, limit: int = MAX_NAME) -> str:
    """Return `value` if it can name something.

    Raises:
        TypeError: it isn't a str.
        ValueError: it is empty, longer than `limit`, or holds what a database can't store.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}.")
    if not value.strip():
        raise ValueError(f"{what} must not be empty.")
    if len(value) > limit:
        raise ValueError(f"{what} must have at most {limit} characters; this has {len(value)}.")
    if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise ValueError(f"{what} must not contain NUL or lone surrogates: {value!r}.")
    # str() gives up subclasses such as SafeString, whose equality or hash may be their own.
    return str.__str__(value)


def check_message_name(value: Any) -> str:
    """Return `value` if people can send and await messages of this name.

    Raises:
        TypeError, ValueError: as `check_name`; names that begin with "$" are the package's own.
    """
    name = check_name(value, "A message's name")
    if name.startswith("$"):
        raise ValueError(
            f"Message names that begin with '$' are reserved, got {name!r}. "
            "Decisions on a gate are made by approve() and reject()."
        )
    return name


def refuse_async(fn: Callable[..., Any], what: str) -> None:
    """Raise TypeError for what would return a coroutine or async generator instead of a value."""
    target = fn.func if isinstance(fn, functools.partial) else fn
    call = getattr(type(target), "__call__", None)  # noqa: B004 - an async __call__ is the point
    if any(
        inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate)
        for candidate in (target, call)
    ):
        name = getattr(target, "__qualname__", repr(target))
        raise TypeError(
            f"{what} {name!r} is async; write it as a plain def. "
            "Call async code in a step with asgiref.sync.async_to_sync()."
        )


def as_seconds(value: timedelta | float, what: str) -> float:
    """Seconds of a timedelta or number.

    Raises:
        TypeError: neither a timedelta nor a number.
        ValueError: negative, NaN, or beyond what the database can store.
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = float("inf")
    else:
        raise TypeError(
            f"{what} must be a timedelta or a number of seconds, not {type(value).__name__}."
        )
    if not seconds >= 0:
        raise ValueError(f"{what} must be zero or more, got {value!r}.")
    if seconds > MAX_SECONDS:
        raise ValueError(f"{what} is longer than the database can store: {value!r}.")
    return seconds


# A date this far ahead is still before year 9999, where Python's datetime ends.
MAX_SECONDS = 7000 * 365.25 * 86400


@dataclass(frozen=True)
class StepOptions:
    """What `step(...)` attached to a callable."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout: float | None = None
    atomic: bool = False
    at_most_once: bool = False
    name: str | None = None


DEFAULT_OPTIONS = StepOptions()


def options_of(fn: Callable[..., Any]) -> StepOptions:
    """Options attached by `step`, also through functools.partial and bound methods."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    found = getattr(fn, _OPTIONS, DEFAULT_OPTIONS)
    return found if isinstance(found, StepOptions) else DEFAULT_OPTIONS


@overload
def step(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def step(
    fn: Callable[P, R],
    /,
    *,
    retry: RetryPolicy | None = None,
    timeout: timedelta | float | None = None,
    atomic: bool = False,
    at_most_once: bool = False,
    name: str | None = None,
) -> Callable[P, R]: ...
@overload
def step(
    *,
    retry: RetryPolicy | None = None,
    timeout: timedelta | float | None = None,
    atomic: bool = False,
    at_most_once: bool = False,
    name: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    retry: RetryPolicy | None = None,
    timeout: timedelta | float | None = None,
    atomic: bool = False,
    at_most_once: bool = False,
    name: str | None = None,
) -> Any:
    """Attach options to a callable, as a decorator or around a call's function.

    The callable given is left as it is; what comes back behaves like it when called directly.

    Args:
        fn: any plain callable; all arguments of `ctx.step` after it go to it.
        retry: when and how often to try again; default `RetryPolicy()`.
        timeout: timedelta or seconds for one attempt; default without limit.
        atomic: the function's ORM writes and its record commit in one transaction.
        at_most_once: recorded as begun before the call; after a crash in it, it isn't called
            again but raises StepFailed ("outcome unknown").
        name: shown instead of the name given to `ctx.step`.

    Raises:
        TypeError: an async function, or something that can't be called.
        ValueError: `atomic` and `at_most_once` together, or a bad timeout.

    Source: nevo-messaging WorkflowEngine, "steps".
    """
    if fn is None:
        return functools.partial(
            step, retry=retry, timeout=timeout, atomic=atomic, at_most_once=at_most_once, name=name
        )
    if not callable(fn):
        raise TypeError(f"step() needs a callable, not {type(fn).__name__}.")
    refuse_async(fn, "Step")
    if atomic and at_most_once:
        raise ValueError(
            "A step can't be both atomic and at_most_once: an atomic step's crash leaves nothing "
            "behind, so it is safe to call again."
        )
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise TypeError(f"step(retry=) needs a RetryPolicy, not {type(retry).__name__}.")
    options = StepOptions(
        retry=retry or RetryPolicy(),
        timeout=None if timeout is None else _positive(timeout, "A step's timeout"),
        atomic=atomic,
        at_most_once=at_most_once,
        name=None if name is None else check_name(name, "A step's name"),
    )
    inner = fn

    @functools.wraps(inner)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    setattr(wrapped, _OPTIONS, options)
    return wrapped


def _positive(value: timedelta | float, what: str) -> float:
    seconds = as_seconds(value, what)
    if seconds == 0:
        raise ValueError(f"{what} must be more than zero.")
    return seconds


@dataclass(frozen=True)
class WorkflowDefinition:
    """A registered workflow: its function and what `@workflow(...)` said about it."""

    name: str
    version: str
    fn: Callable[..., Any]
    queue_name: str = "default"
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(max_attempts=1))
    timeout: float | None = None
    is_method: bool = False

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """Of a call with the context first, also for a method that isn't bound yet."""
        signature = inspect.signature(self.fn)
        if not self.is_method:
            return signature
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    @property
    def source(self) -> str:
        """Where the function is, for messages."""
        return f"{self.fn.__module__}.{self.fn.__qualname__}"

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Input by parameter name, as given; defaults are applied by the call itself.

        Raises:
            TypeError: the input doesn't fit the function's signature.
        """
        try:
            bound = self.signature.bind(None, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"Input of workflow {self.name!r}: {error}.") from None
        given = dict(list(bound.arguments.items())[1:])
        for parameter in self.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD and parameter.name in given:
                given.update(given.pop(parameter.name))
        return given


def define(
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    version: str | int = "1",
    queue_name: str = "default",
    retry: RetryPolicy | None = None,
    timeout: timedelta | float | None = None,
) -> WorkflowDefinition:
    """Check a function and its options, and make a definition of them.

    Raises:
        TypeError: an async function, one without a `ctx` parameter, or with parameters that
            can't be given by name.
        ValueError: an empty or too long name, version or queue.
    """
    refuse_async(fn, "Workflow")
    if not inspect.isfunction(fn):
        raise TypeError(
            f"@workflow needs a function (def), not {type(fn).__name__}; its name and signature "
            "identify the workflow."
        )
    is_method = _is_method(fn)
    _check_parameters(fn, skip=int(is_method))
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise TypeError(f"workflow(retry=) needs a RetryPolicy, not {type(retry).__name__}.")
    return WorkflowDefinition(
        name=check_name(default_name(fn) if name is None else name, "A workflow's name"),
        version=check_version(version),
        fn=fn,
        queue_name=check_name(queue_name, "A queue's name", limit=100),
        retry=retry or RetryPolicy(max_attempts=1),
        timeout=None if timeout is None else _positive(timeout, "A workflow's timeout"),
        is_method=is_method,
    )


def _is_method(fn: Callable[..., Any]) -> bool:
    """True for a function defined in a class's body."""
    return fn.__qualname__.rpartition(".")[0].rpartition(".")[2] not in ("", "<locals>")


def check_version(version: str | int) -> str:
    """Versions are text; a number is taken as its digits."""
    if isinstance(version, int) and not isinstance(version, bool):
        version = str(version)
    return check_name(version, "A workflow's version", limit=100)


def default_name(fn: Callable[..., Any]) -> str:
    """`<package that holds workflows.py>.<function>`; `<Class>.<method>` for a method."""
    if _is_method(fn):
        return ".".join(fn.__qualname__.split(".")[-2:])
    package, found, _ = f"{fn.__module__}.".partition(".workflows.")
    return f"{package if found else fn.__module__}.{fn.__name__}"


def _check_parameters(fn: Callable[..., Any], *, skip: int) -> None:
    parameters = list(inspect.signature(fn).parameters.values())[skip:]
    first = parameters[0] if parameters else None
    if first is None or first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD):
        raise TypeError(
            f"Workflow {fn.__qualname__!r} must take the context as its first parameter: "
            f"def {fn.__name__}(ctx, …)."
        )
    for parameter in parameters[1:]:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(
                f"Parameter {parameter.name!r} of workflow {fn.__qualname__!r} can't be given by "
                "name; input is stored by name, so use ordinary or keyword-only parameters."
            )
