"""Alias → dialect."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_workflows.conf import config
from django_workflows.db.base import Dialect
from django_workflows.db.postgresql import PostgreSQL
from django_workflows.db.sqlite import SQLite

_KINDS: dict[str, type[Dialect]] = {"postgresql": PostgreSQL, "sqlite": SQLite}
_dialects: dict[tuple[str, str], Dialect] = {}


def dialect(alias: str | None = None) -> Dialect:
    """The dialect of a database alias; by default of the one that holds the workflows.

    Raises:
        ImproperlyConfigured: neither PostgreSQL nor SQLite.
    """
    alias = alias or config().database
    vendor = connections[alias].vendor
    found = _dialects.get((alias, vendor))
    if found is None:
        kind = _KINDS.get(vendor)
        if kind is None:
            raise ImproperlyConfigured(
                f"django_workflows can't use {vendor!r} (database {alias!r}). Name a PostgreSQL or "
                "SQLite database in DJANGO_WORKFLOWS['DATABASE']."
            )
        found = _dialects[alias, vendor] = kind(alias)
    return found
