"""Threads that execute claims, with Django's connection hygiene around each."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from django.db import close_old_connections, connections, reset_queries

from django_workflows.db.records import Entry
from django_workflows.runtime.executor import Execution
from django_workflows.store import runs
from django_workflows.store.leases import Claim

logger = logging.getLogger("django_workflows.worker")

# Weight of the newest pass in the running mean of their durations.
_WEIGHT = 0.2


# A connection unused for this long is asked whether it still stands, before a step of one attempt
# only finds out by failing.
IDLE_SECONDS = 5.0


def _drop_dead_connections() -> None:
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and not connection.is_usable():
            connection.close()


@dataclass(slots=True)
class Work:
    """A claim that waits for a thread."""

    claim: Claim
    entries: list[Entry]
    queued_at: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Slot:
    """What one thread is doing."""

    claim: Claim | None = None
    step: str | None = None
    since: float = 0.0


class Pool:
    """A fixed number of threads over one queue of claims."""

    def __init__(
        self,
        size: int,
        *,
        is_stopping: Callable[[], bool],
        on_done: Callable[[float | None], None],
        on_stray: Callable[[], None],
    ) -> None:
        self.size = size
        self._is_stopping = is_stopping
        self._on_done = on_done
        self._on_stray = on_stray
        self._waiting: deque[Work] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.slots = [Slot() for _ in range(size)]
        self.mean_seconds = 0.0
        self._threads = [
            threading.Thread(target=self._work, args=(slot,), daemon=True, name=f"workflows-{n}")
            for n, slot in enumerate(self.slots)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def put(self, work: list[Work]) -> None:
        """Queue claims; idle threads take them in order."""
        with self._changed:
            self._waiting.extend(work)
            self._changed.notify(len(work))

    @property
    def queued(self) -> int:
        """Claims that wait for a thread."""
        return len(self._waiting)

    def load(self) -> tuple[int, int]:
        """Claims that a thread executes, and claims that wait for one."""
        # Under the lock: a claim on its way from the queue to a thread would be in neither.
        with self._changed:
            return sum(slot.claim is not None for slot in self.slots), len(self._waiting)

    @property
    def is_idle(self) -> bool:
        return self.load() == (0, 0)

    def run_ids(self) -> set[UUID]:
        """Runs of the claims that are executed or wait."""
        with self._changed:
            executed = [slot.claim for slot in self.slots]
            claims = [claim for claim in executed if claim is not None]
            return {claim.run_id for claim in (*claims, *(w.claim for w in self._waiting))}

    def take_back(self, older_than: float = 0.0) -> list[Work]:
        """Remove from the queue what has waited longer than `older_than` seconds."""
        before = time.monotonic() - older_than
        with self._changed:
            back = [work for work in self._waiting if work.queued_at <= before]
            for work in back:
                self._waiting.remove(work)
        return back

    def close(self, timeout: float) -> bool:
        """Let the threads end after their current claims; True when all have, in time."""
        give_up = time.monotonic() + timeout
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, give_up - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _next(self, slot: Slot) -> Work | None:
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            work = self._waiting.popleft()
            slot.claim, slot.since = work.claim, time.monotonic()
            return work

    def _work(self, slot: Slot) -> None:
        idle_since = time.monotonic()
        try:
            while (work := self._next(slot)) is not None:
                if time.monotonic() - idle_since > IDLE_SECONDS:
                    _drop_dead_connections()
                due_at = self._execute(slot, work)
                self._on_done(due_at)
                idle_since = time.monotonic()
        finally:
            connections.close_all()

    def _execute(self, slot: Slot, work: Work) -> float | None:
        def on_step(step: str | None) -> None:
            slot.step = step

        due_at = None
        is_stray = False
        try:
            close_old_connections()
            reset_queries()
            execution = Execution(work.claim, is_stopping=self._is_stopping, on_step=on_step)
            execution.run(work.entries)
            due_at = execution.due_at
        except BaseException:
            logger.exception("Run %s could not be executed.", work.claim.run_id)
            is_stray = not self._leave(work.claim)
        finally:
            took = time.monotonic() - slot.since
            self.mean_seconds += _WEIGHT * (took - self.mean_seconds)
            close_old_connections()
            slot.claim = slot.step = None
        if is_stray:
            # Only now: it is given back because no slot has it.
            self._on_stray()
        return due_at

    def _leave(self, claim: Claim) -> bool:
        """Give a run back whose execution failed for a fault of ours or of the set-up."""
        try:
            runs.give_back(claim, delay=5.0)
            return True
        except Exception:
            # Whatever it is: this thread has to go on.
            logger.warning("Run %s could not be given back yet.", claim.run_id)
            return False
