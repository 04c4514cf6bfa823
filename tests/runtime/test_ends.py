"""Runs that end otherwise than by their body, and runs executed without a worker."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from django_workflows import (
    RetryPolicy,
    RunFinished,
    RunNotFound,
    cancel,
    resume,
    send_message,
    step,
    workflow,
)
from django_workflows.models import WorkflowRun
from django_workflows.testing import advance, run_until_idle

pytestmark = pytest.mark.django_db


def execute(body, **options):
    run = workflow(name="t.ended", **options)(body).start()
    run_until_idle(run)
    return run


def wake(run, seconds):
    advance(timedelta(seconds=seconds))
    run_until_idle(run)
    return run


def fail(ctx):
    raise LookupError("no such order")


# https://github.com/mastra-ai/mastra/issues/17908
# https://github.com/mishrasanjeev/agentic-org/pull/290
# https://github.com/PrefectHQ/prefect/issues/18942
@pytest.mark.parametrize("wait", ["sleep", "message", "retry", "pending"])
def test_a_canceled_run_ends_at_once_and_is_never_replayed(wait):
    calls = []

    def body(ctx):
        calls.append(1)
        if wait == "sleep":
            ctx.sleep(3600)
        elif wait == "retry":
            ctx.step("fails", fail, ctx)
        else:
            ctx.wait_for_message("go", timeout=60)
        return "done"

    run = workflow(name="t.canceled")(body).start()
    if wait != "pending":
        run_until_idle(run)
        assert run.status == "suspended"
    passes = len(calls)
    canceled = cancel(run, reason="no longer wanted")

    assert (canceled.pk, canceled.status) == (run.pk, "canceled")
    assert canceled.error == {
        "type": "Canceled",
        "message": "no longer wanted",
        "traceback": "",
    }
    for data in ("late", None):
        with pytest.raises(RunFinished, match=r" has already ended as 'canceled'; nothing was"):
            send_message(run, "go", data)
    wake(run, 7200)
    run_until_idle()
    again = cancel(str(run.pk), reason="again")

    assert len(calls) == passes
    assert (again.status, again.error, again.result) == ("canceled", canceled.error, None)
    assert again.finished_at == canceled.finished_at
    assert not run.messages.exists()


# https://github.com/PrefectHQ/prefect/issues/18942
@pytest.mark.parametrize("status", ["completed", "failed"])
def test_an_ended_run_stays_as_it_ended_however_often_it_is_canceled(status):
    run = execute(fail if status == "failed" else lambda ctx: "done")
    for _ in range(2):
        with pytest.raises(RunFinished) as caught:
            cancel(run.pk)
        assert caught.value.status == status
        assert (
            str(caught.value)
            == f"Run {run.pk} has already ended as {status!r}; nothing was stored."
        )
    before = (run.result, run.error, run.finished_at)
    run.refresh_from_db()

    assert (run.status, (run.result, run.error, run.finished_at)) == (status, before)


# https://github.com/mastra-ai/mastra/issues/17908
@pytest.mark.parametrize("run", [UUID(int=7), str(UUID(int=7)), "not an id"])
def test_canceling_an_unknown_run_says_so(run):
    with pytest.raises(RunNotFound) as caught:
        cancel(run)

    assert str(caught.value).startswith(f"There is no workflow run with id '{run}'.")


@pytest.mark.parametrize("atomic", [False, True], ids=["plain", "atomic"])
def test_a_run_canceled_in_a_step_records_that_step_and_takes_no_further_one(atomic):
    later = []

    def body(ctx):
        ctx.step("current", step(lambda: cancel(ctx.run_id).status, atomic=atomic))
        later.append("after")
        ctx.step("next", lambda: later.append("next"))

    run = execute(body)

    assert (run.status, later) == ("canceled", [])
    current = run.steps.get()
    assert (current.key, current.status, current.result) == ("current", "completed", "canceled")
    assert run.error["message"] == "canceled"


def test_a_run_canceled_in_its_last_step_stays_canceled():
    def body(ctx):
        try:
            ctx.step("current", lambda: cancel(ctx.run_id).status)
        except BaseException:
            return "done"

    assert execute(body).status == "canceled"


@pytest.mark.parametrize("wait", ["pending", "sleep", "message", "retry"])
def test_a_run_past_its_deadline_fails_whatever_it_waits_for(wait):
    calls = []

    @workflow(name="t.deadline", timeout=timedelta(hours=1))
    def body(ctx):
        calls.append(1)
        if wait == "sleep":
            ctx.sleep(7200)
        elif wait == "message":
            ctx.wait_for_message("go", timeout=7200)
        else:
            ctx.step("fails", step(fail, retry=RetryPolicy(initial_interval=3000)), ctx)

    run = body.start()
    assert abs(run.deadline_at - run.created_at - timedelta(hours=1)) < timedelta(seconds=1)
    if wait != "pending":
        run_until_idle(run)
    passes = len(calls)
    wake(run, 3601)

    assert (run.status, len(calls)) == ("failed", passes)
    assert run.error["type"] == "DeadlineExceeded"
    assert run.error["message"] == (
        f"Run {run.pk} wasn't done by its deadline {run.deadline_at.isoformat()}."
    )
    assert run.available_at is None


def test_a_deadline_of_the_start_goes_before_the_workflows_own():
    @workflow(name="t.deadline", timeout=timedelta(hours=1))
    def body(ctx):
        ctx.wait_for_message("go")

    when = timezone.now() + timedelta(hours=5)
    run = body.using(deadline=when).start()
    assert run.deadline_at == when
    wake(run, 3 * 3600)
    assert run.status == "suspended"
    wake(run, 3 * 3600)
    assert (run.status, run.error["type"]) == ("failed", "DeadlineExceeded")


def test_an_ended_run_is_not_failed_by_its_deadline():
    run = execute(lambda ctx: "done", timeout=60)
    wake(run, 3600)

    assert (run.status, run.result) == ("completed", "done")


def test_resume_executes_a_due_run_until_it_suspends_or_ends():
    @workflow(name="t.resumed")
    def body(ctx):
        ctx.step("one", lambda: None)
        ctx.sleep(60)
        return "done"

    run = body.start()
    assert resume(run).status == "suspended"
    assert resume(run.pk).claim_count == 1
    advance(timedelta(seconds=61))

    assert resume(str(run.pk)).result == "done"
    assert WorkflowRun.objects.get(pk=run.pk).status == "completed"


def test_resume_takes_a_message_that_no_worker_has_routed_yet():
    @workflow(name="t.resumed")
    def body(ctx):
        return ctx.wait_for_message("go").data

    run = body.start()
    resume(run)
    send_message(run, "go", 1)

    assert resume(run).result == 1


def test_resume_of_a_run_past_its_deadline_fails_it():
    @workflow(name="t.resumed", timeout=60)
    def body(ctx):
        return "done"

    run = body.start()
    advance(timedelta(seconds=61))

    assert resume(run).error["type"] == "DeadlineExceeded"
