"""Processes, signals of the operating system, autoreload."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from django.db import connections
from django.utils import autoreload

from django_workflows.worker.loop import Worker
from django_workflows.worker.options import WorkerOptions

logger = logging.getLogger("django_workflows.worker")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# A child that dies sooner than this is started again only after a pause.
QUICK_DEATH = 5.0


def run(options: WorkerOptions, *, processes: int = 1, reload: bool = False) -> int:
    """Run workers until stopped; the exit code."""
    if reload:
        autoreload.run_with_reloader(_run_reloading, options)
        return 0
    return run_worker(options) if processes == 1 else Supervisor(options, processes).run()


def run_worker(options: WorkerOptions) -> int:
    """Run one worker in this process."""
    worker = Worker(options)
    with _stopped_by_signals(worker):
        code = worker.run()
    if code:
        # Threads are still in user code; waiting for them is what the time-out has ended.
        os._exit(code)
    return code


def _run_reloading(options: WorkerOptions) -> None:
    worker = Worker(options)
    ended = threading.Event()

    def stop() -> None:
        worker.stop()
        ended.wait(options.shutdown_seconds + 1.0)

    # The reloader exits this process from its main thread, which doesn't wait for this one; runs
    # are handed back first.
    atexit.register(stop)
    try:
        worker.run()
    finally:
        ended.set()


@contextmanager
def _stopped_by_signals(worker: Worker) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if worker.is_stopping():
            os._exit(128 + number)
        worker.stop()

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    fd = signal.set_wakeup_fd(worker.wake_fd, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(fd)
        for number, handler in before.items():
            signal.signal(number, handler)


class Supervisor:
    """Forks workers, starts dead ones again, and passes signals on."""

    def __init__(self, options: WorkerOptions, processes: int) -> None:
        self._options = options
        self._processes = processes
        self._children: dict[int, float] = {}
        self._stopping = 0
        # Nobody writes to it: the children see its end when this process is gone.
        self._living, self._alive = os.pipe()

    def run(self) -> int:
        # No connection may cross the fork: two processes would talk over one socket.
        connections.close_all()
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            for _ in range(self._processes):
                self._start_child()
            return self._watch()
        finally:
            os.close(self._living)
            os.close(self._alive)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _start_child(self) -> None:
        # A signal between the fork and the note of it would never reach the child, and one that
        # finds this process's handler in the child would be passed on to its siblings.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            if self._stopping:
                return
            pid = os.fork()
            if pid == 0:
                self._be_child()
            self._children[pid] = time.monotonic()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _be_child(self) -> NoReturn:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.close(self._alive)
        threading.Thread(target=self._outlive, daemon=True, name="workflows-supervisor").start()
        code = 1
        try:
            code = run_worker(self._options)
        except BaseException:
            logger.exception("A worker process failed.")
        finally:
            logging.shutdown()
            os._exit(code)

    def _outlive(self) -> None:
        """In a child: stop when the supervisor was killed; its successor starts its own."""
        os.read(self._living, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    def _watch(self) -> int:
        worst = 0
        while self._children:
            try:
                pid, status = os.wait()
            except InterruptedError:
                continue
            born = self._children.pop(pid, None)
            if born is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            if self._stopping and -code in SIGNALS:
                # It was stopped before it had begun.
                code = 0
            if self._stopping or (self._options.burst and code == 0):
                worst = worst or (abs(code) if code else 0)
                continue
            logger.error("Worker process %d ended with %d; starting another.", pid, code)
            if time.monotonic() - born < QUICK_DEATH:
                time.sleep(1.0)
            self._start_child()
        return worst

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping += 1
        for pid in list(self._children):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
