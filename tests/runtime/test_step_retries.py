"""A step's attempts: parked between them, counted, and given up the same way on every replay."""

import asyncio
from datetime import timedelta

import pytest

from django_workflows import (
    NonRetryableError,
    RetryAfter,
    RetryPolicy,
    StepFailed,
    send_message,
    step,
    workflow,
)
from django_workflows.models import WorkflowRun
from django_workflows.testing import advance, run_until_idle
from tests.runtime.crashes import WorkerDied, execute_until_death

pytestmark = pytest.mark.django_db

EXACT = RetryPolicy(max_attempts=3, initial_interval=10, backoff=3, jitter=False)


class Flaky:
    """Raises what it was given, one call after the other, then returns "ok"."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "ok"


def start(fn, **options):
    @workflow(name="t.flaky")
    def flaky(ctx):
        return ctx.step("flaky", step(fn, **options))

    run = flaky.start()
    run_until_idle(run)
    return run


def wait(run, seconds):
    advance(timedelta(seconds=seconds))
    run_until_idle(run)


def test_a_failed_attempt_parks_the_run_until_its_retry_is_due():
    fn = Flaky(ValueError("one"), ValueError("two"))
    run = start(fn, retry=EXACT)

    waiting = run.steps.get()
    assert (run.status, run.claim_token, run.claimed_by) == ("suspended", None, None)
    assert (waiting.status, waiting.attempts) == ("waiting", 1)
    assert (waiting.error["type"], waiting.error["message"]) == ("ValueError", "one")
    assert waiting.wake_at == run.available_at
    assert waiting.wake_at - waiting.started_at < timedelta(seconds=11)
    wait(run, 9)
    assert fn.calls == 1
    wait(run, 2)
    assert (fn.calls, run.steps.get().attempts) == (2, 2)
    wait(run, 28)
    assert fn.calls == 2
    wait(run, 3)

    done = run.steps.get()
    assert (run.status, run.result, fn.calls) == ("completed", "ok", 3)
    assert (done.status, done.attempts, done.error, done.wake_at) == ("completed", 3, None, None)


def test_other_runs_go_on_while_a_step_waits_for_its_retry():
    run = start(Flaky(ValueError("one")), retry=EXACT)

    @workflow(name="t.other")
    def other(ctx):
        return "done"

    second = other.start()
    run_until_idle()

    second.refresh_from_db()
    assert (second.status, run.status) == ("completed", "suspended")


def test_steps_before_the_failed_one_are_not_called_again_by_its_retry():
    before = Flaky()
    flaky = Flaky(ValueError("one"))

    @workflow(name="t.before")
    def two(ctx):
        return [ctx.step("before", before), ctx.step("flaky", step(flaky, retry=EXACT))]

    run = two.start()
    run_until_idle(run)
    wait(run, 11)

    assert run.result == ["ok", "ok"]
    assert (before.calls, flaky.calls) == (1, 2)


def test_a_body_that_catches_step_failed_does_not_disable_retries():
    fn = Flaky(ValueError("one"))

    @workflow(name="t.catching")
    def catching(ctx):
        try:
            return ctx.step("flaky", step(fn, retry=EXACT))
        except Exception:
            return ctx.step("fallback", lambda: "fallback")

    run = catching.start()
    run_until_idle(run)
    wait(run, 11)

    assert (run.result, fn.calls) == ("ok", 2)


def test_a_used_up_step_raises_the_same_step_failed_on_every_replay_and_is_never_called_again():
    fn = Flaky(*[ValueError(f"no {n}") for n in range(5)])
    caught = []

    @workflow(name="t.used_up")
    def used_up(ctx):
        try:
            ctx.step("charge", step(fn, retry=EXACT))
        except StepFailed as failed:
            told = (failed.step, failed.type, failed.message, failed.attempts)
            caught.append((told, str(failed), failed.args))
        ctx.sleep(60)
        ctx.sleep(60)
        return "done"

    run = used_up.start()
    run_until_idle(run)
    for _ in range(4):
        wait(run, 120)

    told = ("charge", "ValueError", "no 2", 3)
    text = "Step 'charge' failed after 3 attempts: ValueError: no 2"
    assert caught == [(told, text, told)] * 3
    assert (run.result, fn.calls) == ("done", 3)
    failed = run.steps.get(key="charge")
    assert (failed.status, failed.attempts, failed.result) == ("failed", 3, None)
    assert failed.error["traceback"].endswith("ValueError: no 2\n")
    assert failed.finished_at is not None


def test_an_uncaught_step_failed_fails_the_run_with_the_functions_traceback():
    run = start(Flaky(NonRetryableError("declined")))

    assert run.status == "failed"
    assert run.error["type"] == "StepFailed"
    assert run.error["message"] == (
        "Step 'flaky' failed after 1 attempt: NonRetryableError: declined"
    )
    assert "in __call__" in run.error["traceback"]


def test_non_retryable_error_gives_up_at_once():
    fn = Flaky(NonRetryableError("declined"))
    run = start(fn, retry=EXACT)

    assert (run.status, fn.calls) == ("failed", 1)


@pytest.mark.parametrize("kind", [LookupError, "KeyError", "LookupError", "builtins.LookupError"])
def test_a_type_that_the_policy_names_gives_up_at_once(kind):
    fn = Flaky(KeyError("gone"))
    run = start(fn, retry=RetryPolicy(non_retryable=(kind,)))

    assert (run.status, fn.calls) == ("failed", 1)


def test_retry_after_names_the_next_try_and_counts_as_an_attempt():
    fn = Flaky(RetryAfter(timedelta(minutes=5), "busy"), RetryAfter(60), RetryAfter(60))
    run = start(fn, retry=EXACT)

    assert run.steps.get().error["message"] == "busy"
    wait(run, 299)
    assert fn.calls == 1
    wait(run, 2)
    assert fn.calls == 2
    wait(run, 61)

    assert (run.status, fn.calls) == ("failed", 3)
    assert run.error["message"] == (
        "Step 'flaky' failed after 3 attempts: RetryAfter: try again after 0:01:00"
    )


def test_retry_after_goes_before_a_type_that_the_policy_gives_up_on():
    fn = Flaky(RetryAfter(60))
    run = start(fn, retry=RetryPolicy(non_retryable=(Exception,)))
    wait(run, 61)

    assert (run.status, fn.calls) == ("completed", 2)


# https://github.com/procrastinate-org/procrastinate/issues/1462
def test_two_thousand_attempts_never_overflow_and_stay_under_the_cap():
    policy = RetryPolicy(
        max_attempts=2000, initial_interval=1, backoff=5, max_interval=timedelta(hours=1)
    )
    fn = Flaky(ValueError("first"), ValueError("last"))
    run = start(fn, retry=policy)
    # As if 1,998 attempts had failed already: so many real ones would only take time.
    run.steps.update(attempts=1998)
    wait(run, 2)
    waiting = run.steps.get()

    assert (run.status, waiting.attempts) == ("suspended", 1999)
    delay = waiting.wake_at - waiting.started_at
    assert timedelta(0) <= delay <= timedelta(seconds=3601)
    assert all(0 <= policy.delay(n) <= 3600 for n in range(1, 2001))
    wait(run, 3601)
    assert (run.status, run.steps.get().attempts) == ("completed", 2000)


def test_without_a_limit_a_step_is_tried_again_for_ever():
    fn = Flaky(*[ValueError("no")] * 30)
    run = start(fn, retry=RetryPolicy(max_attempts=0, initial_interval=0))
    wait(run, 1)

    assert (run.status, fn.calls) == ("completed", 31)


def test_the_default_is_ten_attempts():
    fn = Flaky(*[ValueError("no")] * 20)
    run = start(fn)
    for _ in range(12):
        wait(run, 101)

    assert (run.status, fn.calls) == ("failed", 10)


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), GeneratorExit("closed"), asyncio.CancelledError("canceled")],
    ids=["SystemExit", "GeneratorExit", "CancelledError"],
)
def test_what_is_no_exception_by_class_but_one_by_use_fails_the_attempt_too(error):
    fn = Flaky(error)
    run = start(fn, retry=RetryPolicy(max_attempts=1))

    assert run.status == "failed"
    assert run.error["message"] == (
        f"Step 'flaky' failed after 1 attempt: {type(error).__name__}: {error}"
    )


def test_a_crash_of_the_worker_in_a_step_counts_as_an_attempt():
    deaths = [WorkerDied(), WorkerDied()]
    fn = Flaky(*deaths)

    @workflow(name="t.deadly")
    def deadly(ctx):
        try:
            return ctx.step("flaky", step(fn, retry=RetryPolicy(max_attempts=2)))
        except StepFailed as failed:
            return [failed.type, failed.message, failed.attempts]

    run = deadly.start()
    execute_until_death(run)
    execute_until_death(run)
    run_until_idle(run)

    assert fn.calls == 2
    assert run.result == ["WorkerDied", "the worker died in the step's last attempt", 2]


def test_a_step_with_one_attempt_is_not_called_again_after_a_crash_in_it():
    fn = Flaky(WorkerDied())

    @workflow(name="t.single")
    def single(ctx):
        ctx.step("flaky", step(fn, retry=RetryPolicy(max_attempts=1)))

    run = single.start()
    execute_until_death(run)
    run_until_idle(run)

    assert (run.status, fn.calls) == ("failed", 1)


def test_a_message_does_not_hurry_a_run_that_waits_for_a_retry():
    fn = Flaky(ValueError("one"))
    run = start(fn, retry=EXACT)
    due = run.available_at
    send_message(run, "flaky")
    run_until_idle(run)

    assert (fn.calls, run.status, run.available_at) == (1, "suspended", due)


def test_a_retry_leaves_the_runs_own_attempts_alone():
    run = start(Flaky(ValueError("one")), retry=EXACT)
    wait(run, 11)

    assert WorkflowRun.objects.get(pk=run.pk).attempts == 1
