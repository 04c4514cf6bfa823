"""The DJANGO_WORKFLOWS settings dict: defaults, and the only reader of django.conf.settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

SETTING = "DJANGO_WORKFLOWS"


@dataclass(frozen=True)
class Config:
    """The settings as they stand. Field names in upper case are the keys of the dict."""

    database: str = "default"
    max_payload_bytes: int = 1024 * 1024
    codec: str | None = None
    lease_seconds: float = 30.0
    poll_seconds: float | None = None
    concurrency: int = 16
    shutdown_seconds: float = 30.0
    listen: bool = True
    max_crashes: int = 5


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "DATABASE": ("a key of DATABASES", lambda v: isinstance(v, str) and v in settings.DATABASES),
    "MAX_PAYLOAD_BYTES": ("an int of at least 1", _is_count),
    "CODEC": ("None or a dotted path", lambda v: v is None or (isinstance(v, str) and "." in v)),
    "LEASE_SECONDS": ("a number of at least 1", lambda v: _is_number(v) and 1 <= v <= 86400),
    "POLL_SECONDS": (
        "None or a number from 0.01 to 3600",
        lambda v: v is None or (_is_number(v) and 0.01 <= v <= 3600),
    ),
    "CONCURRENCY": ("an int of at least 1", _is_count),
    "SHUTDOWN_SECONDS": ("a number of at least 0", lambda v: _is_number(v) and v >= 0),
    "LISTEN": ("True or False", lambda v: isinstance(v, bool)),
    "MAX_CRASHES": ("an int of at least 1", _is_count),
}


def given() -> Any:
    """What the project's settings hold, unchecked."""
    return getattr(settings, SETTING, {})


def problems() -> list[tuple[str, str]]:
    """Faults of the settings dict as (problem, remedy) pairs; empty when all is well."""
    values = given()
    if not isinstance(values, dict):
        return [(f"{SETTING} must be a dict, not {type(values).__name__}.", "Make it a dict.")]
    found = []
    for key, value in values.items():
        if key not in RULES:
            known = ", ".join(RULES)
            found.append((f"Unknown key {key!r} in {SETTING}.", f"Known keys: {known}."))
        elif not RULES[key][1](value):
            wanted = RULES[key][0]
            found.append(
                (f"{SETTING}[{key!r}] is {value!r}.", f"It must be {wanted}, or left out.")
            )
    return found


@lru_cache(maxsize=1)
def config() -> Config:
    """The settings in force, with defaults for what isn't given."""
    values = given()
    if not isinstance(values, dict):
        return Config()
    names = {field.name.upper(): field.name for field in fields(Config)}
    return Config(**{names[key]: value for key, value in values.items() if key in names})


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == SETTING:
        config.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_workflows.conf")
