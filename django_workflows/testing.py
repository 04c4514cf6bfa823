"""Helpers for tests of workflows: the worker's claim and execution, in the calling thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

from django_workflows.db import clock
from django_workflows.models import WorkflowRun
from django_workflows.registry import registry
from django_workflows.runtime import inline
from django_workflows.store import leases

__all__ = ["advance", "reset_clock", "run_until_idle", "workflow_clock"]

# A workflow that is due again and again would never be idle.
MAX_EXECUTIONS = 100_000


def run_until_idle(*runs: WorkflowRun) -> int:
    """Execute what is due, here and now, until nothing is; works in TestCase.

    Args:
        runs: execute only these, and refresh them; without any, everything that is due.

    Returns: number of executions.
    """
    wanted = {run.pk for run in runs}
    executed = 0
    while executed < MAX_EXECUTIONS:
        _settle()
        claims = _claim(wanted)
        if not claims:
            break
        for claim in claims:
            inline.execute(claim)
            executed += 1
    else:
        raise RuntimeError(f"Still not idle after {MAX_EXECUTIONS} executions.")
    for run in runs:
        run.refresh_from_db()
    return executed


def _settle() -> None:
    for source in leases.SOURCES:
        while leases.route(source):
            pass
    while leases.fail_overdue():
        pass


def _claim(wanted: set[UUID]) -> list[leases.Claim]:
    if not wanted:
        return leases.claim_batch(None, registry.pairs(), [], 100)
    claims = [leases.claim_one(run_id, None) for run_id in sorted(wanted)]
    return [claim for claim in claims if claim is not None]


def advance(delta: timedelta) -> None:
    """Move the workflow clock of this process, so that sleeps and timeouts come due at once.

    Args:
        delta: zero or more. What comes due is executed by the next `run_until_idle()`.
    """
    if delta < timedelta(0):
        raise ValueError("The workflow clock goes forward only; reset_clock() puts it back.")
    clock.set_offset(clock.offset() + delta.total_seconds())


def reset_clock() -> None:
    """Put the workflow clock back to the database's."""
    clock.set_offset(0.0)


@contextmanager
def workflow_clock() -> Iterator[None]:
    """A block after which the workflow clock stands where it stood."""
    before = clock.offset()
    try:
        yield
    finally:
        clock.set_offset(before)
