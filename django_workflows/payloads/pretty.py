"""Values as people read them: indented JSON, with the types that JSON lacks as their text."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

# What no page can carry: C0 controls but tab and newline, and lone surrogates, which UTF-8 lacks.
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def readable(text: str) -> str:
    """`text` with what can't be shown as `\\uXXXX`."""
    return _UNREADABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def pretty(value: Any) -> str:
    """`value` as indented JSON for people; not meant to be read back."""
    return readable(json.dumps(_plain(value), indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {
            key if isinstance(key, str) else str(key): _plain(item) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item) for item in value), key=repr)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    return str(value)
