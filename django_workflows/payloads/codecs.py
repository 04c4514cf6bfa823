"""The project's codec around stored payloads, for encryption or compression."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_workflows.conf import SETTING, config


class Codec(Protocol):
    """What the class at DJANGO_WORKFLOWS["CODEC"] offers; made once, without arguments."""

    def encode(self, text: str, /) -> str:
        """The text to store for `text`; without NUL and lone surrogates, which databases refuse."""

    def decode(self, text: str, /) -> str:
        """The inverse of `encode`."""


def seal(text: str) -> str:
    """`text` as the codec wants it stored."""
    active = codec()
    return text if active is None else _check(active.encode(text), "encode")


def unseal(text: str) -> str:
    """The inverse of `seal`."""
    active = codec()
    return text if active is None else _check(active.decode(text), "decode")


def _check(text: Any, method: str) -> str:
    if not isinstance(text, str):
        raise ImproperlyConfigured(
            f"{SETTING}['CODEC'] is {config().codec!r}, whose {method}() returned "
            f"{type(text).__name__}. It must return str; for bytes use base64."
        )
    return text


@lru_cache(maxsize=1)
def codec() -> Codec | None:
    """The project's codec, made once. Raises: ImproperlyConfigured if there is no such class."""
    path = config().codec
    if path is None:
        return None
    try:
        loaded: Codec = import_string(path)()
    except Exception as exc:
        raise ImproperlyConfigured(
            f"{SETTING}['CODEC'] is {path!r}, which can't be imported and called without "
            f"arguments: {type(exc).__name__}: {exc}"
        ) from exc
    if not all(callable(getattr(loaded, method, None)) for method in ("encode", "decode")):
        raise ImproperlyConfigured(
            f"{SETTING}['CODEC'] is {path!r}, which lacks encode(str) -> str or decode(str) -> str."
        )
    return loaded


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == SETTING:
        codec.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_workflows.payloads")
