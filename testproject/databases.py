"""DATABASES entries from DATABASE_URL, with what SQLite needs to serve several processes."""

from typing import Any

import environ


def database(env: environ.Env, *, default: str) -> dict[str, Any]:
    """One entry of DATABASES, from DATABASE_URL or else from the `default` URL.

    Settings given in the URL itself (`?timeout=5`) are kept.
    """
    url = env.str("DATABASE_URL", default="") or default
    settings: dict[str, Any] = env.db_url_config(url)
    if settings["ENGINE"] == "django.db.backends.sqlite3":
        settings["OPTIONS"] = {
            # A transaction that starts as a reader can't become a writer once another process has
            # written: SQLite refuses at once, without waiting for the timeout.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            # Pages go on reading while a worker writes. `synchronous` is spelled out because the
            # usual companion of WAL, NORMAL, may forget the last commits when the power fails, and
            # a step that was recorded as done must stay done.
            "init_command": "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;",
            **settings.get("OPTIONS", {}),
        }
    return settings
