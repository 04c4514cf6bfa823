"""Worker processes without the start of an interpreter."""

from datetime import timedelta

from django_workflows.worker import supervisor
from django_workflows.worker.options import WorkerOptions
from tests.lab import saga_flows, storm_flows  # noqa: F401 - their workflows are to be registered
from tests.lab.callers import configure


def migrate():
    """Make the tables of a database of its own."""
    from django.core.management import call_command

    call_command("migrate", run_syncdb=True, verbosity=0)


def worker(lease=10.0, concurrency=4, queues=(), changes=None):
    """A worker process, as the command would run it."""
    configure(**(changes or {}))
    options = WorkerOptions(
        queues=tuple(queues),
        lease=timedelta(seconds=lease),
        concurrency=concurrency,
        shutdown_seconds=20,
    )
    return supervisor.run_worker(options)
