"""Values in, text out, and back: the only place that calls json.

A payload is strict ASCII JSON in a text column: PostgreSQL's jsonb changes key order, `1e16` and
`-0.0`, and refuses NUL. What JSON lacks is written as a tag, see `payloads.tags`.
"""

from __future__ import annotations

from typing import Any

from django_workflows.conf import config
from django_workflows.exceptions import PayloadError
from django_workflows.payloads.codecs import Codec, codec, seal, unseal
from django_workflows.payloads.errors import clean_text, dump_error, encode_error, load_error
from django_workflows.payloads.pretty import pretty, readable
from django_workflows.payloads.tags import IMMUTABLE_JSON, dump_payload, load_payload
from django_workflows.payloads.text import dump_json, load_json

__all__ = [
    "Codec",
    "Encoded",
    "clean_text",
    "codec",
    "decode",
    "dump_error",
    "dump_json",
    "encode",
    "encode_error",
    "load_error",
    "load_json",
    "pretty",
    "readable",
    "roundtrip",
    "seal",
    "unseal",
]


class Encoded(str):
    """Text that `encode` has made already, so that a PayloadField stores it as it is."""

    __slots__ = ()


def encode(value: Any, where: str = "data") -> str:
    """The text to store for a value.

    Args:
        value: JSON types, Decimal, datetime, date, time, timedelta, UUID, bytes, tuple, set,
            frozenset and Enum members, nested at most 256 levels deep.
        where: what error paths call the value.

    Raises: PayloadError, naming the place in the value and the remedy, for any other type and for
        more than MAX_PAYLOAD_BYTES of JSON (measured before the codec).
    """
    return seal(_dump_within_limit(value, where))


def decode(text: str) -> Any:
    """The value that `encode` made `text` from, equal in value and type.

    Raises: PayloadError if the text can't be read, say because its Enum class is gone.
    """
    return load_payload(unseal(text))


def roundtrip(value: Any, where: str = "data") -> tuple[str, Any]:
    """`value` encoded, and as a replay will see it: never an alias of something mutable.

    The second part is read from the JSON text; a codec is trusted to be its own inverse.
    Raises: PayloadError as `encode` does.
    """
    text = _dump_within_limit(value, where)
    seen = value if type(value) in IMMUTABLE_JSON else load_payload(text)
    return seal(text), seen


def _dump_within_limit(value: Any, where: str) -> str:
    text = dump_payload(value, where)
    limit = config().max_payload_bytes
    if len(text) > limit:
        raise PayloadError(
            where,
            f"{len(text):,} bytes as JSON; at most MAX_PAYLOAD_BYTES ({limit:,}) can be stored; "
            "keep the data in a model or a file and pass its id, or raise the setting",
        )
    return text
