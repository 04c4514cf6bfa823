"""Fail a process right before or right after one of the package's commits.

Every commit is a point, named after the outermost function of `django_workflows/store/` that leads
to it, and found by looking at the stack: nothing in the package has to announce it, so none can be
forgotten. A commit is the COMMIT of a transaction in which the package wrote, or a statement of
its own that writes in autocommit mode.

LAB_COMMIT=<how>:<when>:<nth>:<point>   how: kill, freeze, cut (the server ends the connection and
                                        nobody hears the outcome); when: before or after;
                                        several with `;` between them.
LAB_TRACE=<file>                        append the name of each point passed.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

import django_workflows
from django_workflows.db.base import Dialect
from django_workflows.db.postgresql import PostgreSQL

PACKAGE = Path(django_workflows.__file__).parent
STORE, DB = PACKAGE / "store", PACKAGE / "db"
_SENDERS = ("base", "postgresql", "sqlite")
# Locks of rows aren't writes, though their words are the same.
_LOCKS = re.compile(r"\bFOR\s+(NO\s+KEY\s+)?UPDATE\b")
_WRITES = re.compile(r"\b(INSERT\s+INTO|UPDATE|DELETE\s+FROM)\b")
# SQLite's way to take the write lock, which changes nothing.
_NOTHING = re.compile(r"^UPDATE \S+ SET crashes = crashes ")
_TABLE = re.compile(r"django_workflows_")


def writes(text: str) -> bool:
    """Whether a statement changes a table of the package."""
    if _NOTHING.match(text) or not _TABLE.search(text):
        return False
    return _WRITES.search(_LOCKS.sub("", text)) is not None


def point(*, is_alone: bool) -> str | None:
    """`module.function` of the outermost function of the store on the stack; for a statement that
    is a commit of its own, with the function of `django_workflows/db/` that sends it."""
    frame = sys._getframe(1)
    found = sent_by = None
    while frame is not None:
        code = frame.f_code
        path = Path(code.co_filename)
        if not code.co_name.startswith("<"):
            if path.parent == DB and path.stem not in _SENDERS:
                sent_by = sent_by or f"{path.stem}.{code.co_name}"
            elif path.parent == STORE and path.stem != "locks":
                found = f"{path.stem}.{code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]
    return f"{found} by {sent_by}" if found and is_alone else found


class _State(threading.local):
    pending: str | None = None
    is_inside = False


_state = _State()


class Failure:
    """What happens at one commit."""

    def __init__(self, how: str, when: str, name: str, nth: int) -> None:
        self._how, self._when, self._name, self._left = how, when, name, nth
        self._lock = threading.Lock()

    def __call__(self, when: str, name: str, wrapper: BaseDatabaseWrapper) -> None:
        if (when, name) != (self._when, self._name):
            return
        with self._lock:
            self._left -= 1
            if self._left != 0:
                return
        if self._how != "cut":
            number = signal.SIGKILL if self._how == "kill" else signal.SIGSTOP
            # To this thread: sent to the process, it would let this one go on for a moment.
            signal.pthread_kill(threading.get_ident(), number)
            return
        _cut(wrapper)
        if when == "after":
            raise OperationalError("server closed the connection unexpectedly (by the lab)")


def _cut(wrapper: BaseDatabaseWrapper) -> None:
    """End the connection at the server's side, as an administrator or a crash would."""
    wrapper.ensure_connection()
    pid = wrapper.connection.info.backend_pid
    other = wrapper.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    finally:
        other.close()
    sys.stderr.write("the lab has cut a connection\n")


class Trace:
    """Writes down each point passed."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, when: str, name: str, wrapper: BaseDatabaseWrapper) -> None:
        if when == "before":
            os.write(self._file, f"{name}\n".encode())


def install() -> None:
    """Do what the environment says."""
    handlers: list[Callable[[str, str, BaseDatabaseWrapper], None]] = []
    if "LAB_TRACE" in os.environ:
        handlers.append(Trace(os.environ["LAB_TRACE"]))
    if "LAB_COMMIT" in os.environ:
        for given in os.environ["LAB_COMMIT"].split(";"):
            how, when, nth, name = given.split(":")
            handlers.append(Failure(how, when, name, int(nth)))
    if handlers:
        _watch(handlers)


def _watch(handlers: list[Callable[[str, str, BaseDatabaseWrapper], None]]) -> None:
    def pass_by(when: str, name: str, wrapper: BaseDatabaseWrapper) -> None:
        for handler in handlers:
            handler(when, name, wrapper)

    def around(wrapper: BaseDatabaseWrapper, text: str, act: Callable[[], Any]) -> Any:
        if _state.is_inside or not writes(text):
            return act()
        name = point(is_alone=not wrapper.in_atomic_block)
        if name is None:
            return act()
        if wrapper.in_atomic_block:
            # The point is passed at the COMMIT, be it the package's own or its caller's.
            _state.pending = name
            return act()
        _state.is_inside = True
        try:
            pass_by("before", name, wrapper)
            result = act()
            pass_by("after", name, wrapper)
            return result
        finally:
            _state.is_inside = False

    for kind in (Dialect, PostgreSQL):
        send = kind.send

        def watched_send(self: Any, text: str, params: Any, send: Any = send) -> Any:
            return around(self.connection, text, lambda: send(self, text, params))

        kind.send = watched_send  # type: ignore[method-assign]

    execute = CursorWrapper.execute

    def watched_execute(self: Any, sql: Any, params: Any = None) -> Any:
        return around(self.db, str(sql), lambda: execute(self, sql, params))

    CursorWrapper.execute = watched_execute  # type: ignore[method-assign]
    commit, rollback = BaseDatabaseWrapper.commit, BaseDatabaseWrapper.rollback

    def watched_commit(self: BaseDatabaseWrapper) -> None:
        name, _state.pending = _state.pending, None
        if name is not None and point(is_alone=False) is None:
            name = f"{name} in its caller's transaction"
        if name is not None:
            pass_by("before", name, self)
        commit(self)
        if name is not None:
            pass_by("after", name, self)

    def watched_rollback(self: BaseDatabaseWrapper) -> None:
        _state.pending = None
        rollback(self)

    BaseDatabaseWrapper.commit = watched_commit  # type: ignore[method-assign]
    BaseDatabaseWrapper.rollback = watched_rollback  # type: ignore[method-assign]
