"""Services outside of this database, made up: mail, a warehouse, a courier, a lab.

Each does what it is asked once per key, however often it is asked: a step may be called again after
a crash, so what it calls must bear that.
"""

from __future__ import annotations

from django.db.models import F

from .models import ServiceRequest

LOOKS_UNTIL_READY = 3


class MailRefused(Exception):
    """There is no such mailbox."""


class AddressRefused(Exception):
    """The courier doesn't go there."""


def send_mail(to: str, what: str, *, key: str) -> None:
    if to.startswith("nobody@"):
        raise MailRefused(f"{to} doesn't exist")
    _ask("mail", what, key)


def reserve_device(number: str) -> None:
    _ask("warehouse", "reserve", number)


def release_device(number: str) -> None:
    """Undo a reservation; without one, nothing."""
    _ask("warehouse", "release", number)


def book_courier(number: str, address: str) -> None:
    if "PO box" in address:
        raise AddressRefused(f"no delivery to {address}")
    _ask("courier", "book", number)


def cancel_courier(number: str) -> None:
    """Undo a booking; without one, nothing."""
    _ask("courier", "cancel", number)


def request_export(number: str) -> str:
    """Have the lab collect a device's diagnostics, which takes it a while; the export's id."""
    _ask("lab", "export", number)
    return f"export-{number}"


def is_export_ready(export: str) -> bool:
    return _ask("lab", "look", export) >= LOOKS_UNTIL_READY


def _ask(service: str, action: str, key: str) -> int:
    """Number of times that this was asked, this time included."""
    known = ServiceRequest.objects.filter(service=service, action=action, key=key)
    if not known.update(times=F("times") + 1):
        ServiceRequest.objects.create(service=service, action=action, key=key)
    return known.get().times
