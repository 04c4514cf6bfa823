import os
import subprocess

import pytest
from django.db import connection

from django_workflows.models import WorkflowRun, WorkflowWorker
from tests.lab import workflows as lab
from tests.lab.models import Effect
from tests.waiting import eventually


def effects(run):
    """How often each of a run's functions was called."""
    counts = {}
    for name in Effect.objects.filter(run=str(run.pk)).values_list("name", flat=True):
        counts[name] = counts.get(name, 0) + 1
    return counts


def status_of(run):
    return WorkflowRun.objects.values_list("status", flat=True).get(pk=run.pk)


def wait_for_mark(run, name, count=1):
    eventually(lambda: effects(run).get(name, 0) >= count)


def wait_until_parked(*runs):
    eventually(lambda: {status_of(run) for run in runs} == {"suspended"})


def live_pids():
    """Processes of the workers that are registered and haven't stopped."""
    rows = WorkflowWorker.objects.filter(stopped_at=None)
    return {pid for pid in rows.values_list("pid", flat=True) if is_alive(pid)}


def _processes():
    told = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,state="], capture_output=True, text=True, check=True
    )
    for line in told.stdout.splitlines():
        pid, parent, state = line.split()
        # One that nobody has waited for yet is over all the same.
        if not state.startswith("Z"):
            yield int(pid), int(parent)


def is_alive(pid):
    return any(found == pid for found, _ in _processes())


def children_of(pid):
    return [found for found, parent in _processes() if parent == pid]


def resident_megabytes(pid):
    told = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True
    )
    return int(told.stdout) / 1024


def other_backends():
    """PostgreSQL's connections of all processes but this one, by id."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return [pid for (pid,) in cursor.fetchall()]


@pytest.fixture
def go(tmp_path):
    """A file that steps of `lab.held` wait for."""
    return tmp_path / "go"


@pytest.fixture
def held_run(go):
    return lambda: lab.held.start(path=os.fspath(go))
