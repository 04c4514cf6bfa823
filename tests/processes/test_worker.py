"""The real command on real connections."""

import signal

import pytest

from django_workflows import send_message
from tests.lab import workflows as lab
from tests.lab.models import Effect
from tests.waiting import eventually


def test_a_started_run_is_executed_by_a_worker_process(start_worker):
    run = lab.steps.start(count=3)
    start_worker()

    assert run.wait(20).result == [0, 1, 2]
    assert Effect.objects.filter(run=run.pk).count() == 3


def test_a_parked_run_is_woken_by_a_message(start_worker):
    start_worker()
    run = lab.wait_once.start()
    eventually(lambda: run.refresh_from_db() or run.status == "suspended")

    send_message(run, "go", {"n": 1})

    assert run.wait(10).result == {"data": {"n": 1}}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_worker_exits_with_zero(start_worker, number):
    assert start_worker().stop(number) == 0
