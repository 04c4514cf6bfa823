"""`ctx.step`: called once, recorded, and the same on every replay."""

import functools
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest

from django_workflows import NonRetryableError, RetryPolicy, StepFailed, step, workflow
from django_workflows.testing import advance, run_until_idle
from tests.lab.models import Thing
from tests.runtime.crashes import WorkerDied, execute_until_death

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


class Color(Enum):
    RED = "r"


def wake(run):
    advance(HOUR)
    run_until_idle(run)
    return run


def test_a_step_is_called_once_with_its_arguments_and_replays_from_its_record():
    calls = []

    def charge(*args, **kwargs):
        calls.append((args, kwargs))
        return {"id": 7}

    @workflow(name="t.charge")
    def charge_once(ctx):
        got = ctx.step("charge", charge, 1, "two", amount=3, name="n", retry="r", timeout="t")
        ctx.sleep(HOUR)
        return got

    run = charge_once.start()
    run_until_idle(run)
    assert run.status == "suspended"
    wake(run)

    assert run.result == {"id": 7}
    # Even arguments that are called like options of `step` go to the function.
    assert calls == [((1, "two"), {"amount": 3, "name": "n", "retry": "r", "timeout": "t"})]


def test_a_completed_step_tells_what_it_was_and_when():
    @workflow(name="t.tell")
    def tell(ctx):
        ctx.step("charge", lambda: {"id": 7})

    run = tell.start()
    run_until_idle(run)

    recorded = run.steps.get()
    assert (recorded.seq, recorded.key, recorded.name) == (0, "charge", "charge")
    assert (recorded.kind, recorded.status, recorded.attempts) == ("step", "completed", 1)
    assert (recorded.result, recorded.error, recorded.wake_at) == ({"id": 7}, None, None)
    assert recorded.created_at <= recorded.started_at <= recorded.finished_at
    assert str(recorded) == "charge"


# https://github.com/aws/aws-durable-execution-sdk-python/issues/407
@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {"b": 1, "a": [2, None]},
        {1, 2},
        Decimal("1.10"),
        datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        date(2026, 1, 2),
        timedelta(days=1, microseconds=1),
        UUID(int=5),
        b"\x00\xff",
        Color.RED,
        1e16,
        None,
    ],
    ids=repr,
)
def test_the_first_pass_and_a_replay_see_the_same_value_and_type(value):
    seen = []

    @workflow(name="t.same")
    def same(ctx, given):
        got = ctx.step("value", lambda: value)
        seen.append((got, given))
        ctx.sleep(HOUR)
        return got

    run = same.start(given=value)
    run_until_idle(run)
    wake(run)

    assert seen == [(value, value), (value, value)]
    assert {type(each) for pair in seen for each in pair} == {type(value)}
    assert (run.result, type(run.result)) == (value, type(value))


# https://github.com/aws/aws-durable-execution-sdk-python/issues/407
def test_a_key_that_json_would_turn_into_text_is_the_same_on_both_passes_or_refused():
    seen = []

    @workflow(name="t.keys")
    def keys(ctx):
        seen.append(ctx.step("value", lambda: {1: "a"}))
        ctx.sleep(HOUR)

    run = keys.start()
    run_until_idle(run)

    if run.status == "failed":
        assert "result of step 'value'" in run.error["message"]
        assert seen == []
    else:
        wake(run)
        assert seen[0] == seen[1]
        assert {type(key) for got in seen for key in got} == {type(next(iter(seen[0])))}


def test_what_a_body_does_to_a_result_never_reaches_the_function_or_the_record():
    kept = {"items": [1]}
    seen = []

    @workflow(name="t.alias")
    def alias(ctx):
        got = ctx.step("value", lambda: kept)
        seen.append(list(got["items"]))
        got["items"].append(2)
        ctx.sleep(HOUR)

    run = alias.start()
    run_until_idle(run)
    wake(run)

    assert kept == {"items": [1]}
    assert seen == [[1], [1]]


# https://github.com/inngest/inngest-kt/pull/72
# https://github.com/fractaledmind/acidic_job/issues/87
@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (["charge", "charge", "charge:1"], ["charge", "charge:1", "charge:1:1"]),
        (["charge:1", "charge", "charge"], ["charge:1", "charge", "charge:2"]),
        (["charge", "charge:1", "charge"], ["charge", "charge:1", "charge:2"]),
        (["charge"] * 4, ["charge", "charge:1", "charge:2", "charge:3"]),
    ],
)
def test_repeated_names_get_keys_of_their_own_also_beside_a_name_that_looks_like_one(names, keys):
    calls = []
    seen = []

    def charge(n):
        calls.append(n)
        return n

    @workflow(name="t.loop")
    def loop(ctx):
        seen.append([ctx.step(name, charge, n) for n, name in enumerate(names)])
        ctx.sleep(HOUR)
        seen.append(ctx.step("charge", charge, 99))

    run = loop.start()
    run_until_idle(run)
    wake(run)

    numbers = list(range(len(names)))
    assert calls == [*numbers, 99]
    assert seen == [numbers, numbers, 99]
    assert [each.key for each in run.steps.filter(kind="step")][: len(names)] == keys
    assert len({each.key for each in run.steps.all()}) == len(names) + 2


def test_the_name_option_replaces_the_name_of_the_call():
    @workflow(name="t.named")
    def named(ctx):
        return ctx.step("one", step(lambda: 1, name="charge the card"))

    run = named.start()
    run_until_idle(run)

    assert [(each.key, each.name) for each in run.steps.all()] == [
        ("charge the card", "charge the card")
    ]


