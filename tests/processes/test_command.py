"""`manage.py runworkflows` and its options, on real connections."""

import os
import signal

import pytest

from django_workflows import send_message
from django_workflows.models import WorkflowWorker
from tests.conftest import ROOT
from tests.lab import workflows as lab
from tests.lab.models import Effect
from tests.processes.conftest import (
    children_of,
    effects,
    is_alive,
    live_pids,
    status_of,
    wait_for_mark,
    wait_until_parked,
)
from tests.waiting import eventually


def test_a_started_run_is_executed_by_a_worker_process(start_worker):
    run = lab.steps.start(count=3)
    start_worker()

    assert run.wait(20).result == [0, 1, 2]
    assert sum(effects(run).values()) == 3


@pytest.mark.parametrize("listen", ["1", "0"], ids=["listening", "polling"])
def test_a_parked_run_is_woken_by_a_message(start_worker, listen):
    start_worker(LAB_LISTEN=listen)
    run = lab.wait_once.start()
    wait_until_parked(run)

    send_message(run, "go", {"n": 1})

    assert run.wait(10).result == {"data": {"n": 1}}


def test_a_step_is_stopped_at_its_timeout(start_worker):
    run = lab.late.start(seconds=30, timeout=0.3)
    start_worker()

    assert run.wait(20).result.rpartition(".")[2] == "StepTimeout"


def test_a_burst_does_what_is_due_and_ends(start_worker):
    runs = [lab.steps.start(count=2) for _ in range(10)]
    asleep = lab.nap.start(seconds=3600)
    worker = start_worker("--burst", wait=False)

    assert worker.process.wait(30) == 0, worker.output()
    assert {status_of(run) for run in runs} == {"completed"}
    assert status_of(asleep) == "suspended"


def test_a_burst_of_several_processes_ends_with_all_of_them(start_worker):
    runs = [lab.steps.start(count=2) for _ in range(10)]
    worker = start_worker("--burst", "--processes", "2", wait=False)

    assert worker.process.wait(30) == 0, worker.output()
    assert {status_of(run) for run in runs} == {"completed"}
    assert WorkflowWorker.objects.filter(stopped_at=None).count() == 0


def test_a_worker_of_one_queue_leaves_the_others_alone(start_worker):
    plain, slow = lab.steps.start(count=1), lab.on_slow_queue.start()
    mails = lab.steps.using(queue_name="mails").start(count=1)

    start_worker("--queue", "slow", "--queue", "mails")
    assert slow.wait(20).result == "slow"
    assert mails.wait(20).result == [0]
    assert status_of(plain) == "pending"

    start_worker("--burst", wait=False)
    assert plain.wait(20).result == [0]


def test_more_urgent_runs_go_first(start_worker):
    runs = {
        priority: lab.steps.using(priority=priority).start(count=1) for priority in (0, 5, -3, 10)
    }
    worker = start_worker("--burst", "--concurrency", "1", wait=False)
    assert worker.process.wait(30) == 0

    order = Effect.objects.order_by("pk").values_list("run", flat=True)
    assert list(order) == [str(runs[priority].pk) for priority in (10, 5, 0, -3)]


def test_a_run_of_an_unknown_workflow_waits_for_a_worker_that_knows_it(start_worker):
    """Public report: https://github.com/chrisguidry/docket/issues/437"""
    rare = lab.rare.start()
    old = start_worker("--poll-interval", "0.05", LAB_WITHOUT_RARE="1")
    for _ in range(10):
        assert lab.steps.start(count=1).wait(20).status == "completed"

    rare.refresh_from_db()
    assert (rare.status, rare.attempts, rare.claim_count) == ("pending", 0, 0)
    assert [lab.rare.definition.name, lab.rare.definition.version] not in old.row().workflows

    start_worker()
    assert rare.wait(20).result == "done"


def test_a_killed_worker_process_is_replaced_and_signals_are_passed_on(start_worker, held_run, go):
    supervisor = start_worker("--processes", "2", "--lease", "1", wait=False)
    killed = eventually(lambda: live_pids() if len(live_pids()) == 2 else None).pop()

    os.kill(killed, signal.SIGKILL)
    eventually(lambda: len(live_pids()) == 2 and killed not in live_pids())
    assert f"Worker process {killed} ended with -9; starting another." in supervisor.output()

    workers = live_pids()
    run = held_run()
    wait_for_mark(run, "first")
    supervisor.send(signal.SIGTERM)
    go.touch()
    assert supervisor.process.wait(20) == 0
    assert effects(run) == {"first": 1, "first-done": 1}
    assert not any(is_alive(pid) for pid in workers)


def test_a_supervisor_that_is_stopped_while_it_starts_ends(start_worker):
    supervisor = start_worker("--processes", "4", wait=False)
    eventually(lambda: children_of(supervisor.pid))

    assert supervisor.stop() == 0
    assert live_pids() == set()


def test_workers_stop_when_their_supervisor_was_killed(start_worker):
    """Its successor starts workers of its own."""
    supervisor = start_worker("--processes", "2", wait=False)
    eventually(lambda: len(live_pids()) == 2)

    supervisor.kill()

    eventually(lambda: WorkflowWorker.objects.exclude(stopped_at=None).count() == 2)
    eventually(lambda: live_pids() == set())


def test_a_worker_started_with_autoreload_hands_its_runs_back_before_it_restarts(
    start_worker, held_run, go, tmp_path
):
    watched = tmp_path / "sitecustomize.py"
    watched.write_text("")
    run = held_run()
    reloader = start_worker(
        *("--autoreload", "--lease", "60"),
        wait=False,
        # Only then Django's reloader tells what it does.
        LAB_DEBUG="1",
        PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}",
    )
    wait_for_mark(run, "first")
    (first,) = live_pids()

    def is_noticed():
        # Again and again: it isn't known when the reloader has taken its first look.
        if "changed, reloading" in reloader.output():
            return True
        later = watched.stat().st_mtime + 1
        return os.utime(watched, (later, later))

    eventually(is_noticed, pause=0.2)
    go.touch()

    assert run.wait(20).result == "done"
    assert effects(run) == {"first": 1, "first-done": 1, "second": 1, "third": 1}
    eventually(lambda: live_pids() and first not in live_pids())
    assert WorkflowWorker.objects.get(pid=first).stopped_at is not None
