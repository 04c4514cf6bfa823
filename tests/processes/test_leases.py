"""Leases: kept by workers that are busy, lost by those that are stopped."""

import signal

import pytest

from django_workflows.models import WorkflowWorker
from tests.lab import workflows as lab
from tests.processes.conftest import effects, wait_for_mark
from tests.waiting import eventually


def test_a_worker_that_stood_still_changes_nothing_of_the_run_that_another_has_completed(
    start_worker, held_run, go
):
    """Public report: https://github.com/brendanlong/lion-reader/pull/917"""
    run = held_run()
    zombie = start_worker("--lease", "1")
    wait_for_mark(run, "first")
    zombie.send(signal.SIGSTOP)

    healthy = start_worker("--lease", "1")
    wait_for_mark(run, "first", 2)
    go.touch()
    assert run.wait(20).result == "done"
    record = list(run.steps.order_by("seq").values())
    run.refresh_from_db()
    ended = (run.status, run.result, run.finished_at)

    zombie.send(signal.SIGCONT)
    eventually(lambda: f"lease.lost run={run.pk}" in zombie.output())
    run.refresh_from_db()
    assert list(run.steps.order_by("seq").values()) == record
    assert (run.status, run.result, run.finished_at) == ended
    assert effects(run) == {"first": 2, "first-done": 2, "second": 1, "third": 1}

    assert healthy.stop() == 0
    assert lab.steps.start(count=1).wait(20).result == [0]
    assert zombie.stop() == 0


def test_a_run_is_taken_over_from_a_killed_worker_whose_row_was_deleted(start_worker, held_run, go):
    """Public report: https://github.com/procrastinate-org/procrastinate/issues/1518"""
    run = held_run()
    killed = start_worker("--lease", "600")
    wait_for_mark(run, "first")
    killed.kill()
    WorkflowWorker.objects.filter(pid=killed.pid).delete()
    go.touch()

    start_worker()

    assert run.wait(20).result == "done"
    assert effects(run) == {"first": 2, "first-done": 1, "second": 1, "third": 1}


def test_a_living_worker_whose_row_was_deleted_registers_again(start_worker):
    worker = start_worker("--lease", "1")
    WorkflowWorker.objects.all().delete()

    eventually(worker.row)
    assert lab.steps.start(count=1).wait(20).result == [0]


@pytest.mark.parametrize("hows", [("sleep", "spin"), ("hold",)], ids=["yielding", "holding"])
def test_a_step_of_several_leases_is_executed_once(start_worker, hows):
    """Renewed from outside the step, also where it holds the interpreter lock.

    Public report: https://github.com/gagan114662/openbot/issues/95
    """
    runs = [lab.busy.start(seconds=6, how=how) for how in hows]
    workers = [start_worker("--lease", "2") for _ in range(2)]

    for run in runs:
        assert run.wait(30).status == "completed"
        assert sum(effects(run).values()) == 1
        run.refresh_from_db()
        assert (run.attempts, run.claim_count, run.crashes) == (1, 1, 0)
        assert run.steps.get().attempts == 1
    assert not any("lease.lost" in worker.output() for worker in workers)
