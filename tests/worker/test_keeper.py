"""The process that keeps a worker's lease while the worker can't."""

import os
import signal
import subprocess
import sys
from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from django_workflows.models import WorkflowWorker
from django_workflows.store import leases
from django_workflows.worker.heartbeat import start_keeper
from django_workflows.worker.keeper import is_running
from tests.waiting import eventually

LEASE = timedelta(seconds=1)


@pytest.fixture
def worker_id(transactional_db):
    worker_id = uuid4()
    leases.register_worker(
        worker_id, name="w", host="h", pid=os.getpid(), queues=[], pairs=[], lease=LEASE
    )
    return worker_id


@pytest.fixture
def keeper(worker_id):
    keeper = start_keeper(worker_id, LEASE)
    yield keeper
    keeper.stdin.close()
    assert keeper.wait(10) == 0


def lease_until(worker_id):
    return WorkflowWorker.objects.get(pk=worker_id).lease_until


def test_a_silent_workers_lease_is_put_off(keeper, worker_id):
    first = lease_until(worker_id)

    eventually(lambda: lease_until(worker_id) > first)
    second = lease_until(worker_id)
    eventually(lambda: lease_until(worker_id) > second)

    # Far from what a wrong unit or time zone would make of it.
    assert lease_until(worker_id) < timezone.now() + timedelta(seconds=2)


def test_the_lease_of_a_worker_that_has_stopped_stays_ended(keeper, worker_id):
    first = lease_until(worker_id)
    eventually(lambda: lease_until(worker_id) > first)
    leases.stop_worker(worker_id)
    ended = lease_until(worker_id)

    # Several of its turns, each of which would renew.
    eventually(lambda: timezone.now() > ended + 2 * LEASE)
    assert lease_until(worker_id) == ended


def test_it_ends_when_the_worker_closes_the_pipe(worker_id):
    keeper = start_keeper(worker_id, LEASE)
    keeper.stdin.close()
    assert keeper.wait(10) == 0


def test_it_ends_before_it_was_told_anything():
    script = "import django_workflows.worker.keeper as k; k.main()"
    ended = subprocess.run([sys.executable, "-c", script], stdin=subprocess.DEVNULL, timeout=20)
    assert ended.returncode == 0


def test_a_stopped_process_is_not_running_and_neither_is_one_that_has_ended():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert is_running(child.pid)
        os.kill(child.pid, signal.SIGSTOP)
        eventually(lambda: not is_running(child.pid))
        os.kill(child.pid, signal.SIGCONT)
        eventually(lambda: is_running(child.pid))
        child.kill()
        eventually(lambda: not is_running(child.pid))
    finally:
        child.kill()
        child.communicate()
    assert not is_running(child.pid)
