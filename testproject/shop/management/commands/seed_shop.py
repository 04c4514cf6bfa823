from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from testproject.shop.models import Product

# The README tells these to everybody.
PASSWORDS = {"customer": "customer-demo", "manager": "manager-demo", "admin": "admin-demo"}

PRODUCTS = {
    "Teapot": Decimal("24.90"),
    "Bicycle bell": Decimal("12.50"),
    "Garden bench": Decimal("189.00"),
    "Grand piano": Decimal("14500.00"),
}


class Command(BaseCommand):
    help = "Creates the shop's products and its demo users: customer, manager and admin."

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.DEBUG:
            raise CommandError(
                "The demo users' passwords are public, so they are only created with DEBUG on."
            )
        for name, password in PASSWORDS.items():
            self._ensure_user(name, password)
        for name, price in PRODUCTS.items():
            Product.objects.get_or_create(name=name, defaults={"price": price})
        users = ", ".join(f"{name} / {password}" for name, password in PASSWORDS.items())
        self.stdout.write(f"Sign in as: {users}")

    def _ensure_user(self, name: str, password: str) -> None:
        is_admin = name == "admin"
        user, created = get_user_model().objects.get_or_create(
            username=name, defaults={"is_staff": is_admin, "is_superuser": is_admin}
        )
        if created:
            user.set_password(password)
            user.save()
        if name == "manager":
            user.user_permissions.add(
                Permission.objects.get(content_type__app_label="shop", codename="approve_order")
            )
