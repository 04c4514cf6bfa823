"""A storm of faults over many runs, and an independent check afterwards: `make storm SECONDS=600`.

Four workers are killed, stopped, frozen and started at random; PostgreSQL loses its connections
and is restarted with an immediate shutdown; senders repeat, cancel and rerun. When it is over the
workers finish what there is, and the checker reads what is left. It prints its figures as JSON
lines; the exit status is 1 when there are violations.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

WORKERS, SENDERS = 4, 4
LEASE_SECONDS = 3.0
DRAIN_SECONDS = 90.0


class Storm:
    """One storm on the database that Django is set up for."""

    def __init__(self, directory: Path, environment: dict[str, str], *, seed: int) -> None:
        from tests.lab.zygote import Zygote

        self.seed = seed
        self.figures: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._directory = directory
        self._marks = directory / "marks"
        self._zygote = Zygote({**environment, "STORM_LOG": str(self._marks)}, directory)
        self._lock = threading.Lock()
        self._workers: list[Any] = []
        self._frozen: list[Any] = []
        self._seen: dict[str, tuple[str, Any, Any]] = {}
        self._is_over = False
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._problems: list[str] = []

    def run(self, seconds: float) -> list[str]:
        """The violations found."""
        from django.contrib.auth.models import User

        User.objects.create(username="storm")
        try:
            for _ in range(WORKERS):
                self._start_worker()
            senders = [self._start_sender(number, seconds) for number in range(SENDERS)]
            self._watcher.start()
            self._rage(seconds)
            self._calm_down()
            self._wait_for(senders)
            self._drain()
            self._stop_workers()
            self._stop_watching()
            return [*self._problems, *self._check()]
        finally:
            self._stop_watching()
            self._zygote.close()

    def _stop_watching(self) -> None:
        self._is_over = True
        if self._watcher.ident is not None:
            self._watcher.join()

    def _start_worker(self) -> None:
        worker = self._zygote.fork("tests.lab.actors:worker", LEASE_SECONDS, 6)
        self._workers.append(worker)

    def _log(self, number: int) -> Path:
        return self._directory / f"sender-{number}"

    def _start_sender(self, number: int, seconds: float) -> Any:
        given = (number, self.seed, seconds, str(self._log(number)))
        return self._zygote.fork("tests.lab.storm_load:send", *given)

    def _rage(self, seconds: float) -> None:
        """Break something every now and then."""
        from django.db import connection

        acts = {self._kill: 5, self._stop: 2}
        if connection.vendor == "postgresql":
            # On SQLite one frozen inside a write would hold up everybody: there is one lock.
            acts |= {self._freeze: 2, self._cut: 4}
            if "TEST_SERVER_DIRECTORY" in os.environ:
                acts[self._restart] = 1
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            time.sleep(self._chance.uniform(0.1, 1.2))
            with self._lock:
                self._chance.choices(list(acts), list(acts.values()))[0]()

    def _kill(self) -> None:
        worker = self._workers.pop(self._chance.randrange(len(self._workers)))
        worker.kill()
        self.figures["workers killed"] += 1
        self._start_worker()

    def _stop(self) -> None:
        worker = self._workers.pop(self._chance.randrange(len(self._workers)))
        self._start_worker()
        self._expect_stop(worker)
        self.figures["workers stopped"] += 1

    def _freeze(self) -> None:
        """Stop a worker past its lease, or wake one that was: a zombie."""
        if self._frozen:
            self._frozen.pop().send(signal.SIGCONT)
            return
        worker = self._chance.choice(self._workers)
        self._workers.remove(worker)
        self._workers.append(worker)
        worker.send(signal.SIGSTOP)
        self._frozen.append(worker)
        self.figures["workers frozen"] += 1
        # The next fault may hit it too; a killed one needs no waking.
        self._workers.remove(worker)
        self._start_worker()

    def _cut(self) -> None:
        def cut() -> None:
            with _connection().cursor() as cursor:
                cursor.execute(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
                self.figures["connections cut"] += cursor.fetchone()[0]

        _surviving(cut)

    def _restart(self) -> None:
        from tests import server

        server.stop(immediate=True)
        time.sleep(self._chance.uniform(0, 1.5))
        server.start()
        self.figures["servers crashed"] += 1

    def _calm_down(self) -> None:
        for worker in self._frozen:
            worker.send(signal.SIGCONT)
        self._workers += self._frozen
        self._frozen = []

    def _wait_for(self, senders: list[Any]) -> None:
        for sender in senders:
            if sender.wait(DRAIN_SECONDS) != 0:
                self._problems.append(f"a sender failed:\n{sender.output()[-3000:]}")

    def _drain(self) -> None:
        """Close what waits for more, and wait until every run has ended."""
        from django_workflows import send_signal, signal_with_start
        from tests.lab import storm_flows as flows
        from tests.lab.callers import persistently
        from tests.lab.storm_load import TICKETS

        note = {"n": 10**9, "sender": "storm", "close": True}
        for number in range(TICKETS):
            persistently(
                signal_with_start,
                flows.ticket,
                workflow_id=f"ticket-{number}",
                name="note",
                data=note,
            )
        give_up = time.monotonic() + DRAIN_SECONDS
        while (left := self._count_open()) and time.monotonic() < give_up:
            persistently(send_signal, "bell", {"n": -1})
            time.sleep(0.5)
        if left:
            self._problems.append(f"{left} runs haven't ended {DRAIN_SECONDS} s after the storm")
        for worker in self._workers:
            if not worker.is_alive:
                self._problems.append(f"a worker died by itself:\n{worker.output()[-3000:]}")

    def _count_open(self) -> int:
        with _connection().cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM django_workflows_workflowrun "
                "WHERE status IN ('pending', 'running', 'suspended')"
            )
            return int(cursor.fetchone()[0])

    def _stop_workers(self) -> None:
        for worker in self._workers:
            if worker.is_alive:
                self._expect_stop(worker)

    def _expect_stop(self, worker: Any) -> None:
        code = worker.stop()
        # Killed by the signal itself: it came before the worker had begun to listen to it.
        if code not in (0, -signal.SIGTERM):
            told = worker.output()[-2000:]
            self._problems.append(f"a worker stopped with status {code}:\n{told}")

    def _watch(self) -> None:
        """Remember how runs ended, as soon as they have."""
        from tests.faults.checker import ENDED, _id

        def look() -> None:
            with _connection().cursor() as cursor:
                cursor.execute(
                    "SELECT id, status, result, error FROM django_workflows_workflowrun "
                    f"WHERE status IN {ENDED}"
                )
                for run_id, *outcome in cursor.fetchall():
                    self._seen.setdefault(str(_id(run_id)), tuple(outcome))  # type: ignore[arg-type]

        while not self._is_over:
            _surviving(look)
            time.sleep(1.0)
        _connection().close()

    def _check(self) -> list[str]:
        from tests.faults.checker import check, read_lines

        told = [line for number in range(SENDERS) for line in read_lines(self._log(number))]
        marks = read_lines(self._marks)
        self.figures.update(line["what"] for line in told)
        self.figures["effects"] = len(marks)
        with _connection().cursor() as cursor:
            for what in ("run", "message", "step"):
                cursor.execute(f"SELECT count(*) FROM django_workflows_workflow{what}")
                self.figures[f"{what}s"] = cursor.fetchone()[0]
            cursor.execute(
                "SELECT status, count(*) FROM django_workflows_workflowrun GROUP BY status"
            )
            self.figures.update({f"runs {status}": count for status, count in cursor.fetchall()})
        found = check(_connection(), told, marks, self._seen, time.time())
        self.figures["violations"] = len(found) + len(self._problems)
        return found


def _connection() -> Any:
    from django.db import connection

    return connection


def _surviving(act: Any) -> None:
    """Do something that may fail, as the database may be away."""
    from tests.lab.callers import OUTAGES

    try:
        act()
    except OUTAGES:
        _connection().close()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args(arguments)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()
    from django.core.management import call_command

    from tests.conftest import process_environment

    call_command("migrate", run_syncdb=True, verbosity=0)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        storm = Storm(directory, process_environment(), seed=given.seed)
        print(json.dumps({"seed": given.seed, "seconds": given.seconds}), flush=True)
        found = storm.run(given.seconds)
    print(json.dumps(dict(sorted(storm.figures.items())), indent=2))
    for violation in found[:50]:
        print(violation)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
