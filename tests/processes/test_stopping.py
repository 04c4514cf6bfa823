"""A worker that is told to stop.

Public reports: https://github.com/RealOrangeOne/django-tasks/issues/149,
https://github.com/dbos-inc/dbos-transact-ts/issues/1200
"""

import os
import signal

import pytest

from tests.lab import workflows as lab
from tests.processes.conftest import (
    children_of,
    effects,
    is_alive,
    status_of,
    wait_for_mark,
    wait_until_parked,
)
from tests.waiting import eventually


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_worker_ends_the_current_step_and_the_next_worker_goes_on_after_it(
    start_worker, held_run, go, number
):
    asleep = [lab.nap.start(seconds=3600) for _ in range(5)]
    run = held_run()
    first = start_worker()
    wait_for_mark(run, "first")
    wait_until_parked(*asleep)

    first.send(number)
    go.touch()

    assert first.process.wait(20) == 0, first.output()
    assert effects(run) == {"first": 1, "first-done": 1}
    assert [s.status for s in run.steps.all()] == ["completed"]
    assert status_of(run) == "pending"
    assert first.row().stopped_at is not None

    # Its lease of half a minute is handed back, not waited for.
    start_worker()
    assert run.wait(15).result == "done"
    assert effects(run) == {"first": 1, "first-done": 1, "second": 1, "third": 1}


def test_a_second_signal_stops_at_once_and_the_run_is_taken_over_after_the_lease(
    start_worker, held_run, go
):
    run = held_run()
    first = start_worker("--lease", "1")
    keepers = children_of(first.pid)
    wait_for_mark(run, "first")

    first.send(signal.SIGTERM)
    first.send(signal.SIGINT)

    # Signals that wait together are handled in any order.
    assert first.process.wait(10) in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert status_of(run) == "running"
    eventually(lambda: not any(is_alive(pid) for pid in keepers))

    go.touch()
    start_worker("--lease", "1")
    assert run.wait(20).result == "done"
    assert effects(run) == {"first": 2, "first-done": 1, "second": 1, "third": 1}


def test_a_step_longer_than_the_shutdown_timeout_is_left_and_taken_over_without_the_lease(
    start_worker, held_run, go
):
    run = held_run()
    first = start_worker("--shutdown-timeout", "0.2", "--lease", "60")
    wait_for_mark(run, "first")

    assert first.stop() == 1
    assert "stops with runs still in a step" in first.output()

    go.touch()
    start_worker()
    assert run.wait(20).result == "done"


def test_a_worker_that_is_killed_leaves_no_process_behind(start_worker):
    worker = start_worker()
    keepers = eventually(lambda: children_of(worker.pid))

    worker.kill()

    eventually(lambda: not any(is_alive(pid) for pid in keepers))


def test_a_worker_that_stops_takes_its_keeper_along(start_worker):
    worker = start_worker()
    keepers = eventually(lambda: children_of(worker.pid))

    assert worker.stop() == 0

    assert not any(is_alive(pid) for pid in keepers)


def test_a_worker_whose_keeper_was_killed_says_so_and_goes_on(start_worker):
    worker = start_worker("--lease", "1")
    (keeper,) = eventually(lambda: children_of(worker.pid))

    os.kill(keeper, signal.SIGKILL)

    eventually(lambda: f"lease keeper (pid {keeper}) is gone" in worker.output())
    assert lab.steps.start(count=1).wait(10).status == "completed"
    assert worker.stop() == 0
