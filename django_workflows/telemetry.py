"""Names of what happens, logged under `django_workflows.<what>`; tests subscribe to wait or pause.

An event is `noun.verb` in the past tense (`message.stored`, `run.parked`, `lease.lost`). Emitting
costs a dictionary look-up when nobody listens, so the hot path may emit freely.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Listener = Callable[[str, dict[str, Any]], None]

_listeners: dict[str, list[Listener]] = {}
_loggers: dict[str, logging.Logger] = {}


def emit(event: str, level: int = logging.DEBUG, **fields: Any) -> None:
    """Log `event` with its fields and call whoever subscribed to it, in this thread."""
    logger = _loggers.get(event)
    if logger is None:
        logger = _loggers[event] = logging.getLogger(f"django_workflows.{event.split('.')[0]}")
    if logger.isEnabledFor(level):
        told = " ".join(f"{key}={value}" for key, value in fields.items())
        logger.log(level, "%s %s", event, told, extra={"event": event, "fields": fields})
    if _listeners:
        for listener in (*_listeners.get(event, ()), *_listeners.get("*", ())):
            listener(event, fields)


@contextmanager
def subscribed(event: str, listener: Listener) -> Iterator[None]:
    """Call `listener(event, fields)` at each `event` (`"*"`: at all) while the block runs."""
    _listeners.setdefault(event, []).append(listener)
    try:
        yield
    finally:
        _listeners[event].remove(listener)
        if not _listeners[event]:
            del _listeners[event]
