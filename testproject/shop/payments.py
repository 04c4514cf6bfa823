"""A made-up payment provider: slow, idempotent by key, and it counts what it was asked."""

from __future__ import annotations

import time
from decimal import Decimal

from django.conf import settings
from django.utils import timezone
from django.utils.crypto import get_random_string

from .models import Charge, Order, ProviderCall

CARD_LIMIT = Decimal(10_000)


class CardDeclined(Exception):
    """Asking again won't help."""


def charge(order: Order, *, idempotency_key: str) -> Charge:
    """Take the order's total from the customer's card, once per key."""
    call = ProviderCall.objects.create(order=order, what="charge")
    if order.total > CARD_LIMIT:
        raise CardDeclined(f"{order.total} € is over the card's limit of {CARD_LIMIT} €")
    taken, _ = Charge.objects.get_or_create(
        idempotency_key=idempotency_key,
        defaults={
            "order": order,
            "amount": order.total,
            "reference": f"ch_{get_random_string(12)}",
        },
    )
    # The money is gone and the answer is still on its way: the worst moment for a crash.
    time.sleep(settings.SHOP_CHARGE_SECONDS)
    _answer(call)
    return taken


def refund(order: Order, reference: str) -> None:
    """Give back what a charge has taken; a second time changes nothing."""
    call = ProviderCall.objects.create(order=order, what="refund")
    Charge.objects.filter(reference=reference, refunded_at=None).update(refunded_at=timezone.now())
    _answer(call)


def _answer(call: ProviderCall) -> None:
    call.answered_at = timezone.now()
    call.save(update_fields=["answered_at"])
