import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from django.db import connection, connections

from django_workflows import testing
from django_workflows.registry import registry
from tests.waiting import eventually

ROOT = Path(__file__).parent.parent


def pytest_collection_modifyitems(items):
    vendor = connection.vendor
    for item in items:
        for other in ("postgresql", "sqlite"):
            marker = item.get_closest_marker(other)
            if marker is not None and other != vendor:
                item.add_marker(pytest.mark.skip(reason=f"{other} only: {marker.args[0]}"))


@pytest.fixture(autouse=True)
def _fresh_process():
    """The workflow clock and the registry as they were."""
    known = dict(registry._definitions)
    clashes = dict(registry._clashes)
    yield
    testing.reset_clock()
    registry._definitions = known
    registry._clashes = clashes


def database_url():
    """The test database, for processes of their own."""
    given = connections["default"].settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{given['NAME']}"
    host = quote(str(given["HOST"]), safe="")
    user, password = quote(given["USER"]), quote(given["PASSWORD"] or "")
    return f"postgres://{user}:{password}@{host}:{given['PORT']}/{given['NAME']}"


def process_environment(**more):
    return {
        **os.environ,
        "DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "default",
        **more,
    }


class WorkerProcess:
    """`manage.py runworkflows` on the test database."""

    def __init__(self, *arguments, log, **environment):
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "manage.py"), "runworkflows", *arguments],
                env=process_environment(**environment),
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A group of its own, so that none of its processes is left after the test.
                start_new_session=True,
            )

    @property
    def pid(self):
        return self.process.pid

    def kill(self):
        self.process.kill()
        self.process.wait(20)

    def clear(self):
        """Kill it and every process that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(20)

    def send(self, number):
        os.kill(self.pid, number)

    def stop(self, number=signal.SIGTERM, timeout=40):
        """Ask it to stop; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout)

    def row(self):
        from django_workflows.models import WorkflowWorker

        return WorkflowWorker.objects.filter(pid=self.pid).first()

    def wait_until_up(self):
        eventually(lambda: self.row() is not None or self._check_alive())
        return self

    def _check_alive(self):
        assert self.process.poll() is None, self.output()

    def output(self):
        return self.log.read_text(errors="replace")


@pytest.fixture
def start_worker(transactional_db, tmp_path):
    """Start worker processes; whatever is left of them is killed after the test."""
    started = []

    def start(*arguments, wait=True, **environment):
        log = tmp_path / f"worker-{len(started)}.log"
        worker = WorkerProcess(*arguments, log=log, **environment)
        started.append(worker)
        return worker.wait_until_up() if wait else worker

    yield start
    for worker in started:
        worker.clear()


@pytest.fixture
def call_process(transactional_db):
    """Start `module:function(*arguments)` in a process of its own."""
    started = []

    def call(target, *arguments):
        from django_workflows.payloads import dump_json

        process = subprocess.Popen(
            [sys.executable, "-m", "tests.lab.call", target, dump_json(list(arguments))],
            env=process_environment(),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield call
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
