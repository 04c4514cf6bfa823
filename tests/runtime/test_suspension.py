"""Suspension can't be swallowed, and `ctx` refuses to work where it can't."""

import logging
import threading
from contextlib import contextmanager, suppress
from datetime import timedelta

import pytest

from django_workflows import (
    WorkflowSuspended,
    is_workflow_suspended,
    send_message,
    step,
    workflow,
)
from django_workflows.testing import advance, run_until_idle

pytestmark = pytest.mark.django_db


class Counter:
    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1


def execute(body):
    run = workflow(name="t.suspension")(body).start()
    run_until_idle(run)
    return run


def swallowed(caplog):
    return [each for each in caplog.records if "suspension.swallowed" in each.getMessage()]


# https://github.com/aws/aws-durable-execution-sdk-java/pull/368
def test_except_exception_does_not_catch_the_suspension(caplog):
    fallback = Counter()

    def body(ctx):
        try:
            return ctx.wait_for_message("go").data
        except Exception:
            ctx.step("fallback", fallback)

    run = execute(body)
    assert (run.status, run.waiting_names, fallback.calls) == ("suspended", ["go"], 0)
    assert not swallowed(caplog)
    send_message(run, "go", 1)
    run_until_idle(run)

    assert (run.result, fallback.calls) == (1, 0)


# https://github.com/langchain-ai/langgraph/pull/1413
def test_a_bare_except_around_a_wait_does_nothing_durable_and_the_run_is_parked(caplog):
    after = Counter()
    caught = []

    def body(ctx):
        try:
            ctx.wait_for_message("go")
        except:  # noqa: E722 - what the case is about
            caught.append(1)
        ctx.step("after", after)
        return "done"

    run = execute(body)

    assert (run.status, run.waiting_names, after.calls) == ("suspended", ["go"], 0)
    assert caught == [1]
    assert [each.kind for each in run.steps.all()] == ["message"]
    # The step raised the suspension again, so it wasn't swallowed in the end.
    assert not swallowed(caplog)
    send_message(run, "go")
    run_until_idle(run)

    assert (run.result, after.calls) == ("done", 1)


@pytest.mark.parametrize("how", ["returns", "raises"])
def test_a_body_that_swallows_the_suspension_is_parked_all_the_same_with_a_warning(caplog, how):
    def body(ctx):
        try:
            ctx.wait_for_message("go")
        except BaseException:
            if how == "raises":
                raise ValueError("swallowed") from None
        return "done"

    run = execute(body)

    assert (run.status, run.result, run.error) == ("suspended", None, None)
    assert [each.levelno for each in swallowed(caplog)] == [logging.WARNING]
    assert str(run.pk) in swallowed(caplog)[0].getMessage()


# https://github.com/langchain-ai/langgraph/pull/1413
def test_a_wait_inside_a_users_retry_helper_is_not_counted_as_a_failed_try():
    tries = []

    def retried(fn):
        for n in range(3):
            tries.append(n)
            try:
                return fn()
            except Exception:
                continue

    def body(ctx):
        return retried(lambda: ctx.wait_for_message("go").data)

    run = execute(body)
    assert (run.status, tries) == ("suspended", [0])
    send_message(run, "go", 1)
    run_until_idle(run)

    assert (run.result, tries) == (1, [0, 0])


def test_every_call_after_the_suspension_raises_it_again_and_records_nothing():
    raised = []
    fn = Counter()

    def body(ctx):
        calls = [
            lambda: ctx.wait_for_message("go"),
            lambda: ctx.wait_for_message("other"),
            lambda: ctx.receive_message("other"),
            lambda: ctx.send_message(ctx.run_id, "go"),
            lambda: ctx.step("step", fn),
            lambda: ctx.sleep(0),
            lambda: ctx.sleep_until(None),
            lambda: ctx.now(),
            lambda: ctx.uuid4(),
            lambda: ctx.random(),
            lambda: ctx.patched("v2"),
            lambda: ctx.set_state(a=1),
        ]
        for call in calls:
            try:
                call()
            except BaseException as error:
                raised.append(error)

    run = execute(body)

    assert len(raised) == 12
    assert all(error is raised[0] for error in raised)
    assert is_workflow_suspended(raised[0])
    assert not isinstance(raised[0], Exception)
    assert str(raised[0]) == "The workflow is suspended until go."
    assert (run.state, fn.calls, run.messages.count()) == ({}, 0, 0)
    assert [each.kind for each in run.steps.all()] == ["message"]


