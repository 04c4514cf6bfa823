"""RetryPolicy: its arguments, its delays, and what it doesn't try again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_workflows.exceptions import NonRetryableError, PayloadError, RetryAfter
from django_workflows.retry import RetryPolicy


class CardDeclined(Exception):
    pass


class CardExpired(CardDeclined):
    pass


def largest() -> float:
    return 1.0


def smallest() -> float:
    return 0.0


def test_delays_grow_by_the_backoff_up_to_the_ceiling() -> None:
    policy = RetryPolicy(jitter=False)
    assert [policy.delay(attempt) for attempt in range(1, 10)] == [
        1.0,
        2.0,
        4.0,
        8.0,
        16.0,
        32.0,
        64.0,
        100.0,
        100.0,
    ]


def test_jitter_takes_at_most_half_of_a_delay() -> None:
    policy = RetryPolicy(initial_interval=8)
    assert policy.delay(1, smallest) == 4.0
    assert policy.delay(1, largest) == 8.0
    assert 4.0 <= policy.delay(1) <= 8.0


def test_h12_two_thousand_attempts_with_backoff_five_stay_under_the_ceiling() -> None:
    """https://github.com/procrastinate-org/procrastinate/issues/1462"""
    policy = RetryPolicy(max_attempts=2000, backoff=5, max_interval=timedelta(hours=1))
    assert all(0 <= policy.delay(attempt) <= 3600 for attempt in range(1, 2001))
    assert policy.delay(10**9, largest) == 3600.0


@given(
    attempt=st.integers(1, 10**12),
    initial=st.floats(0, 1e13),
    backoff=st.floats(1, 1.7e308),
    ceiling=st.floats(0, 1e13),
    rng=st.sampled_from([smallest, largest]),
)
def test_every_delay_is_between_zero_and_the_ceiling(
    attempt: int, initial: float, backoff: float, ceiling: float, rng: Callable[[], float]
) -> None:
    policy = RetryPolicy(initial_interval=initial, backoff=backoff, max_interval=ceiling)
    highest = timedelta(seconds=ceiling).total_seconds()
    assert 0 <= policy.delay(attempt, rng) <= highest
    assert policy.delay(attempt, rng) >= min(policy.delay(1, rng), highest)


def test_an_initial_interval_above_the_ceiling_is_clamped() -> None:
    policy = RetryPolicy(initial_interval=500, jitter=False)
    assert policy.delay(1) == 100.0


def test_an_initial_interval_of_zero_tries_again_at_once() -> None:
    assert RetryPolicy(initial_interval=0).delay(7) == 0.0


def test_intervals_in_seconds_become_timedeltas() -> None:
    policy = RetryPolicy(initial_interval=1.5, max_interval=60)
    assert policy.initial_interval == timedelta(seconds=1.5)
    assert policy.max_interval == timedelta(minutes=1)
    assert policy == RetryPolicy(initial_interval=timedelta(seconds=1.5), max_interval=60.0)
    assert hash(policy) == hash(RetryPolicy(initial_interval=1.5, max_interval=60))


def test_max_attempts_bounds_the_tries_and_zero_is_without_limit() -> None:
    assert RetryPolicy(max_attempts=3).allows(2)
    assert not RetryPolicy(max_attempts=3).allows(3)
    assert RetryPolicy(max_attempts=0).allows(10**9)


@pytest.mark.parametrize(
    "non_retryable",
    [(CardDeclined,), ("CardDeclined",), (f"{__name__}.CardDeclined",), [CardDeclined, "Other"]],
)
def test_what_is_non_retryable_is_named_by_class_or_text_with_subclasses(
    non_retryable: Any,
) -> None:
    policy = RetryPolicy(non_retryable=non_retryable)
    assert not policy.is_retryable(CardDeclined())
    assert not policy.is_retryable(CardExpired())
    assert policy.is_retryable(ValueError())


def test_errors_that_another_try_cant_mend_are_never_retryable() -> None:
    policy = RetryPolicy()
    assert not policy.is_retryable(NonRetryableError("no"))
    assert not policy.is_retryable(PayloadError("data", "a file"))
    assert policy.is_retryable(RetryAfter(5))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"max_attempts": 2.0}, TypeError, "max_attempts must be an int, not 2.0."),
        ({"max_attempts": True}, TypeError, "max_attempts must be an int, not True."),
        (
            {"max_attempts": -1},
            ValueError,
            "max_attempts must be 0 (without limit) or more, not -1.",
        ),
        ({"backoff": "2"}, TypeError, "backoff must be a number, not '2'."),
        ({"backoff": 0.5}, ValueError, "backoff must be finite and at least 1, not 0.5."),
        (
            {"backoff": float("nan")},
            ValueError,
            "backoff must be finite and at least 1, not nan.",
        ),
        (
            {"backoff": float("inf")},
            ValueError,
            "backoff must be finite and at least 1, not inf.",
        ),
        (
            {"initial_interval": "1s"},
            TypeError,
            "initial_interval must be a timedelta or seconds, not '1s'.",
        ),
        (
            {"initial_interval": -1},
            ValueError,
            "initial_interval must be from 0 to 999999999 days, not -1.",
        ),
        (
            {"max_interval": float("inf")},
            ValueError,
            "max_interval must be from 0 to 999999999 days, not inf.",
        ),
        ({"jitter": 1}, TypeError, "jitter must be True or False, not 1."),
        (
            {"non_retryable": "ValueError"},
            TypeError,
            "non_retryable must be a tuple of exception classes or their names, not 'ValueError'.",
        ),
        (
            {"non_retryable": (int,)},
            TypeError,
            "non_retryable holds <class 'int'>, neither an exception class nor a name.",
        ),
        ({"non_retryable": ("",)}, ValueError, "non_retryable holds an empty name."),
    ],
)
def test_arguments_that_make_no_policy_are_refused(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        RetryPolicy(**arguments)
    assert str(caught.value) == text


def test_an_int_too_large_for_a_float_is_refused_as_any_other() -> None:
    for name in ("initial_interval", "max_interval", "backoff"):
        with pytest.raises(ValueError, match=f"{name} must be"):
            RetryPolicy(**{name: 10**400})  # type: ignore[arg-type]
