"""Poll until it is done: as a loop in the body, and as one step that names its next try."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_workflows import RetryAfter, RetryPolicy, WorkflowContext, step, workflow

from .. import services

LONGEST_PAUSE = timedelta(minutes=30)


@workflow
def collect_diagnostics(
    ctx: WorkflowContext,
    number: str,
    pause: timedelta = timedelta(minutes=1),
    gives_up_after: timedelta = timedelta(hours=6),
) -> dict[str, Any]:
    """Ask the lab for an export, and look less and less often whether it is ready."""
    export = ctx.step("request", services.request_export, number)
    until = ctx.now() + gives_up_after
    looks = 1
    while not ctx.step("look", services.is_export_ready, export):
        if ctx.now() >= until:
            return {"status": "given up", "looks": looks}
        ctx.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)
        looks += 1
    return {"status": "ready", "export": export, "looks": looks}


@step(retry=RetryPolicy(max_attempts=0))  # without limit; the run's own timeout ends it
def await_export(export: str) -> str:
    if not services.is_export_ready(export):
        raise RetryAfter(timedelta(minutes=1), "the export isn't ready")
    return export


@workflow(timeout=timedelta(hours=6))
def collect_diagnostics_in_one_step(ctx: WorkflowContext, number: str) -> str:
    """The same with a record that doesn't grow, however long the lab takes."""
    export = ctx.step("request", services.request_export, number)
    return ctx.step("await-export", await_export, export)
