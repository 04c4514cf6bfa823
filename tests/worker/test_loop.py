"""The main thread of a worker, in a thread of the test."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import OperationalError, connections
from django.db.backends.signals import connection_created

from django_workflows import telemetry
from django_workflows.models import WorkflowRun
from django_workflows.store import leases
from django_workflows.worker.loop import QUEUED_FOR
from tests.lab import workflows as lab
from tests.lab.models import Effect
from tests.waiting import eventually


def is_marked(run, name):
    return Effect.objects.filter(run=run.pk, name=name).exists()


def status_of(run):
    return WorkflowRun.objects.values_list("status", flat=True).get(pk=run.pk)


def test_a_worker_whose_threads_are_all_busy_sleeps_though_a_run_is_due(start_in_thread, tmp_path):
    go = tmp_path / "go"
    napping = lab.nap.start(seconds=0.5)
    worker = start_in_thread(concurrency=1, poll_seconds=0.2)
    eventually(lambda: status_of(napping) == "suspended")
    # As after long passes: nothing is claimed ahead.
    worker._pool.mean_seconds = 1.0
    holding = lab.held.start(path=str(go))
    eventually(lambda: is_marked(holding, "first"))

    begun = worker.looks
    turns = worker.turns
    eventually(lambda: worker.looks > begun + 8)
    assert worker.turns - turns < 10 * 8

    go.touch()
    assert holding.wait(20).status == napping.wait(20).status == "completed"


def test_runs_that_come_meanwhile_do_not_make_a_worker_forget_when_others_are_due(
    start_in_thread,
):
    worker = start_in_thread(poll_seconds=600)
    napping = [lab.nap.start(seconds=seconds) for seconds in (1.0, 1.3)]

    def begun(count):
        # A notification's work, which SQLite hasn't.
        worker._may_have_more = True
        worker._listener.wake()
        return Effect.objects.filter(name__in=["before", "step-0"]).count() == count

    eventually(lambda: begun(2))
    for n in range(5):
        lab.steps.start(count=1)
        eventually(lambda n=n: begun(3 + n))

    # Without the due times in mind the next look would be ten minutes away.
    assert [run.wait(20).status for run in napping] == ["completed"] * 2


def test_a_claim_whose_answer_was_lost_with_the_connection_is_given_back(start_in_thread):
    """The worker lives on, so its lease never ends: nobody else would take the run over.

    Public report: https://github.com/dbos-inc/dbos-transact-py/issues/716
    """
    run = lab.steps.start(count=1)
    failures = iter([OperationalError("server closed the connection unexpectedly")])

    def lose_answer(event, fields):
        for error in failures:
            raise error

    with telemetry.subscribed("runs.claimed", lose_answer):
        start_in_thread(poll_seconds=0.1)
        assert run.wait(20).status == "completed"

    run.refresh_from_db()
    assert run.steps.get().attempts == 1


@pytest.mark.postgresql("SQLite has no connection that breaks")
def test_a_claim_that_could_be_neither_executed_nor_given_back_is_given_back_later(
    start_in_thread,
):
    run = lab.nap.start(seconds=0.2)
    faults = iter([RuntimeError("a fault of ours")])

    def break_down(event, fields):
        for fault in faults:
            connections["default"].connection.close()
            raise fault

    with telemetry.subscribed("run.parking", break_down):
        start_in_thread(poll_seconds=0.1)
        assert run.wait(20).status == "completed"

    assert Effect.objects.filter(run=run.pk).count() == 2


def test_strays_are_released_without_a_crash_and_what_is_held_stays(db):
    worker_id = uuid4()
    held, stray, other = (lab.steps.start(count=1) for _ in range(3))
    for run, holder in ((held, worker_id), (stray, worker_id), (other, uuid4())):
        assert leases.claim_one(run.pk, holder) is not None

    assert leases.release_strays(worker_id, {held.pk}) == 0

    assert [status_of(run) for run in (held, stray, other)] == ["running", "pending", "running"]
    stray.refresh_from_db()
    assert stray.claim_token is None
    claim = leases.claim_one(stray.pk, worker_id)
    assert claim is not None
    assert claim.crashes == 0


def test_runs_claimed_ahead_of_long_steps_are_given_back_once_not_again_and_again(
    start_in_thread, tmp_path
):
    go = tmp_path / "go"
    worker = start_in_thread(concurrency=2, poll_seconds=0.1)
    eventually(lambda: worker._heartbeat._keeper)
    long = [lab.held.start(path=str(go)) for _ in range(2)]
    waiting = [lab.steps.start(count=1) for _ in range(2)]
    eventually(lambda: all(is_marked(run, "first") for run in long))

    # Long enough to give back five times.
    begun = worker.looks
    eventually(lambda: worker.looks > begun + 10 * QUEUED_FOR / 0.1)
    counts = WorkflowRun.objects.filter(pk__in=[run.pk for run in waiting])
    assert max(counts.values_list("claim_count", flat=True)) <= 2

    go.touch()
    assert {run.wait(20).status for run in (*long, *waiting)} == {"completed"}


@pytest.fixture
def statements():
    """Statements of all threads from here on."""
    sent = []

    def count(execute, sql, params, many, context):
        sent.append(sql)
        return execute(sql, params, many, context)

    def watch(connection, **kwargs):
        connection.execute_wrappers.append(count)

    connection_created.connect(watch)
    yield sent
    connection_created.disconnect(watch)


@pytest.mark.parametrize("has_unknown", [False, True], ids=["nothing due", "an unknown run due"])
def test_an_idle_worker_sends_at_most_two_statements_a_poll(
    start_in_thread, statements, has_unknown
):
    """Public report: https://github.com/camunda/camunda/pull/48998"""
    lab.nap.start(seconds=3600)
    if has_unknown:
        run = lab.steps.start()
        WorkflowRun.objects.filter(pk=run.pk).update(workflow_name="known.elsewhere")
    # No heartbeat comes in between.
    worker = start_in_thread(poll_seconds=0.02, lease=timedelta(hours=1))
    eventually(lambda: WorkflowRun.objects.filter(status="suspended").exists())
    eventually(lambda: worker._pool.is_idle and worker.looks > 5)

    looks, before = worker.looks, len(statements)
    eventually(lambda: worker.looks >= looks + 20)
    assert len(statements) - before <= 2 * (worker.looks - looks + 1)
