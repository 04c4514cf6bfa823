"""What is kept of an exception: plain text, so that nothing has to be rebuilt or unpickled."""

from __future__ import annotations

import re
from traceback import TracebackException

from django_workflows.exceptions import describe
from django_workflows.payloads.codecs import seal, unseal
from django_workflows.payloads.text import dump_json, load_json

MAX_MESSAGE = 10_000
MAX_TRACEBACK = 50_000
# A traceback repeats the message of each exception of the chain; uncut, one of 1 MB would push
# every frame out of the tail that is kept.
MAX_TRACEBACK_ENTRY = 2_000

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def encode_error(exc: BaseException) -> dict[str, str]:
    """The parts of an exception that are stored.

    Returns: `type` (class name), `message` (the first 10,000 characters, then its full size) and
        `traceback` (the last 50,000 characters). NUL and lone surrogates become U+FFFD.
    """
    told = describe(exc)
    return {
        "type": _replace_unstorable(told["type"]),
        "message": _replace_unstorable(_cut(told["message"], MAX_MESSAGE)),
        "traceback": _replace_unstorable(_format_traceback(exc)),
    }


def dump_error(error: dict[str, str]) -> str:
    """The text to store for what `encode_error` returned; sealed, as tracebacks hold secrets."""
    return seal(dump_json(error))


def load_error(text: str) -> dict[str, str]:
    """The inverse of `dump_error`."""
    error: dict[str, str] = load_json(unseal(text))
    return error


def _replace_unstorable(text: str) -> str:
    return text if text.isascii() and "\x00" not in text else _UNSTORABLE.sub("\ufffd", text)


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[:size]}… (cut; {len(text):,} characters in all)"


def _format_traceback(exc: BaseException) -> str:
    try:
        entries = list(TracebackException.from_exception(exc, compact=True).format())
    except Exception as broken:
        return f"<the traceback can't be shown: {type(broken).__name__}>\n"
    text = "".join(f"{_cut(entry.rstrip(), MAX_TRACEBACK_ENTRY)}\n" for entry in entries)
    if len(text) <= MAX_TRACEBACK:
        return text
    return f"(the last {MAX_TRACEBACK:,} of {len(text):,} characters)\n…{text[-MAX_TRACEBACK:]}"


def clean_text(text: str) -> str:
    """Text that people gave, cut and without what PostgreSQL can't store."""
    return _replace_unstorable(_cut(text, MAX_MESSAGE))
