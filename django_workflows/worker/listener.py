"""Wakes the loop: notifications of PostgreSQL where they get through, a pipe for our own threads.

Behind a pooler in transaction mode LISTEN is accepted and never heard of again. So each heartbeat
sends a notification to this worker's own channel, over another connection, and only while those
arrive does the loop rely on them.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import Any
from uuid import UUID

from django.db import connections

from django_workflows.conf import config
from django_workflows.db.claims import own_channel
from django_workflows.db.postgresql import CHANNEL


class Listener:
    """What the main thread sleeps on."""

    def __init__(self, worker_id: UUID, queues: tuple[str, ...], heartbeat_seconds: float) -> None:
        self._own = own_channel(worker_id)
        self._queues = queues
        self._trust_seconds = heartbeat_seconds * 2.5
        self._connection: Any = None
        self._heard_at = float("-inf")
        # Whether the server process behind the connection is the one that answered it.
        self.is_direct = False
        self._told: set[str] = set()
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self.write_end, False)

    def wake(self) -> None:
        """Wake the sleeping loop, from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self.write_end, b".")

    def close(self) -> None:
        os.close(self._read_end)
        os.close(self.write_end)

    @property
    def is_trusted(self) -> bool:
        """True while notifications are known to get through."""
        return time.monotonic() - self._heard_at < self._trust_seconds

    def listen(self) -> bool:
        """LISTEN on this thread's connection, again after it was replaced; True when it did."""
        wrapper = connections[config().database]
        if wrapper.vendor != "postgresql" or not config().listen:
            return False
        wrapper.ensure_connection()
        if wrapper.connection is self._connection:
            return False
        self._heard_at = float("-inf")
        wrapper.connection.add_notify_handler(self._on_notify)
        with wrapper.cursor() as cursor:
            cursor.execute(f'LISTEN "{CHANNEL}"')
            cursor.execute(f'LISTEN "{self._own}"')
            # A pooler makes up the number that it gives its clients. A notification alone proves
            # little: in transaction mode one may be passed on by chance.
            cursor.execute("SELECT pg_backend_pid()")
            self.is_direct = cursor.fetchone()[0] == wrapper.connection.info.backend_pid
        self._connection = wrapper.connection
        return True

    def _on_notify(self, notification: Any) -> None:
        if notification.channel == self._own:
            self._heard_at = time.monotonic()
            return
        kind, _, queue = notification.payload.partition(":")
        # An ended child's parent may be of any queue.
        if not queue or not self._queues or queue in self._queues:
            self._told.add(kind)

    def wait(self, seconds: float) -> None:
        """Sleep until woken, notified or `seconds` have passed."""
        if self._told:
            return
        sources = [self._read_end]
        connection = self._connection
        if connection is not None and not connection.closed:
            sources.append(connection.fileno())
        ready, _, _ = select.select(sources, [], [], max(0.0, seconds))
        if self._read_end in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read_end, 65536)
        if len(ready) > (self._read_end in ready):
            self._consume(connection.pgconn)

    def _consume(self, pgconn: Any) -> None:
        # A connection that the server has closed is readable too: the next statement says so.
        from psycopg import OperationalError

        try:
            pgconn.consume_input()
        except OperationalError:
            connections[config().database].close()
            self._connection = None
            return
        while (notification := pgconn.notifies()) is not None:
            self._on_notify(_Decoded(notification))

    def take_told(self) -> set[str]:
        """Kinds of notifications since the last call."""
        told, self._told = self._told, set()
        return told


class _Decoded:
    """libpq's notification with text instead of bytes."""

    def __init__(self, raw: Any) -> None:
        self.channel = raw.relname.decode()
        self.payload = raw.extra.decode(errors="replace")
