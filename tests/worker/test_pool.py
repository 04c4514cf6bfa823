"""The threads that execute claims."""

from uuid import uuid4

import pytest

from django_workflows.models import WorkflowRun
from django_workflows.store import leases
from django_workflows.worker.pool import Pool, Work
from tests.lab import workflows as lab
from tests.lab.models import Effect
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def start_pool():
    pools = []

    def start(size, begun=True):
        done = []
        pool = Pool(
            size,
            is_stopping=lambda: False,
            on_done=done.append,
            on_stray=lambda: done.append("stray"),
        )
        pool.done = done
        if begun:
            pools.append(pool)
            pool.start()
        return pool

    yield start
    for pool in pools:
        assert pool.close(10)


def work_on(run):
    claim = leases.claim_one(run.pk, uuid4())
    assert claim is not None
    return Work(claim, [])


def status_of(run):
    return WorkflowRun.objects.values_list("status", flat=True).get(pk=run.pk)


def test_claims_are_executed_and_told_as_done(start_pool):
    pool = start_pool(2)
    runs = [lab.steps.start(count=1) for _ in range(5)]

    pool.put([work_on(run) for run in runs])

    eventually(lambda: pool.done == [None] * 5)
    assert pool.is_idle
    assert {status_of(run) for run in runs} == {"completed"}


def test_a_run_that_parked_itself_is_told_with_the_time_when_it_is_due(start_pool):
    pool = start_pool(1)
    run = lab.nap.start(seconds=100)
    work = work_on(run)

    pool.put([work])

    eventually(lambda: pool.done)
    assert 90 < pool.done[0] - work.queued_at < 110


def test_a_claim_is_either_waiting_or_executed(start_pool, tmp_path):
    pool = start_pool(1)
    go = tmp_path / "go"
    runs = [lab.held.start(path=str(go)), *(lab.steps.start(count=1) for _ in range(2))]

    pool.put([work_on(run) for run in runs])
    eventually(lambda: Effect.objects.filter(name="first").exists())

    assert pool.load() == (1, 2)
    assert pool.run_ids() == {run.pk for run in runs}
    assert pool.slots[0].claim.run_id == runs[0].pk
    assert pool.slots[0].step == "first"

    assert [work.claim.run_id for work in pool.take_back()] == [run.pk for run in runs[1:]]
    assert pool.load() == (1, 0)
    go.touch()
    eventually(lambda: pool.is_idle)
    assert pool.slots[0].step is None


def test_what_has_waited_for_less_than_the_given_time_is_not_taken_back(start_pool):
    pool = start_pool(1, begun=False)
    old, new = work_on(lab.steps.start()), work_on(lab.steps.start())
    old.queued_at -= 10
    pool.put([old, new])

    assert pool.take_back(older_than=5) == [old]
    assert pool.load() == (0, 1)


def test_a_claim_of_an_unknown_workflow_is_given_back_and_the_thread_goes_on(start_pool, caplog):
    pool = start_pool(1)
    unknown, known = work_on(lab.steps.start(count=1)), work_on(lab.steps.start(count=1))
    unknown.claim.name = "no.such"

    pool.put([unknown, known])

    eventually(lambda: pool.done == [None] * 2)
    assert f"Run {unknown.claim.run_id} could not be executed." in caplog.text
    given_back = WorkflowRun.objects.get(pk=unknown.claim.run_id)
    assert (given_back.status, given_back.claim_token) == ("pending", None)
    assert WorkflowRun.objects.get(pk=known.claim.run_id).status == "completed"


def test_a_pool_closes_in_time_only_if_its_threads_do(start_pool, tmp_path):
    pool = start_pool(1)
    go = tmp_path / "go"
    pool.put([work_on(lab.held.start(path=str(go)))])
    eventually(lambda: Effect.objects.filter(name="first").exists())

    assert not pool.close(0.01)

    go.touch()
    assert pool.close(20)
