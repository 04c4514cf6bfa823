"""RetryPolicy and its delays, clamped; pure arithmetic."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django_workflows.exceptions import NonRetryableError, PayloadError

Interval = timedelta | float


@dataclass(frozen=True)
class RetryPolicy:
    """How often, and after which delays, something that raises is tried again.

    Args:
        max_attempts: tries in all, the first one included; 0 is without limit.
        initial_interval: timedelta or seconds between the first try and the second.
        backoff: factor, at least 1, from each delay to the next.
        max_interval: timedelta or seconds that no delay exceeds, the first one included.
        jitter: multiply each delay by a random factor from 0.5 to 1, so that what failed
            together isn't tried again together.
        non_retryable: exception classes, or names of types ("CardDeclined" or
            "shop.errors.CardDeclined"), subclasses included, that end the tries at once.

    Raises: TypeError and ValueError for arguments that aren't of this kind.
    """

    max_attempts: int = 10
    initial_interval: Interval = timedelta(seconds=1)
    backoff: float = 2.0
    max_interval: Interval = timedelta(seconds=100)
    jitter: bool = True
    non_retryable: tuple[type[BaseException] | str, ...] = ()

    def __post_init__(self) -> None:
        _check_count(self.max_attempts)
        _check_backoff(self.backoff)
        if not isinstance(self.jitter, bool):
            raise TypeError(f"jitter must be True or False, not {self.jitter!r}.")
        for name in ("initial_interval", "max_interval"):
            object.__setattr__(self, name, _read_interval(name, getattr(self, name)))
        object.__setattr__(self, "non_retryable", _read_types(self.non_retryable))

    def delay(self, attempt: int, rng: Callable[[], float] = random.random) -> float:
        """Seconds to wait after `attempt` tries have failed: from 0 to `max_interval`."""
        first, ceiling = _seconds(self.initial_interval), _seconds(self.max_interval)
        if 0 < first < ceiling and self.backoff > 1:
            # Clamp the exponent, not the product: 5.0 ** 2000 raises OverflowError.
            enough = math.ceil(math.log(ceiling / first) / math.log(self.backoff))
            first *= self.backoff ** max(0, min(attempt - 1, enough))
        factor = 0.5 + rng() / 2 if self.jitter else 1.0
        return min(first, ceiling) * factor

    def allows(self, attempts_done: int) -> bool:
        """Whether there is a try left after this many."""
        return self.max_attempts == 0 or attempts_done < self.max_attempts

    def is_retryable(self, exc: BaseException) -> bool:
        """Whether another try may help after `exc`, whatever the number of tries."""
        if isinstance(exc, (NonRetryableError, PayloadError)):
            return False
        names = {name for cls in type(exc).__mro__ for name in (cls.__name__, _dotted_name(cls))}
        return not any(
            kind in names if isinstance(kind, str) else isinstance(exc, kind)
            for kind in self.non_retryable
        )


def _dotted_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _seconds(interval: Interval) -> float:
    return interval.total_seconds() if isinstance(interval, timedelta) else interval


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_count(value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"max_attempts must be an int, not {value!r}.")
    if value < 0:
        raise ValueError(f"max_attempts must be 0 (without limit) or more, not {value}.")


def _check_backoff(value: float) -> None:
    if not _is_number(value):
        raise TypeError(f"backoff must be a number, not {value!r}.")
    if not 1 <= value <= sys.float_info.max:
        raise ValueError(f"backoff must be finite and at least 1, not {value!r}.")


def _read_interval(name: str, value: Interval) -> timedelta:
    if not isinstance(value, timedelta) and not _is_number(value):
        raise TypeError(f"{name} must be a timedelta or seconds, not {value!r}.")
    if not 0 <= _seconds(value) <= timedelta.max.total_seconds():
        raise ValueError(f"{name} must be from 0 to {timedelta.max.days} days, not {value!r}.")
    return value if isinstance(value, timedelta) else timedelta(seconds=value)


def _read_types(value: object) -> tuple[type[BaseException] | str, ...]:
    if not isinstance(value, (tuple, list, set, frozenset)):
        raise TypeError(
            f"non_retryable must be a tuple of exception classes or their names, not {value!r}."
        )
    for kind in value:
        if isinstance(kind, str):
            if not kind:
                raise ValueError("non_retryable holds an empty name.")
        elif not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"non_retryable holds {kind!r}, neither an exception class nor a name.")
    return tuple(value)
