"""Tells what is wrong with runs, workers and the set-up, for people and for monitoring."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from django_workflows.store.diagnosis import diagnose


class Command(BaseCommand):
    help = (
        "Reports stuck, overdue, poison and unknown runs, dead workers, missing indexes and unsafe "
        "settings. Exit status: 0 all well, 1 warnings, 2 errors."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print the findings as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        found = diagnose()
        if options["json"]:
            self.stdout.write(json.dumps([finding.as_dict() for finding in found], indent=2))
        elif not found:
            self.stdout.write(self.style.SUCCESS("All well."))
        else:
            for finding in found:
                style = self.style.ERROR if finding.level == "error" else self.style.WARNING
                shown = f" ({', '.join(finding.examples)})" if finding.examples else ""
                self.stdout.write(
                    style(
                        f"{finding.level} [{finding.kind}] {finding.count}: {finding.text}{shown}"
                    )
                )
        if found:
            sys.exit(2 if any(finding.level == "error" for finding in found) else 1)
