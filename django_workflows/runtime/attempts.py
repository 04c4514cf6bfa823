"""One attempt of a step's function: bounded in time, and kept apart from the caller's writes."""

from __future__ import annotations

import ctypes
import logging
import threading
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.db.utils import DatabaseError

from django_workflows.telemetry import emit

# How long an attempt that is told to stop may take before its thread is left to itself.
GRACE = 2.0

# What user code may raise and a run survives: not what stops this process (KeyboardInterrupt), nor
# a suspension, but what libraries raise past `except Exception`.
FAILURES = (Exception, SystemExit, GeneratorExit, CancelledError)


class StepTimeout(Exception):
    """An attempt took longer than the step's timeout."""


def call(fn: Callable[[], Any], timeout: float | None) -> Any:
    """Call `fn`, at most `timeout` seconds."""
    return fn() if timeout is None else _bounded(fn, timeout)


class _Attempt(threading.Thread):
    """Runs a function on the caller's database connections, so that `atomic` holds for it."""

    def __init__(self, fn: Callable[[], Any]) -> None:
        super().__init__(daemon=True, name="django_workflows-attempt")
        self._fn = fn
        self.result: Any = None
        self.error: BaseException | None = None
        self._shared = list(connections.all(initialized_only=True))

    def run(self) -> None:
        for connection in self._shared:
            connections[connection.alias] = connection
        try:
            self.result = self._fn()
        except BaseException as error:
            self.error = error

    def interrupt(self) -> None:
        """Raise StepTimeout in this thread at its next bytecode."""
        assert self.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(self.ident), ctypes.py_object(StepTimeout)
        )


def _bounded(fn: Callable[[], Any], timeout: float) -> Any:
    attempt = _Attempt(fn)
    with _shared_connections():
        attempt.start()
        attempt.join(timeout)
        if attempt.is_alive():
            attempt.interrupt()
            attempt.join(GRACE)
            late = StepTimeout(f"the attempt took longer than its timeout of {timeout:g} s")
            if attempt.is_alive():
                _abandon()
            raise late
    if attempt.error is not None:
        raise attempt.error
    return attempt.result


@contextmanager
def _shared_connections() -> Iterator[None]:
    held = list(connections.all(initialized_only=True))
    for connection in held:
        connection.inc_thread_sharing()
    try:
        yield
    finally:
        for connection in held:
            connection.dec_thread_sharing()


def _abandon() -> None:
    # The thread still holds these connections and can't be stopped (native code). Give this
    # thread new ones; closing the old ones from here makes the other's next query fail.
    emit("step.abandoned", logging.WARNING)
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
            del connections[connection.alias]


@contextmanager
def sheltered(alias: str) -> Iterator[None]:
    """Inside a caller's transaction (tests, `resume`), keep a function's database error from
    spoiling it; outside one, nothing."""
    connection = connections[alias]
    if not connection.in_atomic_block:
        yield
        return
    point = str(connection.savepoint())
    try:
        yield
    except BaseException as error:
        if connection.needs_rollback or isinstance(error, DatabaseError):
            connection.needs_rollback = False
            connection.savepoint_rollback(point)
        else:
            connection.savepoint_commit(point)
        raise
    connection.savepoint_commit(point)
