from __future__ import annotations

from decimal import Decimal

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.urls import reverse
from django.utils.crypto import get_random_string

# Without the characters that are mistaken for each other when a number is read out loud.
ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"


def new_number() -> str:
    return get_random_string(8, ALPHABET)


class Product(models.Model):
    name = models.CharField(max_length=100, unique=True)
    price = models.DecimalField(
        max_digits=8, decimal_places=2, validators=[MinValueValidator(Decimal("0.01"))]
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return f"{self.name}, {self.price} €"


class Order(models.Model):
    class Status(models.TextChoices):
        PLACED = "placed"
        PAID = "paid"
        SHIPPED = "shipped"
        REFUNDED = "refunded"
        DECLINED = "declined"

    number = models.CharField(max_length=20, unique=True, default=new_number, editable=False)
    customer = models.CharField("deliver to", max_length=100)
    product = models.ForeignKey(Product, models.PROTECT, related_name="orders")
    quantity = models.PositiveIntegerField(
        default=1, validators=[MinValueValidator(1), MaxValueValidator(1000)]
    )
    total = models.DecimalField(max_digits=12, decimal_places=2, editable=False)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PLACED)
    placed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, related_name="orders", editable=False
    )
    created_at = models.DateTimeField(auto_now_add=True)
    paid_at = models.DateTimeField(null=True, blank=True)
    shipped_at = models.DateTimeField(null=True, blank=True)
    charge_ref = models.CharField(max_length=40, blank=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        permissions = [("approve_order", "Can approve or reject orders")]

    def __str__(self) -> str:
        return f"Order {self.number}"

    def get_absolute_url(self) -> str:
        return reverse("shop:order", args=[self.number])

    @property
    def workflow_id(self) -> str:
        """What makes starting this order's fulfilment twice the same as once."""
        return f"order-{self.number}"


class Charge(models.Model):
    """What the payment provider has taken. It stands for a service outside of this database."""

    reference = models.CharField(max_length=40, unique=True)
    order = models.ForeignKey(Order, models.CASCADE, related_name="charges")
    idempotency_key = models.CharField(max_length=100, unique=True)
    amount = models.DecimalField(max_digits=12, decimal_places=2)
    charged_at = models.DateTimeField(auto_now_add=True)
    refunded_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.reference


class ProviderCall(models.Model):
    """The provider's log of requests, also of those whose caller didn't live to hear the answer."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="provider_calls")
    what = models.CharField(max_length=20)
    begun_at = models.DateTimeField(auto_now_add=True)
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.what} for {self.order}"
