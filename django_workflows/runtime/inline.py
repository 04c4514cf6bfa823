"""Execute due runs in the calling thread and transaction, without a worker process."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

from django.db import connections

from django_workflows.conf import config
from django_workflows.fields import uuid7
from django_workflows.models import WorkflowRun
from django_workflows.registry import registry
from django_workflows.runtime.executor import Execution
from django_workflows.store import leases, runs
from django_workflows.store.leases import Claim


def _never() -> bool:
    return False


def execute(claim: Claim, *, replays_always: bool = False) -> None:
    """Execute one claim in this thread.

    Args:
        replays_always: run the body from the top after each new entry of the record.

    Raises:
        NonDeterminismError: with `replays_always`, where a replay differed from the record.
    """
    entries = leases.load_histories([claim]).get(claim.run_id, [])
    execution = Execution(claim, is_stopping=_never, replays_always=replays_always)
    execution.run(entries)
    if replays_always and execution.mismatch is not None:
        raise execution.mismatch


def resume(run_id: UUID) -> WorkflowRun:
    """Claim and execute a run if it is due; the run as it then stands."""
    run = runs.get(run_id)
    registry.get(run.workflow_name, run.version)
    leases.catch_up(run_id)
    with held_lease() as worker_id:
        claim = leases.claim_one(run_id, worker_id)
        if claim is not None:
            execute(claim)
    return runs.get(run_id)


@contextmanager
def held_lease() -> Iterator[UUID | None]:
    """A lease for the block, renewed from a side thread.

    Inside a transaction there is none: nobody else can see the claim before the commit.
    """
    if connections[config().database].in_atomic_block:
        yield None
        return
    worker_id = uuid7()
    lease = timedelta(seconds=config().lease_seconds)
    leases.register_worker(
        worker_id,
        name=f"{socket.gethostname()}:{os.getpid()}:inline",
        host=socket.gethostname(),
        pid=os.getpid(),
        queues=[],
        pairs=[],
        lease=lease,
    )
    done = threading.Event()
    renewer = threading.Thread(target=_renew, args=(worker_id, lease, done), daemon=True)
    renewer.start()
    try:
        yield worker_id
    finally:
        done.set()
        renewer.join()
        leases.stop_worker(worker_id)


def _renew(worker_id: UUID, lease: timedelta, done: threading.Event) -> None:
    try:
        while not done.wait(lease.total_seconds() / 3):
            leases.renew(worker_id, lease, [])
    finally:
        connections.close_all()
