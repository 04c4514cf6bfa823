"""Signatures of webhooks: HMAC-SHA256 of the body, in hexadecimal, by a secret that both know."""

from __future__ import annotations

import hashlib
import hmac

from django.conf import settings

HEADER = "X-Helpdesk-Signature"


def sign(body: bytes) -> str:
    return hmac.new(settings.HELPDESK_WEBHOOK_SECRET.encode(), body, hashlib.sha256).hexdigest()


def is_signed(body: bytes, signature: str) -> bool:
    """Whether the signature is the secret's owner's. Without a secret nothing is."""
    if not settings.HELPDESK_WEBHOOK_SECRET:
        return False
    # In constant time, so that nobody can guess it digit by digit. As bytes, since text that isn't
    # ASCII would raise.
    return hmac.compare_digest(sign(body).encode(), signature.encode())
