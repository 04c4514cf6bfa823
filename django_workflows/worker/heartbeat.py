"""Keeps the process's worker row fresh from a side thread, with what each slot is doing."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connections, reset_queries

from django_workflows import payloads
from django_workflows.conf import config
from django_workflows.store import leases
from django_workflows.telemetry import emit
from django_workflows.worker.pool import Slot

logger = logging.getLogger("django_workflows.worker")

# A slot shows what it does once it has done so for this long.
SHOWN_AFTER = 1.0


class Heartbeat:
    """Renews the lease at about a third of its length."""

    def __init__(
        self,
        worker_id: UUID,
        lease: timedelta,
        slots: list[Slot],
        register: Callable[[], None],
    ) -> None:
        self._worker_id = worker_id
        self._lease = lease
        self._slots = slots
        self._register = register
        self._roused = threading.Event()
        self._is_stopping = False
        self._keeper: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._beat, daemon=True, name="workflows-heartbeat")

    def start(self) -> None:
        self._keeper = start_keeper(self._worker_id, self._lease)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the keeper; the lease stands until it is stopped or runs out."""
        self._is_stopping = True
        self._roused.set()
        self._thread.join()
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            self._keeper.wait()

    def beat_now(self) -> None:
        """Renew at once, for the listener that waits to hear of it."""
        self._roused.set()

    def _beat(self) -> None:
        interval = self._lease.total_seconds() / 3
        pause = 0.1
        try:
            while True:
                self._ping()
                if self._renew():
                    pause = interval * random.uniform(0.85, 1.0)
                else:
                    pause = min(interval, pause * 2) if pause < interval / 2 else 0.2
                give_up = time.monotonic() + pause
                while (left := give_up - time.monotonic()) > 0:
                    # Pings come oftener than renewals: they tell the keeper that threads run.
                    if self._roused.wait(min(left, interval / 2)):
                        self._roused.clear()
                        break
                    self._ping()
                reset_queries()
                if self._is_stopping:
                    return
        finally:
            connections.close_all()

    def _ping(self) -> None:
        keeper = self._keeper
        if keeper is None or keeper.stdin is None:
            return
        try:
            os.write(keeper.stdin.fileno(), b".")
        except (OSError, ValueError):
            # It was killed: go on without, and say so.
            logger.warning("The lease keeper (pid %s) is gone.", keeper.pid)
            self._keeper = None

    def _renew(self) -> bool:
        try:
            if not leases.renew(self._worker_id, self._lease, self._doing()):
                self._register()
            return True
        except Exception as error:
            # Whatever it is: a worker without a heartbeat loses all of its runs.
            emit("heartbeat.failed", logging.WARNING, worker=self._worker_id, error=error)
            connections[config().database].close()
            return False

    def _doing(self) -> list[dict[str, Any]]:
        now = time.monotonic()
        shown = []
        for slot in self._slots:
            claim = slot.claim
            if claim is not None and now - slot.since > SHOWN_AFTER:
                seconds = round(now - slot.since, 1)
                shown.append({"run": str(claim.run_id), "step": slot.step, "seconds": seconds})
        return shown


def start_keeper(worker_id: UUID, lease: timedelta) -> subprocess.Popen[bytes] | None:
    """Start the process that keeps the lease while this one's interpreter lock is held."""
    given = {
        "worker": _worker_key(worker_id),
        "lease": lease.total_seconds(),
        "vendor": connections[config().database].vendor,
        "connection": _connection_given(),
        "path": sys.path,
    }
    # -S and -E: it starts in milliseconds and in a few MB; the path comes with the rest.
    keeper = subprocess.Popen(
        [sys.executable, "-S", "-E", "-P", str(Path(__file__).with_name("keeper.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert keeper.stdin is not None
    os.write(keeper.stdin.fileno(), payloads.dump_json(given).encode() + b"\n")
    os.set_blocking(keeper.stdin.fileno(), False)
    return keeper


def _worker_key(worker_id: UUID) -> str:
    return worker_id.hex if connections[config().database].vendor == "sqlite" else str(worker_id)


def _connection_given() -> dict[str, Any]:
    wrapper = connections[config().database]
    if wrapper.vendor == "sqlite":
        return {"path": str(wrapper.settings_dict["NAME"])}
    params = wrapper.get_connection_params()
    plain = {key: value for key, value in params.items() if isinstance(value, (str, int))}
    # Settings of Django's own connection, not libpq's.
    for key in ("prepare_threshold", "server_side_binding", "pool"):
        plain.pop(key, None)
    return plain
