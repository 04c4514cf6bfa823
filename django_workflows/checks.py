"""System checks with stable ids: the problem in the message, the remedy in the hint."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from django_workflows import conf, payloads
from django_workflows.registry import registry


def check_settings(**kwargs: Any) -> list[checks.CheckMessage]:
    """E001: a fault in DJANGO_WORKFLOWS. E003: its codec can't be used."""
    found: list[checks.CheckMessage] = [
        checks.Error(problem, hint=remedy, id="django_workflows.E001")
        for problem, remedy in conf.problems()
    ]
    if not found:
        try:
            payloads.codec()
        except ImproperlyConfigured as error:
            hint = "Give the dotted path of a class with encode(str) -> str and decode(str) -> str."
            found.append(checks.Error(str(error), hint=hint, id="django_workflows.E003"))
    return found


def check_registry(**kwargs: Any) -> list[checks.CheckMessage]:
    """E002: two functions claim one name and version."""
    return [
        checks.Error(
            f"Workflow {name!r} version {version!r} is registered by both {first} and {second}.",
            hint="Give one of them another name= or version=.",
            id="django_workflows.E002",
        )
        for (name, version), (first, second) in registry.clashes().items()
    ]


def check_database(**kwargs: Any) -> list[checks.CheckMessage]:
    """W001: SQLite without immediate transactions. E004: a database that isn't supported."""
    alias = conf.config().database
    database = settings.DATABASES.get(alias)
    if database is None:
        return []
    engine = database["ENGINE"]
    if "sqlite" in engine:
        options = database.get("OPTIONS", {})
        if str(options.get("transaction_mode", "")).upper() in ("IMMEDIATE", "EXCLUSIVE"):
            return []
        return [
            checks.Warning(
                f"SQLite database {alias!r} opens deferred transactions, so a view that reads and "
                "then starts a run or sends a message can fail with 'database is locked'.",
                hint="Set OPTIONS: {'transaction_mode': 'IMMEDIATE', 'timeout': 20} and WAL mode.",
                id="django_workflows.W001",
            )
        ]
    if "mysql" in engine or "oracle" in engine:
        return [
            checks.Error(
                f"Database {alias!r} ({engine}) isn't supported by django_workflows.",
                hint="Use PostgreSQL 14 or newer, or SQLite; DJANGO_WORKFLOWS['DATABASE'] can "
                "name another database than the project's default.",
                id="django_workflows.E004",
            )
        ]
    return []


def register_checks() -> None:
    """Make the checks known to Django; called once, when the app is ready."""
    checks.register(check_settings, "django_workflows")
    checks.register(check_registry, "django_workflows")
    checks.register(check_database, checks.Tags.compatibility)
