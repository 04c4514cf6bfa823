"""Deletes runs that ended long ago, while workers work."""

from __future__ import annotations

import argparse
import re
import time
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from django_workflows.store import retention

ENDED = ("completed", "failed", "canceled")
UNITS = {"d": "days", "h": "hours", "m": "minutes"}
MAX_BATCH = 1000
MAX_PAUSE = 1.0


def _age(text: str) -> timedelta:
    match = re.fullmatch(r"(\d+)([dhm]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError("must be like 30, 30d, 12h or 90m")
    return timedelta(**{UNITS[match[2] or "d"]: int(match[1])})


def _batch(text: str) -> int:
    value = int(text)
    if not 1 <= value <= MAX_BATCH:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MAX_BATCH}")
    return value


class Command(BaseCommand):
    help = (
        "Deletes ended runs with their steps, messages and signals, in small transactions. "
        "Can be stopped at any time and run again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--older-than",
            type=_age,
            required=True,
            metavar="AGE",
            help="Time since the end: 30 or 30d (days), 12h, 90m.",
        )
        parser.add_argument(
            "--status",
            action="append",
            choices=ENDED,
            default=None,
            help="Only runs that ended so; repeatable. Default: all.",
        )
        parser.add_argument(
            "--batch-size",
            type=_batch,
            default=500,
            metavar="N",
            help="Runs per transaction (default: %(default)s).",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        total, after = 0, None
        while True:
            began = time.monotonic()
            count, after = retention.purge_batch(
                options["older_than"],
                after=after,
                statuses=options["status"] or list(ENDED),
                limit=options["batch_size"],
            )
            total += count
            if after is None:
                break
            if options["verbosity"] > 1:
                self.stdout.write(f"{total} runs deleted so far.")
            # As long again the disk is the workers', and SQLite's one write lock, which whoever
            # waits for it asks for only now and then.
            time.sleep(min(time.monotonic() - began, MAX_PAUSE))
        self.stdout.write(f"{total} runs deleted.")
