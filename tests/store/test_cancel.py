"""A canceled run ends at once, and only the first terminal status counts."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import transaction

from django_workflows import LeaseLost, RunFinished, RunNotFound, cancel, send_message
from django_workflows.models import WorkflowRun
from django_workflows.store import leases, recorder, runs
from django_workflows.testing import advance, run_until_idle
from tests.claiming import claim, entry, park, parked
from tests.lab import workflows as lab

pytestmark = pytest.mark.django_db


def finish(run, status="completed", **given):
    runs.finish(claim(run), status=status, **{"result": "null", "error": None, **given})
    run.refresh_from_db()
    return run


def as_stored(run):
    return WorkflowRun.objects.filter(pk=run.pk).values().get()


# https://github.com/mastra-ai/mastra/issues/17908
def test_a_sleeping_run_is_canceled_at_once_and_never_replayed():
    run = lab.nap.start(seconds=3600)
    run_until_idle(run)

    canceled = cancel(run, reason="no longer wanted")

    assert (canceled.status, canceled.available_at) == ("canceled", None)
    assert canceled.error == {"type": "Canceled", "message": "no longer wanted", "traceback": ""}
    advance(timedelta(hours=2))
    assert run_until_idle(run) == 0
    assert (run.status, run.steps.get(kind="sleep").status) == ("canceled", "waiting")


# https://github.com/mishrasanjeev/agentic-org/pull/290
def test_a_waiting_run_is_canceled_and_neither_a_message_nor_a_timeout_revives_it():
    run = lab.wait_once.start(timeout=60)
    run_until_idle(run)
    cancel(run)

    with pytest.raises(RunFinished, match="has already ended as 'canceled'; nothing was stored"):
        send_message(run, "go")
    advance(timedelta(hours=1))
    assert run_until_idle(run) == 0
    assert (run.status, run.waiting_for) == ("canceled", "")


def test_a_pending_run_is_canceled_before_its_body_begins():
    run = lab.steps.start()
    cancel(run)
    assert run_until_idle(run) == 0
    assert run.status == "canceled"


def test_a_second_cancel_is_no_error_and_keeps_the_first_reason():
    run = parked(lab.wait_once.start(), "go")
    first = cancel(run, reason="first")
    again = cancel(run, reason="second")

    assert (again.error["message"], again.finished_at) == ("first", first.finished_at)


@pytest.mark.parametrize("how", ["completed", "failed"])
def test_a_cancel_of_an_ended_run_says_so_each_time_and_changes_nothing(how):
    run = finish(lab.steps.start(), how)
    before = as_stored(run)

    for _ in range(2):
        with transaction.atomic(), pytest.raises(RunFinished) as raised:
            cancel(run)
        assert raised.value.status == how
    assert as_stored(run) == before


def test_a_cancel_of_an_unknown_run_is_an_error():
    with pytest.raises(RunNotFound):
        cancel(uuid4())


# https://github.com/PrefectHQ/prefect/issues/18942
def test_only_the_first_terminal_status_counts():
    run = lab.steps.start()
    claimed = claim(run)
    cancel(run)
    before = as_stored(run)

    with pytest.raises(LeaseLost):
        runs.finish(claimed, status="completed", result="1", error=None)
    with pytest.raises(LeaseLost):
        park(claimed, "go")
    with pytest.raises(LeaseLost):
        runs.retry_body(claimed, delay=0, forget_from=0)
    assert not runs.give_back(claimed)
    assert leases.take_over_dead() == 0
    assert leases.fail_overdue() == 0
    assert as_stored(run) == before


def test_another_attempt_of_a_canceled_runs_body_leaves_its_record():
    run = lab.steps.start()
    claimed = claim(run)
    recorder.record(claimed, entry(claimed))
    cancel(run)

    with pytest.raises(LeaseLost):
        runs.retry_body(claimed, delay=0, forget_from=0)
    assert run.steps.count() == 1


# https://github.com/PrefectHQ/prefect/issues/18942
def test_a_heartbeat_that_fails_after_the_end_changes_nothing():
    run = lab.steps.start()
    worker = uuid4()
    claimed = leases.claim_one(run.pk, worker)
    runs.finish(claimed, status="completed", result="1", error=None)
    before = as_stored(run)

    assert not leases.renew(worker, timedelta(seconds=30), [])
    leases.stop_worker(worker)
    assert leases.take_over_dead() == 0
    assert as_stored(run) == before
