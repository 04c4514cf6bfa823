"""Pause or kill a worker process at a named telemetry point, as its environment says.

LAB_PAUSE=<event>:<directory>   at the event: write `reached` there, go on when `go` is there.
LAB_KILL=<event>:<nth>          at the nth event of that name: SIGKILL to this very process.
LAB_CLOCK=<seconds>             the clock of this process is that far ahead.
"""

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

from django.utils import timezone

from django_workflows import telemetry


def install() -> None:
    if "LAB_PAUSE" in os.environ:
        event, _, directory = os.environ["LAB_PAUSE"].partition(":")
        telemetry._listeners.setdefault(event, []).append(_pause_in(Path(directory)))
    if "LAB_CLOCK" in os.environ:
        _shift_clock(float(os.environ["LAB_CLOCK"]))
    if "LAB_KILL" in os.environ:
        event, _, nth = os.environ["LAB_KILL"].partition(":")
        telemetry._listeners.setdefault(event, []).append(_kill_at(int(nth)))


def _shift_clock(seconds):
    now, today = time.time, timezone.now
    time.time = lambda: now() + seconds
    timezone.now = lambda: today() + timedelta(seconds=seconds)


def _pause_in(directory):
    def pause(event, fields):
        (directory / "reached").touch()
        give_up = time.monotonic() + 60
        while not (directory / "go").exists() and time.monotonic() < give_up:
            time.sleep(0.005)

    return pause


def _kill_at(nth):
    seen = 0

    def kill(event, fields):
        nonlocal seen
        seen += 1
        if seen == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    return kill
