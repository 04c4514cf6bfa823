"""One at a time, where no row stands for what is to be locked."""

from __future__ import annotations

from django_workflows.db.base import Dialect

_SERIALIZE = "SELECT pg_advisory_xact_lock(hashtextextended(%(what)s, 0))"


def serialize(d: Dialect, what: str) -> None:
    """Let one caller go at a time, until its transaction ends. SQLite does anyway."""
    if d.vendor == "postgresql":
        d.fetch(_SERIALIZE, what=f"django_workflows.{what}")
