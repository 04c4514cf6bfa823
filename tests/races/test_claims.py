"""Claims at once, and writes of a worker that has lost its claim without knowing."""

import json
import signal
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import transaction

from django_workflows import resume, send_message
from django_workflows.db.dialects import dialect
from django_workflows.models import WorkflowRun, WorkflowWorker
from django_workflows.store import leases, locks
from django_workflows.telemetry import subscribed
from django_workflows.testing import advance, run_until_idle
from tests.claiming import claim, claim_batch
from tests.lab import workflows as lab
from tests.lab.models import Effect
from tests.waiting import Background, in_threads

pytestmark = pytest.mark.django_db(transaction=True)

row_locks = pytest.mark.postgresql("on SQLite a second writer waits for the whole transaction")


def claim_until_none(limit=7):
    claimed = []
    while batch := claim_batch(limit):
        claimed += [each.run_id for each in batch]
    return claimed


def test_claims_at_once_never_overlap_and_miss_nothing():
    expected = sorted(lab.steps.start().pk for _ in range(200))

    taken = in_threads(*[claim_until_none] * 4)

    assert sorted(run_id for claims in taken for run_id in claims) == expected
    assert set(WorkflowRun.objects.values_list("claim_count", flat=True)) == {1}


def test_claims_of_processes_never_overlap_and_miss_nothing(call_process):
    expected = sorted(str(lab.steps.start().pk) for _ in range(200))
    workers = [call_process("tests.lab.races:claim_all", 7) for _ in range(3)]
    taken = [json.loads(worker.communicate(timeout=60)[0]) for worker in workers]

    assert sorted(run_id for claims in taken for run_id in claims) == expected


def test_of_claims_of_one_run_at_once_one_gets_it():
    for _ in range(20):
        run = lab.steps.start()
        claims = in_threads(*[lambda run=run: leases.claim_one(run.pk, None)] * 4)
        assert sum(claimed is not None for claimed in claims) == 1


@row_locks
def test_a_claim_skips_locked_runs_instead_of_waiting():
    first, second = lab.steps.start(), lab.steps.start()
    with locks.locked_run(dialect(), first.pk, "for_no_key_update"):
        taken = Background(claim_batch).result(10)
    assert [claimed.run_id for claimed in taken] == [second.pk]


@row_locks
def test_a_run_with_an_open_send_is_claimed():
    run = lab.steps.start()
    with transaction.atomic():
        send_message(run, "note")
        taken = Background(claim_batch).result(10)
    assert [claimed.run_id for claimed in taken] == [run.pk]


def test_of_workers_that_find_a_dead_one_at_once_one_takes_its_run_over():
    for _ in range(10):
        run = lab.steps.start()
        claim(run, uuid4())
        in_threads(*[leases.take_over_dead] * 4)
        run.refresh_from_db()
        assert (run.status, run.crashes) == ("pending", 1)
        claim(run)


@row_locks
def test_a_workers_loop_never_waits_for_the_open_send_of_an_overdue_or_poisoned_run():
    overdue = lab.wait_once.using(deadline=timedelta(seconds=1)).start()
    poisoned = lab.steps.start()
    claim(poisoned, uuid4())
    WorkflowRun.objects.filter(pk=poisoned.pk).update(crashes=4)
    advance(timedelta(seconds=2))

    with transaction.atomic():
        send_message(overdue, "go")
        send_message(poisoned, "go")
        assert Background(leases.fail_overdue).result(10) == 0
        assert Background(leases.take_over_dead).result(10) == 0

    assert (leases.fail_overdue(), leases.take_over_dead()) == (1, 1)
    for run in (overdue, poisoned):
        run.refresh_from_db()
        assert (run.status, run.messages.count()) == ("failed", 1)


@row_locks
def test_a_take_over_skips_a_run_whose_dead_worker_still_holds_its_lock():
    run = lab.steps.start()
    claim(run, uuid4())
    with locks.locked_run(dialect(), run.pk, "for_no_key_update"):
        assert Background(leases.take_over_dead).result(10) == 0
    assert leases.take_over_dead() == 1


def taken_over_at(event, run):
    """Have the run taken over and executed to its end by another worker at the event, once."""
    seen = []

    def take_over():
        leases.stop_worker(WorkflowWorker.objects.get(stopped_at=None).pk)
        assert leases.take_over_dead() == 1
        run_until_idle(run)

    def listen(event, fields):
        if not seen:
            seen.append(event)
            Background(take_over).result()

    return subscribed(event, listen)


def test_a_zombies_step_result_is_thrown_away():
    run = lab.steps.start(count=1)
    with taken_over_at("record.writing", run):
        done = resume(run)

    assert (done.status, done.result, done.steps.count()) == ("completed", [0], 1)
    # Its function was called twice: only an atomic step undoes what it did.
    assert Effect.objects.filter(run=run.pk).count() == 2


@row_locks
def test_a_zombies_atomic_step_leaves_nothing_behind():
    run = lab.atomic_steps.start(count=1)
    with taken_over_at("record.writing", run):
        done = resume(run)

    assert (done.status, done.result, done.steps.count()) == ("completed", [0], 1)
    assert Effect.objects.filter(run=run.pk).count() == 1


def test_a_zombie_does_not_park_a_run_that_has_ended_elsewhere():
    run = lab.wait_once.start()

    def send_and_take_over():
        send_message(run, "go", "for the other")
        leases.stop_worker(WorkflowWorker.objects.get(stopped_at=None).pk)
        assert leases.take_over_dead() == 1
        run_until_idle(run)

    with subscribed("run.parking", lambda *_: Background(send_and_take_over).result()):
        done = resume(run)

    assert (done.status, done.result) == ("completed", {"data": "for the other"})
    assert done.steps.get().status == "completed"


# https://github.com/veryfront/veryfront-code/pull/4159
@pytest.mark.parametrize("event", ["message.consumed:1", "step.recorded:1"])
def test_a_wait_gets_the_same_message_after_its_worker_was_killed(start_worker, event):
    run = lab.wait_many.start(count=1)
    send_message(run, "go", "m1")
    send_message(run, "go", "m2")
    killed = start_worker("--lease", "1", LAB_KILL=event, wait=False)
    assert killed.process.wait(30) == -signal.SIGKILL
    start_worker("--poll-interval", "0.1")

    assert run.wait(20).result == ["m1"]
    assert [message.data for message in run.messages.pending()] == ["m2"]
    assert [message.data for message in run.messages.consumed()] == ["m1"]