def test_finally_and_exit_blocks_do_no_durable_work_while_unwinding():
    cleanup = Counter()

    @contextmanager
    def resource(ctx):
        try:
            yield
        finally:
            ctx.step("release", cleanup)

    def body(ctx):
        try:
            with resource(ctx):
                ctx.sleep(60)
        finally:
            ctx.step("cleanup", cleanup)

    run = execute(body)
    assert (run.status, cleanup.calls) == ("suspended", 0)
    advance(timedelta(seconds=61))
    run_until_idle(run)

    assert (run.status, cleanup.calls) == ("completed", 2)
    assert [each.key for each in run.steps.all()] == ["sleep:sleep", "release", "cleanup"]


def test_a_step_that_waits_for_its_retry_suspends_like_any_other_wait():
    after = Counter()

    def fail():
        raise ValueError("no")

    def body(ctx):
        with suppress(BaseException):
            ctx.step("fail", fail)
        ctx.step("after", after)

    run = execute(body)

    assert (run.status, after.calls) == ("suspended", 0)


def test_is_workflow_suspended_tells_it_from_anything_else():
    assert is_workflow_suspended(WorkflowSuspended("go"))
    assert not is_workflow_suspended(ValueError("go"))
    assert not is_workflow_suspended(None)


def test_a_body_that_raises_a_suspension_of_its_own_fails_rather_than_hangs():
    def body(ctx):
        raise WorkflowSuspended("nothing")

    run = execute(body)

    assert (run.status, run.error["type"]) == ("failed", "RuntimeError")
    assert run.error["message"] == "The workflow raised WorkflowSuspended by itself."


INSIDE = (
    "ctx was used inside the function of step 'outer' of run {}. A step's function does its work "
    "without the context; move the call into the workflow's body."
)
ELSEWHERE = (
    "ctx of run {} was used from another thread. Call it from the workflow's own thread, and "
    "hand plain values to others."
)
CALLS = [
    lambda ctx: ctx.step("inner", int),
    lambda ctx: ctx.sleep(1),
    lambda ctx: ctx.now(),
    lambda ctx: ctx.uuid4(),
    lambda ctx: ctx.random(),
    lambda ctx: ctx.patched("v2"),
    lambda ctx: ctx.set_state(a=1),
    lambda ctx: ctx.wait_for_message("go"),
    lambda ctx: ctx.receive_message("go"),
    lambda ctx: ctx.send_message(ctx.run_id, "go"),
]


@pytest.mark.parametrize("call", CALLS)
def test_ctx_inside_a_steps_function_is_a_clear_error_and_not_retried(call):
    def body(ctx):
        ctx.step("outer", call, ctx)

    run = execute(body)

    assert run.status == "failed"
    assert run.error["message"] == (
        f"Step 'outer' failed after 1 attempt: ContextMisuse: {INSIDE.format(run.pk)}"
    )
    assert (run.state, run.messages.count()) == ({}, 0)
    assert [each.key for each in run.steps.all()] == ["outer"]


def test_ctx_inside_a_function_with_a_timeout_is_a_clear_error_too():
    def body(ctx):
        ctx.step("outer", step(lambda: ctx.now(), timeout=30))

    run = execute(body)

    assert run.status == "failed"
    assert f"ctx of run {run.pk} was used from another thread" in run.error["message"]


@pytest.mark.parametrize("call", CALLS)
def test_ctx_from_another_thread_is_a_clear_error_and_harms_nothing(call):
    errors = []

    def body(ctx):
        def use():
            try:
                call(ctx)
            except Exception as error:
                errors.append(str(error))

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        return "done"

    run = execute(body)

    assert errors == [ELSEWHERE.format(run.pk)]
    assert (run.status, run.result, run.state) == ("completed", "done", {})
    assert not run.steps.exists()


def test_what_needs_no_database_can_be_read_anywhere():
    seen = []

    def body(ctx):
        def use():
            seen.append((ctx.run_id, ctx.workflow_id, ctx.input))

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        ctx.step("read", use)

    run = execute(body)

    assert run.status == "completed"
    assert seen == [(run.pk, str(run.pk), {})] * 2
