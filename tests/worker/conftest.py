from datetime import timedelta

import pytest
from django.db import connections

from django_workflows.worker.loop import Worker
from django_workflows.worker.options import WorkerOptions
from tests.waiting import Background


class CountingWorker(Worker):
    """Counts the rounds of its main thread, and those in which it asked the database."""

    turns = 0
    looks = 0

    def _turn(self):
        self.turns += 1
        super()._turn()

    def _look(self):
        self.looks += 1
        super()._look()


@pytest.fixture
def start_in_thread(transactional_db):
    """Start a worker in a thread of this process, where a test can look at it."""
    started = []

    def start(**options):
        options = {"concurrency": 2, "lease": timedelta(seconds=5), **options}
        worker = CountingWorker(WorkerOptions(**options))
        worker.thread = Background(worker.run)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        if not worker.thread.is_done:
            worker.stop()
        worker.thread.result()
    connections.close_all()
