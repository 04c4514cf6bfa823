"""Replays the records of open runs against the code as it stands, before a deploy."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from django_workflows.conf import config
from django_workflows.exceptions import (
    NonDeterminismError,
    PayloadError,
    WorkflowNotRegistered,
)
from django_workflows.models import WorkflowRun
from django_workflows.registry import registry
from django_workflows.runtime import dry_replay


class Command(BaseCommand):
    help = (
        "Replays the record of every open run against the code as it stands, read-only, and "
        "names each run that would diverge and where. Exit status 1 if any does."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--workflow", action="append", metavar="NAME", help="Only this workflow; repeatable."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        runs = WorkflowRun.objects.using(config().database).open().order_by("id")
        if options["workflow"]:
            runs = runs.filter(workflow_name__in=options["workflow"])
        checked = faults = 0
        for run in runs.defer("result", "error", "state").iterator(chunk_size=200):
            checked += 1
            fault = _fault(run)
            if fault:
                faults += 1
                self.stdout.write(self.style.ERROR(f"{run.pk} {run}: {fault}"))
        self.stdout.write(f"{checked} open runs checked, {faults} would not go on.")
        if faults:
            sys.exit(1)


def _fault(run: WorkflowRun) -> str:
    try:
        definition = registry.get(run.workflow_name, run.version)
        dry_replay.check(definition, dry_replay.export(run))
    except (NonDeterminismError, PayloadError, WorkflowNotRegistered) as error:
        return str(error)
    return ""
