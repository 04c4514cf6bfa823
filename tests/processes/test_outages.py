"""The database goes away and comes back; workers stay.

Public reports: https://github.com/dbos-inc/dbos-transact-py/issues/716,
https://github.com/Koed00/django-q/issues/486, https://github.com/laravel/framework/pull/48517
"""

import os
import time

import pytest
from django.db import connection

from django_workflows.models import WorkflowRun
from tests import server
from tests.lab import workflows as lab
from tests.processes.conftest import other_backends
from tests.waiting import eventually

pytestmark = pytest.mark.postgresql("SQLite has no server that goes away")

needs_own_server = pytest.mark.skipif(
    server.DIRECTORY not in os.environ, reason="stops the server, so it must be the tests' own"
)


def outages(worker):
    return worker.output().count("database.away")


def assert_all_completed(runs, steps):
    for run in runs:
        ended = run.wait(90)
        assert (ended.status, ended.result) == ("completed", list(range(steps))), ended.error
        assert run.steps.count() == steps
        assert set(run.steps.values_list("status", flat=True)) == {"completed"}


def test_runs_survive_the_end_of_every_connection_again_and_again(start_worker):
    workers = [start_worker("--lease", "10") for _ in range(2)]
    pids = {worker.pid for worker in workers}

    def cut(count):
        for _ in range(count):
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s) pid", [victims()])
            give_up = time.monotonic() + 0.5
            eventually(lambda give_up=give_up: time.monotonic() > give_up)

    def victims():
        return eventually(other_backends)

    cut(1)
    runs = [lab.steps.start(count=5, seconds=0.05) for _ in range(50)]
    cut(10)

    assert_all_completed(runs, 5)
    assert {worker.row().pid for worker in workers} == pids
    assert WorkflowRun.objects.filter(crashes__gt=0).count() == 0
    for worker in workers:
        assert worker.stop() == 0, worker.output()


def test_runs_survive_a_database_that_is_read_only_for_a_while(start_worker):
    """Public report: https://github.com/laravel/framework/pull/48517"""
    workers = [start_worker("--lease", "30") for _ in range(2)]
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = off")
        runs = [lab.steps.start(count=5, seconds=0.1) for _ in range(30)]
        try:
            cursor.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            cursor.execute("SELECT pg_reload_conf()")
            eventually(lambda: all(outages(worker) >= 5 for worker in workers), timeout=40)
        finally:
            cursor.execute("ALTER SYSTEM RESET default_transaction_read_only")
            cursor.execute("SELECT pg_reload_conf()")

    assert_all_completed(runs, 5)
    for worker in workers:
        assert worker.stop() == 0, worker.output()


@needs_own_server
def test_a_worker_waits_for_a_database_that_is_away_when_it_starts(start_worker):
    run = lab.steps.start(count=2)
    server.stop()
    try:
        worker = start_worker(wait=False)
        eventually(lambda: outages(worker) >= 3)
        assert worker.process.poll() is None
    finally:
        server.start()
        connection.close()

    assert run.wait(30).result == [0, 1]
    assert worker.stop() == 0, worker.output()


@needs_own_server
def test_a_worker_goes_on_after_the_server_crashed(start_worker):
    worker = start_worker()
    runs = [lab.steps.start(count=5, seconds=0.1) for _ in range(20)]
    eventually(lambda: runs[0].steps.exists())
    server.stop(immediate=True)
    try:
        eventually(lambda: outages(worker) >= 3)
    finally:
        server.start()
        connection.close()

    assert_all_completed(runs, 5)
    assert worker.stop() == 0, worker.output()


@needs_own_server
def test_a_worker_can_be_stopped_while_the_database_is_away(start_worker):
    worker = start_worker()
    server.stop(immediate=True)
    try:
        eventually(lambda: outages(worker) >= 2)
        assert worker.stop() == 0, worker.output()
    finally:
        server.start()
        connection.close()
