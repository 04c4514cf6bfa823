"""One attempt: bounded in time, and kept apart from the caller's writes."""

import threading
import time
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction

from django_workflows import RetryPolicy, StepFailed, step, workflow
from django_workflows.models import WorkflowRun
from django_workflows.runtime import attempts
from django_workflows.testing import advance, run_until_idle
from tests.lab.models import Thing

ONCE = RetryPolicy(max_attempts=1)


def spin():
    """Python code that never ends by itself."""
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        pass
    return "not stopped"


def test_without_a_timeout_a_function_is_called_in_the_callers_thread():
    assert attempts.call(threading.get_ident, None) == threading.get_ident()


@pytest.mark.django_db
def test_a_function_within_its_timeout_gives_its_result_or_its_own_error():
    def fail():
        raise LookupError("gone")

    assert attempts.call(lambda: 7, 30) == 7
    with pytest.raises(LookupError, match=r"^gone$"):
        attempts.call(fail, 30)


@pytest.mark.django_db
def test_an_attempt_that_takes_longer_is_stopped():
    stopped = []

    def work():
        try:
            spin()
        except attempts.StepTimeout:
            stopped.append(threading.current_thread())
            raise

    with pytest.raises(attempts.StepTimeout) as caught:
        attempts.call(work, 0.05)

    assert str(caught.value) == "the attempt took longer than its timeout of 0.05 s"
    assert len(stopped) == 1
    assert not stopped[0].is_alive()


@pytest.mark.django_db
def test_an_attempt_that_cannot_be_stopped_is_left_to_itself(monkeypatch):
    monkeypatch.setattr(attempts, "GRACE", 0.05)
    go_on = threading.Event()
    threads = []

    def native():
        threads.append(threading.current_thread())
        # A lock held in C notices no exception until it is released.
        go_on.wait(30)

    with pytest.raises(attempts.StepTimeout):
        attempts.call(native, 0.05)

    go_on.set()
    threads[0].join(30)
    assert not threads[0].is_alive()


@pytest.mark.django_db
@pytest.mark.parametrize("atomic", [False, True], ids=["plain", "atomic"])
def test_a_step_past_its_timeout_is_tried_again_and_then_fails(atomic):
    calls = []

    def slow():
        calls.append(1)
        Thing.objects.create(name="slow")
        spin()

    @workflow(name="t.slow")
    def slowly(ctx):
        policy = RetryPolicy(max_attempts=2, initial_interval=10)
        ctx.step("slow", step(slow, timeout=0.05, retry=policy, atomic=atomic))

    run = slowly.start()
    run_until_idle(run)
    assert (run.status, len(calls)) == ("suspended", 1)
    advance(timedelta(seconds=11))
    run_until_idle(run)

    assert (run.status, len(calls)) == ("failed", 2)
    assert run.error["message"] == (
        "Step 'slow' failed after 2 attempts: StepTimeout: the attempt took longer than its "
        "timeout of 0.05 s"
    )
    assert Thing.objects.count() == (0 if atomic else 2)


@pytest.mark.django_db
def test_a_bounded_step_works_in_the_runs_transaction():
    @step(timeout=timedelta(seconds=30), atomic=True)
    def mark():
        return Thing.objects.create(name="paid").pk

    @workflow(name="t.bounded")
    def bounded(ctx):
        return ctx.step("mark", mark)

    run = bounded.start()
    run_until_idle(run)

    assert run.result == Thing.objects.get().pk


@pytest.mark.django_db(transaction=True)
def test_a_bounded_step_commits_with_its_record_outside_a_callers_transaction():
    @step(timeout=timedelta(seconds=30), atomic=True, retry=ONCE)
    def mark():
        Thing.objects.create(name="paid")
        raise ValueError("declined")

    @workflow(name="t.bounded")
    def bounded(ctx):
        ctx.step("mark", mark)

    run = bounded.start()
    run_until_idle(run)

    assert run.status == "failed"
    assert not Thing.objects.exists()
    assert not connection.in_atomic_block


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["database error", "broken block", "marked for rollback"])
def test_a_step_that_breaks_its_transaction_does_not_spoil_the_callers(kind):
    def breaks():
        Thing.objects.create(name="lost")
        if kind == "marked for rollback":
            transaction.set_rollback(True)
            raise ValueError("broken")
        if kind == "broken block":
            with transaction.atomic(savepoint=False):
                raise ValueError("broken")
        thing = Thing.objects.create(name="twice")
        Thing.objects.bulk_create([Thing(pk=thing.pk, name="again")])

    @workflow(name="t.broken")
    def broken(ctx):
        try:
            ctx.step("breaks", step(breaks, retry=ONCE))
        except StepFailed as failed:
            return failed.type

    Thing.objects.create(name="kept")
    run = broken.start()
    run_until_idle(run)

    assert run.result == (IntegrityError if kind == "database error" else ValueError).__name__
    assert [thing.name for thing in Thing.objects.all()] == ["kept"]
    assert WorkflowRun.objects.get(pk=run.pk).status == "completed"


@pytest.mark.django_db
def test_what_a_failing_step_wrote_itself_stays_as_it_would_in_a_worker():
    def writes():
        Thing.objects.create(name="kept")
        raise ValueError("no")

    @workflow(name="t.writes")
    def writing(ctx):
        ctx.step("writes", step(writes, retry=ONCE))

    run = writing.start()
    run_until_idle(run)

    assert run.status == "failed"
    assert Thing.objects.count() == 1
