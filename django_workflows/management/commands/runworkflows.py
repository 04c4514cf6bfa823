"""Options to a supervisor, nothing else."""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_workflows.conf import config
from django_workflows.worker import supervisor
from django_workflows.worker.options import WorkerOptions


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError("must be zero or more seconds")
    return value


def _positive(text: str) -> float:
    value = _seconds(text)
    if value == 0:
        raise argparse.ArgumentTypeError("must be more than zero seconds")
    return value


class Command(BaseCommand):
    help = "Executes workflow runs until stopped (SIGTERM or SIGINT; twice: at once)."

    def add_arguments(self, parser: CommandParser) -> None:
        defaults = config()
        parser.add_argument(
            "--queue",
            action="append",
            default=None,
            metavar="NAME",
            help="Take runs of this queue only; repeatable. Default: every queue.",
        )
        parser.add_argument(
            "--concurrency",
            type=_count,
            default=defaults.concurrency,
            metavar="N",
            help="Threads that execute runs (default: %(default)s).",
        )
        parser.add_argument(
            "--processes",
            type=_count,
            default=1,
            metavar="N",
            help="Worker processes (default: 1).",
        )
        parser.add_argument("--burst", action="store_true", help="Stop when nothing is due.")
        parser.add_argument(
            "--poll-interval",
            type=_positive,
            default=defaults.poll_seconds,
            metavar="SECONDS",
            help="Pause between polls. Default: 5 where notifications get through, else up to 0.5.",
        )
        parser.add_argument(
            "--lease",
            type=_positive,
            default=defaults.lease_seconds,
            metavar="SECONDS",
            help="How long a silent worker's runs are left to it (default: %(default)s).",
        )
        parser.add_argument(
            "--shutdown-timeout",
            type=_seconds,
            default=defaults.shutdown_seconds,
            metavar="SECONDS",
            help="How long to wait for current steps when stopped (default: %(default)s).",
        )
        parser.add_argument(
            "--autoreload", action="store_true", help="Restart when code changes (development)."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["autoreload"] and options["processes"] > 1:
            raise CommandError("--autoreload works with one process; leave out --processes.")
        given = WorkerOptions(
            queues=tuple(options["queue"] or ()),
            concurrency=options["concurrency"],
            burst=options["burst"],
            poll_seconds=options["poll_interval"],
            lease=timedelta(seconds=options["lease"]),
            shutdown_seconds=options["shutdown_timeout"],
        )
        code = supervisor.run(given, processes=options["processes"], reload=options["autoreload"])
        if code:
            sys.exit(code)