def test_options_are_found_on_methods_and_through_partial():
    calls = []

    class Payments:
        @step(retry=RetryPolicy(max_attempts=1))
        def charge(self, amount):
            calls.append(amount)
            raise ValueError("declined")

    @workflow(name="t.bound")
    def bound(ctx):
        for fn in (Payments().charge, functools.partial(Payments().charge, 2)):
            args = (1,) if not isinstance(fn, functools.partial) else ()
            with suppress(StepFailed):
                ctx.step("charge", fn, *args)

    run = bound.start()
    run_until_idle(run)

    assert (run.status, calls) == ("completed", [1, 2])


@pytest.mark.parametrize(
    ("name", "fn", "kind", "text"),
    [
        ("", int, "ValueError", "A step's name must not be empty."),
        ("  ", int, "ValueError", "A step's name must not be empty."),
        (5, int, "TypeError", "A step's name must be a str, not int."),
        (
            "x" * 201,
            int,
            "ValueError",
            "A step's name must have at most 200 characters; this has 201.",
        ),
        (
            "charge",
            0,
            "TypeError",
            "ctx.step('charge', …) needs a callable, not int. Pass the function itself and its "
            "arguments after it: ctx.step(name, fn, arg).",
        ),
    ],
)
def test_a_step_that_is_asked_for_wrongly_fails_the_run_with_what_to_do(name, fn, kind, text):
    @workflow(name="t.wrong")
    def wrong(ctx):
        ctx.step(name, fn)

    run = wrong.start()
    run_until_idle(run)

    assert run.status == "failed"
    assert (run.error["type"], run.error["message"]) == (kind, text)
    assert not run.steps.exists()


def test_at_most_once_is_recorded_as_begun_before_the_call():
    seen = []

    @workflow(name="t.begun")
    def begun(ctx):
        def charge():
            seen.append(run.steps.get().status)

        ctx.step("charge", step(charge, at_most_once=True))

    run = begun.start()
    run_until_idle(run)

    assert seen == ["running"]
    assert run.steps.get().status == "completed"


def test_at_most_once_is_not_called_again_after_a_crash_but_fails_with_an_unknown_outcome():
    calls = []
    caught = []

    @step(at_most_once=True)
    def charge():
        calls.append(1)
        raise WorkerDied

    @workflow(name="t.once")
    def once(ctx):
        try:
            ctx.step("charge", charge)
        except StepFailed as failed:
            caught.append((failed.step, failed.type, str(failed), failed.attempts))
        ctx.sleep(HOUR)
        return "done"

    run = once.start()
    execute_until_death(run)
    run_until_idle(run)
    wake(run)

    text = (
        "Step 'charge' failed after 1 attempt: OutcomeUnknown: outcome unknown: the worker died "
        "in this step, which runs at most once"
    )
    assert caught == [("charge", "OutcomeUnknown", text, 1)] * 2
    assert (calls, run.result) == ([1], "done")


def test_at_most_once_still_retries_what_the_function_raised():
    calls = []

    @step(at_most_once=True, retry=RetryPolicy(max_attempts=3))
    def charge():
        calls.append(1)
        raise ValueError("declined")

    @workflow(name="t.once_retried")
    def once_retried(ctx):
        ctx.step("charge", charge)

    run = once_retried.start()
    run_until_idle(run)
    for _ in range(3):
        wake(run)

    assert (run.status, len(calls)) == ("failed", 3)


def test_atomic_commits_the_functions_writes_together_with_its_record():
    @step(atomic=True)
    def mark():
        return Thing.objects.create(name="paid").pk

    @workflow(name="t.atomic")
    def atomic(ctx):
        return ctx.step("mark", mark)

    run = atomic.start()
    run_until_idle(run)

    assert run.result == Thing.objects.get().pk


@pytest.mark.parametrize("leaves", [1, 0], ids=["plain", "atomic"])
def test_only_an_atomic_step_takes_its_writes_back_when_it_raises(leaves):
    @step(atomic=not leaves)
    def mark():
        Thing.objects.create(name="paid")
        raise NonRetryableError("declined")

    @workflow(name="t.atomic_raises")
    def atomic_raises(ctx):
        ctx.step("mark", mark)

    run = atomic_raises.start()
    run_until_idle(run)

    assert run.error["message"] == (
        "Step 'mark' failed after 1 attempt: NonRetryableError: declined"
    )
    assert Thing.objects.count() == leaves


def test_an_atomic_step_whose_result_cannot_be_stored_leaves_no_writes():
    @step(atomic=True)
    def mark():
        return Thing.objects.create(name="paid")

    @workflow(name="t.atomic_payload")
    def atomic_payload(ctx):
        ctx.step("mark", mark)

    run = atomic_payload.start()
    run_until_idle(run)

    assert run.status == "failed"
    assert "result of step 'mark': a Thing instance can't be stored" in run.error["message"]
    assert not Thing.objects.exists()


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "plain"])
def test_an_atomic_step_whose_worker_dies_leaves_neither_writes_nor_record(atomic):
    deaths = [WorkerDied]

    @step(atomic=atomic)
    def mark():
        Thing.objects.create(name="paid")
        if deaths:
            raise deaths.pop()

    @workflow(name="t.atomic_dies")
    def atomic_dies(ctx):
        ctx.step("mark", mark)

    run = atomic_dies.start()
    execute_until_death(run)
    left = Thing.objects.count()
    assert not run.steps.exists()
    run_until_idle(run)

    assert run.status == "completed"
    assert (left, Thing.objects.count()) == ((0, 1) if atomic else (1, 2))
