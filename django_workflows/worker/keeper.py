"""Keeps a worker's lease while the worker can't: a small process beside it.

A step that holds the interpreter lock (native code) stops every thread of its process, so no
thread can renew the lease, and the run would be taken over although it is well. This script is
run by path, imports nothing of Django, and opens no connection until it is needed: the worker
sends it a byte now and then; while those stay away and the worker's process is alive and not
stopped, it renews the lease by itself. It ends when the worker does.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

_RENEW_POSTGRESQL = (
    "UPDATE django_workflows_workflowworker SET lease_until = clock_timestamp() "
    "+ %s * interval '1 second' WHERE id = %s AND stopped_at IS NULL"
)
_RENEW_SQLITE = (
    "UPDATE django_workflows_workflowworker SET lease_until = ? WHERE id = ? AND stopped_at IS NULL"
)


def is_running(pid: int) -> bool:
    """True when a process is alive and not stopped (SIGSTOP); False where nobody can tell."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            state = stat.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        told = subprocess.run(
            ["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        state = told.stdout.strip()[:1]
    return bool(state) and state not in "TtZX"


class Lease:
    """The worker's row, renewed over a connection of its own."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._connection: Any = None

    def renew(self) -> None:
        """Put the lease off; a failure is tried again at the next turn, on a new connection."""
        try:
            if self._given["vendor"] == "postgresql":
                self._renew_postgresql()
            else:
                self._renew_sqlite()
        except Exception as error:
            sys.stderr.write(f"lease not renewed: {error}\n")
            self._connection = None

    def _renew_postgresql(self) -> None:
        import psycopg

        if self._connection is None:
            self._connection = psycopg.connect(
                **self._given["connection"], autocommit=True, prepare_threshold=None
            )
        given = (self._given["lease"], self._given["worker"])
        self._connection.execute(_RENEW_POSTGRESQL, given)

    def _renew_sqlite(self) -> None:
        import sqlite3

        if self._connection is None:
            path = self._given["connection"]["path"]
            self._connection = sqlite3.connect(path, timeout=20, isolation_level=None)
        until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self._given["lease"])
        row = (str(until.replace(tzinfo=None)), self._given["worker"])
        self._connection.execute(_RENEW_SQLITE, row)


def keep(given: dict[str, Any], parent: int) -> None:
    """Watch over the worker until its end of the pipe closes."""
    lease = Lease(given)
    patience = given["lease"] / 3
    heard = time.monotonic()
    while True:
        ready, _, _ = select.select([0], [], [], patience / 2)
        if ready:
            if not os.read(0, 4096):
                return
            heard = time.monotonic()
        elif os.getppid() != parent:
            return
        if time.monotonic() - heard > patience and is_running(parent):
            lease.renew()


def main() -> None:
    # Ctrl-C and a service manager's stop go to the whole group; the keeper ends with the worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = os.getppid()
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return
        line += byte
    given = json.loads(line)
    sys.path[:] = given["path"]
    keep(given, parent)


if __name__ == "__main__":
    main()
