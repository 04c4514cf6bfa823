"""What a worker was asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from django_workflows.conf import config


@dataclass(frozen=True)
class WorkerOptions:
    """Options of one worker process; the defaults are those of DJANGO_WORKFLOWS.

    Attributes:
        queues: names of queues; empty for all.
        concurrency: threads that execute runs.
        burst: stop when nothing is due.
        poll_seconds: pause between polls; None for 5 s while notifications get through, else
            a pause that grows from 50 ms to 0.5 s.
        lease: how long after its last heartbeat a worker's runs are left to it.
        shutdown_seconds: how long a stopping worker waits for its current steps.
    """

    queues: tuple[str, ...] = ()
    concurrency: int = field(default_factory=lambda: config().concurrency)
    burst: bool = False
    poll_seconds: float | None = field(default_factory=lambda: config().poll_seconds)
    lease: timedelta = field(default_factory=lambda: timedelta(seconds=config().lease_seconds))
    shutdown_seconds: float = field(default_factory=lambda: config().shutdown_seconds)
