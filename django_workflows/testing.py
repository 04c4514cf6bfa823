"""Helpers for tests of workflows: the worker's claim and execution, in the calling thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from django_workflows.db import clock
from django_workflows.db.dialects import dialect
from django_workflows.models import WorkflowRun
from django_workflows.registry import registry
from django_workflows.runtime import dry_replay, inline
from django_workflows.runtime.calls import as_run_id
from django_workflows.store import leases
from django_workflows.store import runs as runs_store

__all__ = [
    "advance",
    "check_replay",
    "export_history",
    "replay_every_step",
    "reset_clock",
    "run_until_idle",
    "workflow_clock",
]

_replays_always = False
# A workflow that is due again and again would never be idle.
MAX_EXECUTIONS = 100_000


def run_until_idle(*runs: WorkflowRun) -> int:
    """Execute what is due, here and now, until nothing is; works in TestCase.

    Args:
        runs: execute only these and their children, and refresh them; without any, everything
            that is due.

    Returns: number of executions.
    Raises:
        WorkflowNotRegistered: one of `runs` is of a workflow that this process doesn't know.
        NonDeterminismError: inside `replay_every_step()`, where a replay differed.
    """
    for run in runs:
        registry.get(run.workflow_name, run.version)
    wanted = {run.pk for run in runs}
    executed = 0
    while executed < MAX_EXECUTIONS:
        _settle()
        claims = _claim(wanted)
        if not claims:
            break
        for claim in claims:
            inline.execute(claim, replays_always=_replays_always)
            executed += 1
    else:
        raise RuntimeError(f"Still not idle after {MAX_EXECUTIONS} executions.")
    for run in runs:
        run.refresh_from_db()
    return executed


def _settle() -> None:
    # First, as a child that fails so wakes its parent.
    while leases.fail_overdue():
        pass
    for source in leases.SOURCES:
        while leases.route(source):
            pass


def _claim(wanted: set[UUID]) -> list[leases.Claim]:
    if not wanted:
        return leases.claim_batch(None, registry.pairs(), [], 100)
    _add_children(wanted)
    claims = [leases.claim_one(run_id, None) for run_id in sorted(wanted)]
    return [claim for claim in claims if claim is not None]


def _add_children(wanted: set[UUID]) -> None:
    """A parent waits for its children, so whoever executes it executes them."""
    children = WorkflowRun.objects.using(dialect().alias).open()
    newest = wanted
    while newest:
        found = children.filter(parent_id__in=newest).values_list("pk", flat=True)
        newest = set(found) - wanted
        wanted |= newest


@contextmanager
def replay_every_step() -> Iterator[None]:
    """A block in which `run_until_idle()` runs a body from the top after each new entry.

    A body that isn't deterministic (a clock, a random number, a query outside of steps) then
    raises NonDeterminismError in the test, and not weeks later in production.
    """
    global _replays_always
    before, _replays_always = _replays_always, True
    try:
        yield
    finally:
        _replays_always = before


def export_history(run: WorkflowRun | UUID | str) -> dict[str, Any]:
    """A run's input and record as plain JSON values, for `check_replay` in a project's own tests.

    Payloads are kept as stored, so with a CODEC set they stay encrypted.

    Raises:
        RunNotFound: there is no such run.
    """
    return dry_replay.export(runs_store.get(as_run_id(run)))


def check_replay(workflow: Any, history: Mapping[str, Any]) -> None:
    """Replay an exported history against the code as it stands, without writing anything.

    Args:
        workflow: the workflow, or its registered name (of the history's version).
        history: what `export_history` gave, perhaps through a JSON file.

    Raises:
        NonDeterminismError: a run with this record could not go on with this code.
        WorkflowNotRegistered: the name or version is unknown.
    """
    if isinstance(workflow, str):
        definition = registry.get(workflow, history.get("version"))
    else:
        definition = workflow.definition
    dry_replay.check(definition, history)


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
