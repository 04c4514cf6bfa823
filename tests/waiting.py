"""Wait for conditions, never for a fixed time."""

import threading
import time

from django.db import connections


def eventually(condition, timeout=20.0, pause=0.01):
    """The first true value of `condition()`; fails with its last value after `timeout` seconds."""
    give_up = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < give_up, f"still {value!r} after {timeout} s"
        time.sleep(pause)


def in_threads(*functions, timeout=60.0):
    """Call functions at once, each on connections of its own; their results, or the first error."""
    results = [None] * len(functions)
    errors = []
    barrier = threading.Barrier(len(functions))

    def call(index, function):
        try:
            barrier.wait(timeout)
            results[index] = function()
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [
        threading.Thread(target=call, args=(index, function), daemon=True)
        for index, function in enumerate(functions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]
    return results


def blocked_backends():
    """Number of PostgreSQL backends that wait for a lock."""
    with connections["default"].cursor() as cursor:
        # Within a transaction the first look at the activity would be kept for all later ones.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND datname = current_database()"
        )
        return cursor.fetchone()[0]


class Background:
    """A function called at once in a thread of its own, on connections of its own."""

    def __init__(self, function):
        self._function = function
        self._outcome = None
        self._error = None
        self._thread = threading.Thread(target=self._call, daemon=True)
        self._thread.start()

    def _call(self):
        try:
            self._outcome = self._function()
        except BaseException as error:
            self._error = error
        finally:
            connections.close_all()

    @property
    def is_done(self):
        return not self._thread.is_alive()

    def result(self, timeout=30.0):
        """What the function returned, or raised."""
        self._thread.join(timeout)
        assert self.is_done, f"still busy after {timeout} s"
        if self._error is not None:
            raise self._error
        return self._outcome

    def wait_until_blocked(self):
        """Go on once PostgreSQL says that the thread waits for a lock."""
        eventually(lambda: blocked_backends() or self.is_done)
        assert not self.is_done, f"didn't wait: {self._outcome!r}, {self._error!r}"
        return self
