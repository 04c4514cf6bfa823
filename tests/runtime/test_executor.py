"""From a body's outcome to the run's: completed, failed, tried again, canceled, overdue."""

import asyncio
import warnings
from datetime import timedelta

import pytest

from django_workflows import (
    NonRetryableError,
    RetryPolicy,
    StepFailed,
    step,
    workflow,
)
from django_workflows.testing import advance, run_until_idle
from tests.runtime.crashes import WorkerDied, execute_until_death

pytestmark = pytest.mark.django_db

POLICY = RetryPolicy(max_attempts=3, initial_interval=10, backoff=2, jitter=False)


def execute(body, **options):
    run = workflow(name="t.executed", **options)(body).start()
    run_until_idle(run)
    return run


def wake(run, seconds):
    advance(timedelta(seconds=seconds))
    run_until_idle(run)
    return run


def test_a_body_that_returns_completes_its_run():
    run = execute(lambda ctx: {"status": "shipped"})

    assert (run.status, run.result, run.error) == ("completed", {"status": "shipped"}, None)
    assert run.is_finished
    assert (run.attempts, run.available_at, run.claim_token) == (1, None, None)
    assert run.created_at <= run.started_at <= run.finished_at


def fail(ctx):
    raise LookupError("no such order")


def test_a_bodys_own_exception_fails_the_run_at_once_with_its_traceback():
    run = execute(fail)

    assert (run.status, run.result, run.attempts) == ("failed", None, 1)
    assert set(run.error) == {"type", "message", "traceback"}
    assert (run.error["type"], run.error["message"]) == ("LookupError", "no such order")
    assert run.error["traceback"].startswith("Traceback (most recent call last):\n")
    assert "in fail" in run.error["traceback"]
    assert run.error["traceback"].endswith("LookupError: no such order\n")


@pytest.mark.parametrize(
    "error", [SystemExit(3), GeneratorExit("x"), asyncio.CancelledError("x")], ids=repr
)
def test_a_body_that_raises_past_except_exception_fails_its_run_and_stops_nobody(error):
    def body(ctx):
        raise error

    run = execute(body)

    assert (run.status, run.error["type"]) == ("failed", type(error).__name__)


def test_a_workflow_with_a_retry_policy_tries_its_body_again_with_its_record():
    calls = {"body": 0, "step": 0}

    def count():
        calls["step"] += 1
        return calls["step"]

    def body(ctx):
        calls["body"] += 1
        got = ctx.step("once", count)
        if calls["body"] < 3:
            raise ValueError("not yet")
        return got

    run = execute(body, retry=POLICY)
    assert (run.status, run.attempts, run.error) == ("pending", 2, None)
    wake(run, 9)
    assert calls["body"] == 1
    wake(run, 2)
    assert (run.attempts, calls["body"]) == (3, 2)
    wake(run, 19)
    assert calls["body"] == 2
    wake(run, 2)

    assert (run.status, run.result) == ("completed", 1)
    assert (run.attempts, calls) == (3, {"body": 3, "step": 1})


def test_a_body_that_fails_at_each_attempt_fails_the_run_with_the_last_error():
    numbers = iter("abcdef")

    def body(ctx):
        raise ValueError(next(numbers))

    run = execute(body, retry=POLICY)
    for _ in range(4):
        wake(run, 30)

    assert (run.status, run.attempts, run.error["message"]) == ("failed", 3, "c")


def test_a_failed_step_that_fails_the_body_is_tried_anew_by_the_bodys_next_attempt():
    calls = []

    def charge():
        calls.append(1)
        if len(calls) < 2:
            raise NonRetryableError("declined")
        return "paid"

    run = execute(lambda ctx: ctx.step("charge", charge), retry=POLICY)
    wake(run, 11)

    assert (run.status, run.result, len(calls)) == ("completed", "paid", 2)
    assert [(each.key, each.status) for each in run.steps.all()] == [("charge", "completed")]


def test_a_failed_step_that_the_body_caught_is_never_called_again_by_its_next_attempt():
    calls = []

    def charge():
        calls.append(1)
        raise NonRetryableError("declined")

    def body(ctx):
        try:
            ctx.step("charge", charge)
        except StepFailed:
            ctx.step("note", lambda: None)
            raise ValueError("later") from None

    run = execute(body, retry=POLICY)
    wake(run, 11)
    wake(run, 21)

    assert (run.status, run.error["message"], len(calls)) == ("failed", "later", 1)


def test_a_step_of_unknown_outcome_is_not_called_by_the_bodys_next_attempt_either():
    calls = []

    @step(at_most_once=True)
    def charge():
        calls.append(1)
        raise WorkerDied

    run = workflow(name="t.once", retry=POLICY)(lambda ctx: ctx.step("charge", charge)).start()
    execute_until_death(run)
    run_until_idle(run)
    for _ in range(3):
        wake(run, 30)

    assert (run.status, len(calls)) == ("failed", 1)
    assert "outcome unknown" in run.error["message"]


def test_the_bodys_policy_gives_up_at_once_on_what_it_names():
    run = execute(fail, retry=RetryPolicy(non_retryable=(LookupError,)))

    assert (run.status, run.attempts) == ("failed", 1)


# https://github.com/Azure/azure-functions-durable-python/issues/471
@pytest.mark.parametrize("where", ["workflow", "step"])
@pytest.mark.parametrize("kind", ["coroutine", "generator", "async generator"])
def test_a_coroutine_or_generator_is_never_a_result(where, kind):
    calls = []

    async def work():
        return 1

    def generate():
        yield 1

    async def agenerate():
        yield 1

    def made():
        calls.append(1)
        return {"coroutine": work, "generator": generate, "async generator": agenerate}[kind]()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = execute(made_by(made, where))

    assert (run.status, len(calls)) == ("failed", 1)
    assert "return a plain value" in run.error["message"]


def made_by(made, where):
    if where == "workflow":
        return lambda ctx: made()
    return lambda ctx: ctx.step("made", made)


def test_an_async_step_is_refused_before_it_is_called():
    async def work():
        return 1

    run = execute(lambda ctx: ctx.step("work", work))

    assert (run.status, run.error["type"]) == ("failed", "TypeError")
    assert run.error["message"].startswith(
        "Step 'test_an_async_step_is_refused_before_it_is_called.<locals>.work' is async; write "
        "it as a plain def."
    )
