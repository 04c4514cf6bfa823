"""The offset that tests put on "now". Everywhere else the time is the database's."""

from __future__ import annotations

_offset = 0.0


def offset() -> float:
    """Seconds that the workflow clock is ahead of the database's; zero outside tests."""
    return _offset


def set_offset(seconds: float) -> None:
    """Move the workflow clock of this process, for `django_workflows.testing.advance`."""
    global _offset
    _offset = seconds
