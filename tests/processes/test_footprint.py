"""What a worker takes: memory, connections.

Public reports: https://github.com/procrastinate-org/procrastinate/issues/1316,
https://github.com/django/django/pull/2772
"""

from django.db import connection

from django_workflows.models import WorkflowRun
from tests.lab import workflows as lab
from tests.processes.conftest import other_backends, resident_megabytes
from tests.waiting import eventually

CONCURRENCY = 4


def completed():
    return WorkflowRun.objects.filter(status="completed").count()


def test_a_worker_in_debug_mode_keeps_its_size_and_its_connections(start_worker, capsys):
    worker = start_worker("--concurrency", str(CONCURRENCY), LAB_DEBUG="1")
    # One that sleeps, so that the worker is never without a run.
    lab.nap.start(seconds=3600)

    def execute(count):
        before = completed()
        for _ in range(count):
            lab.steps.start(count=1)
        eventually(lambda: completed() == before + count, timeout=90)

    execute(150)
    early = resident_megabytes(worker.pid)
    execute(450)
    late = resident_megabytes(worker.pid)

    with capsys.disabled():
        print(f"\n{early:.0f} MB after 150 runs, {late:.0f} MB after 600")
    assert late - early < 15
    if connection.vendor == "postgresql":
        assert len(other_backends()) <= CONCURRENCY + 2
    assert worker.stop() == 0
    if connection.vendor == "postgresql":
        assert other_backends() == []
