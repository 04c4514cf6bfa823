"""Strict, compact ASCII JSON without tags."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

# Built once: json.dumps with arguments makes a new encoder at each call. Cycles are caught by the
# depth limit of the walks that go first.
ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
DECODER = json.JSONDecoder()


def dump_json(value: Any) -> str:
    """The text of the package's own small data: no tags, no codec, no size limit."""
    return ENCODER.encode(value)


def load_json(text: str) -> Any:
    """The inverse of `dump_json`."""
    return DECODER.decode(text)


def decoder_with(untag: Callable[[dict[str, Any]], Any]) -> Callable[[str], Any]:
    """A `load_json` that hands every object to `untag`, the innermost first."""
    return json.JSONDecoder(object_hook=untag).decode
