"""What forked processes do: work, or call the API once."""

import time

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from django_workflows.conf import config
from django_workflows.worker import supervisor
from django_workflows.worker.options import WorkerOptions
from tests.lab import saga_flows, storm_flows  # noqa: F401 - their workflows are to be registered

OUTAGES = (OperationalError, InterfaceError)


def configure(**changes):
    """Change DJANGO_WORKFLOWS in this process."""
    settings.DJANGO_WORKFLOWS = {**getattr(settings, "DJANGO_WORKFLOWS", {}), **changes}
    config.cache_clear()


def worker(lease=10.0, concurrency=4, burst=False, **changes):
    """A worker process, as the command would run it."""
    from datetime import timedelta

    configure(**changes)
    options = WorkerOptions(
        lease=timedelta(seconds=lease), concurrency=concurrency, burst=burst, shutdown_seconds=20
    )
    return supervisor.run_worker(options)


def persistently(call, *arguments, seconds=60.0, on_outage=None, **options):
    """Call until the database answers, as a careful client does: same arguments, same key."""
    give_up = time.monotonic() + seconds
    pause = 0.02
    while True:
        try:
            return call(*arguments, **options)
        except OUTAGES as error:
            if time.monotonic() > give_up:
                raise
            if on_outage is not None:
                on_outage(error)
            connection.close()
            time.sleep(pause)
            pause = min(pause * 2, 0.5)
