"""The main thread of a worker: claim while there are free slots, sleep until woken.

Backs off while the database is away; nothing below hides an error of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Iterable, Iterator

from django.db import connections, reset_queries

from django_workflows.conf import config
from django_workflows.db.dialects import dialect
from django_workflows.db.postgresql import DUE, LATER, MESSAGE
from django_workflows.fields import uuid7
from django_workflows.registry import registry
from django_workflows.runtime.executor import OUTAGES
from django_workflows.store import leases, runs
from django_workflows.store.leases import Claim
from django_workflows.store.recorder import SharedWriter, share_writes
from django_workflows.telemetry import emit
from django_workflows.worker.heartbeat import Heartbeat
from django_workflows.worker.listener import Listener
from django_workflows.worker.options import WorkerOptions
from django_workflows.worker.pool import Pool, Work

logger = logging.getLogger("django_workflows.worker")

LISTENING_POLL = 5.0
SHORTEST_POLL, LONGEST_POLL = 0.05, 0.5
# A claim that waits this long for a thread is given back: other workers may have one free.
QUEUED_FOR = 0.2
# Passes shorter than this are worth claiming ahead for.
SHORT_PASS = 0.05
MAX_BATCH = 50
MAX_PAUSE = 5.0


class Worker:
    """One worker process."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.id = uuid7()
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._stop = False
        self._pairs = registry.pairs()
        self._listener = Listener(self.id, options.queues, options.lease.total_seconds() / 3)
        self._pool = Pool(
            options.concurrency,
            is_stopping=self.is_stopping,
            on_done=self._on_done,
            on_stray=self._on_stray,
        )
        self._heartbeat = Heartbeat(self.id, options.lease, self._pool.slots, self._register)
        self._next_look = 0.0
        self._next_due = float("inf")
        self._due_lock = threading.Lock()
        self._may_have_strays = False
        self._poll = SHORTEST_POLL
        self._may_have_more = True
        self._pause = 0.1

    @property
    def wake_fd(self) -> int:
        """Where a byte wakes the main thread, for signals."""
        return self._listener.write_end

    def is_stopping(self) -> bool:
        return self._stop

    def stop(self) -> None:
        """Claim nothing new, let current steps finish; safe in a signal handler."""
        self._stop = True
        self._listener.wake()

    def run(self) -> int:
        """Work until stopped, or with `burst` until nothing is due; the process's exit code."""
        with _persistent_connections():
            self._survive(self._register)
            share_writes(SharedWriter() if self.options.concurrency > 1 else None)
            self._heartbeat.start()
            self._pool.start()
            logger.info("Worker %s started, %d workflows.", self.name, len(self._pairs))
            try:
                while not self._stop:
                    self._survive(self._turn)
            finally:
                self._stop = True
                code = self._drain()
                dialect().prepares = False
                share_writes(None)
                connections.close_all()
                self._listener.close()
            logger.info("Worker %s stopped.", self.name)
            return code

    def _register(self) -> None:
        leases.register_worker(
            self.id,
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=list(self.options.queues),
            pairs=self._pairs,
            lease=self.options.lease,
        )

    def _survive(self, act: object) -> None:
        """Do something with the database; while it is away, wait longer and longer."""
        assert callable(act)
        while True:
            try:
                act()
                self._pause = 0.1
                return
            except OUTAGES as error:
                emit("database.away", logging.WARNING, worker=self.name, error=error)
                connections[config().database].close()
                self._may_have_strays = True
                if self._stop:
                    return
                self._listener.wait(self._pause * random.uniform(0.8, 1.2))
                self._pause = min(self._pause * 2, MAX_PAUSE)

    def _turn(self) -> None:
        """One round: what was told or is due by the clock, then a claim, then sleep."""
        if self._listener.listen():
            self._heartbeat.beat_now()
            # What was told while nobody listened is lost.
            self._next_look = 0.0
        dialect().prepares = self._listener.is_direct and self._listener.is_trusted
        reset_queries()
        if self._may_have_strays:
            self._release_strays()
        told = self._listener.take_told()
        now = time.monotonic()
        if now >= self._next_look or LATER in told:
            self._look()
        else:
            if MESSAGE in told and self._claim_waiting():
                told.discard(MESSAGE)
            self._route(leases.SOURCES_TOLD & told)
        if DUE in told or self._is_due(now):
            self._may_have_more = True
        self._give_back_queued()
        room = self._room()
        if self._may_have_more and room > 0:
            self._claim(room)
        if self.options.burst and self._is_done():
            self._stop = True
            return
        self._listener.wait(self._sleep_seconds())

    def _room(self) -> int:
        ahead = self.options.concurrency if self._pool.mean_seconds < SHORT_PASS else 0
        busy, queued = self._pool.load()
        room = self.options.concurrency + ahead - busy - queued
        # Claiming in ones and twos costs a statement for each; wait until half a batch fits.
        if ahead and 0 < room < self.options.concurrency / 2 and queued:
            return 0
        return min(room, MAX_BATCH)

    def _claim(self, room: int) -> None:
        claims = leases.claim_batch(self.id, self._pairs, list(self.options.queues), room)
        self._may_have_more = len(claims) == room
        # None of them: what was due is another's by now, or of a workflow unknown here, and is
        # asked for again at a poll.
        self._begin(claims)

    def _claim_waiting(self) -> bool:
        """Claim at once what a message wakes; False where it has to be routed."""
        room = self._room()
        if room <= 0:
            return False
        claims = leases.claim_waiting(self.id, self._pairs, list(self.options.queues), room)
        if claims is None:
            return False
        self._begin(claims)
        # What isn't waited for, or was locked, is left to the router.
        self._next_look = min(self._next_look, time.monotonic() + SHORTEST_POLL)
        return True

    def _begin(self, claims: list[Claim]) -> None:
        if not claims:
            return
        self._poll = SHORTEST_POLL
        histories = leases.load_histories(claims)
        self._pool.put([Work(claim, histories.get(claim.run_id, [])) for claim in claims])

    def _look(self) -> None:
        """Ask what there is to do, and do what isn't a claim."""
        outlook = leases.look()
        self._route(outlook.unrouted)
        # Both in batches: where there was something to do there may be more.
        is_soon = bool(outlook.unrouted)
        if outlook.dead and leases.take_over_dead():
            self._may_have_more = is_soon = True
        if outlook.overdue_in is not None and outlook.overdue_in <= 0 and leases.fail_overdue():
            is_soon = True
        if outlook.due_in is not None:
            if outlook.due_in <= 0:
                self._may_have_more = True
            else:
                self._due_at(time.monotonic() + outlook.due_in)
        pause = self._poll_seconds() * random.uniform(0.9, 1.0)
        if is_soon:
            pause = min(pause, SHORTEST_POLL)
        if outlook.overdue_in is not None and outlook.overdue_in > 0:
            pause = min(pause, outlook.overdue_in + 0.01)
        self._next_look = time.monotonic() + pause
        self._poll = min(self._poll * 1.5, LONGEST_POLL)

    def _route(self, sources: Iterable[str]) -> None:
        for source in sources:
            while leases.route(source) >= leases.ROUTE_LIMIT:
                pass
            self._may_have_more = True
            # Runs that were locked just now are tried again soon.
            self._next_look = min(self._next_look, time.monotonic() + SHORTEST_POLL)

    def _poll_seconds(self) -> float:
        if self.options.poll_seconds is not None:
            return self.options.poll_seconds
        return LISTENING_POLL if self._listener.is_trusted else self._poll

    def _sleep_seconds(self) -> float:
        until = min(self._next_look, self._next_due)
        if self._pool.queued:
            until = min(until, time.monotonic() + QUEUED_FOR)
        if self._may_have_more and self._room() > 0:
            return 0.0
        return until - time.monotonic()

    def _due_at(self, when: float) -> None:
        with self._due_lock:
            self._next_due = min(self._next_due, when)

    def _is_due(self, now: float) -> bool:
        """True once when the next known due time has come."""
        with self._due_lock:
            if now < self._next_due:
                return False
            self._next_due = float("inf")
        # Which is the next one after it, the database knows.
        self._next_look = min(self._next_look, now + SHORTEST_POLL)
        return True

    def _on_done(self, due_at: float | None) -> None:
        """Called by a thread of the pool that has executed a claim."""
        if due_at is not None:
            self._due_at(due_at)
            self._listener.wake()
        elif self._pool.queued <= self.options.concurrency // 2 or self._stop:
            self._listener.wake()

    def _on_stray(self) -> None:
        """Called by a thread of the pool that could neither execute a claim nor give it back."""
        self._may_have_strays = True
        self._listener.wake()

    def _release_strays(self) -> None:
        """Give back what is claimed here and no thread knows of.

        Such are claims whose answer was lost with the connection: the lease of a worker that goes
        on never ends, so nobody would take them over.
        """
        self._may_have_strays = False
        if leases.release_strays(self.id, self._pool.run_ids()):
            self._may_have_strays = True
        self._may_have_more = True

    def _give_back_queued(self) -> None:
        back = self._pool.take_back(older_than=QUEUED_FOR)
        if back:
            # Passes have become long: what was claimed ahead again would only come back again.
            self._pool.mean_seconds = max(self._pool.mean_seconds, QUEUED_FOR)
        for work in back:
            runs.give_back(work.claim)

    def _is_done(self) -> bool:
        if not self._pool.is_idle or self._may_have_more:
            return False
        outlook = leases.look()
        return not outlook.unrouted and not outlook.dead and not self._is_claimable(outlook)

    def _is_claimable(self, outlook: leases.Outlook) -> bool:
        if outlook.due_in is None or outlook.due_in > 0:
            return False
        claims = leases.claim_batch(
            self.id, self._pairs, list(self.options.queues), self.options.concurrency
        )
        self._begin(claims)
        return bool(claims)

    def _drain(self) -> int:
        """Hand back what isn't begun, wait for the rest; the exit code."""
        for work in self._pool.take_back():
            self._survive(lambda work=work: runs.give_back(work.claim))
        is_clean = self._pool.close(self.options.shutdown_seconds)
        self._heartbeat.stop()
        if not is_clean:
            logger.warning("Worker %s stops with runs still in a step.", self.name)
        # Ends the lease: whatever is still claimed is taken over at once.
        self._survive(lambda: leases.stop_worker(self.id))
        return 0 if is_clean else 1


@contextlib.contextmanager
def _persistent_connections() -> Iterator[None]:
    """Keep connections of the workflows' database open between runs, unless a pool does.

    With Django's default CONN_MAX_AGE of 0 every run would open a connection of its own.
    """
    given = connections[config().database].settings_dict
    before = given["CONN_MAX_AGE"]
    pooled = isinstance(given.get("OPTIONS"), dict) and given["OPTIONS"].get("pool")
    if before == 0 and not pooled:
        given["CONN_MAX_AGE"] = None
    try:
        yield
    finally:
        given["CONN_MAX_AGE"] = before
