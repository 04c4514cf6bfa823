from __future__ import annotations

from django.db import models


class Ticket(models.Model):
    class Status(models.TextChoices):
        OPEN = "open"
        CLOSED = "closed"

    number = models.CharField(max_length=40, unique=True)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.OPEN)
    escalated_at = models.DateTimeField(null=True, blank=True)
    credit = models.DecimalField(max_digits=8, decimal_places=2, default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        permissions = [("approve_credit", "Can approve credits")]

    def __str__(self) -> str:
        return f"Ticket {self.number}"

    @property
    def workflow_id(self) -> str:
        return f"ticket-{self.number}"


class Note(models.Model):
    """What was said about a ticket, in the order of events."""

    ticket = models.ForeignKey(Ticket, models.CASCADE, related_name="notes")
    author = models.CharField(max_length=200)
    text = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.author}: {self.text}"


class ServiceRequest(models.Model):
    """What a service outside of this database was asked to do, once per key."""

    service = models.CharField(max_length=40)
    action = models.CharField(max_length=40)
    key = models.CharField(max_length=200)
    # How often it was asked; what it did, it did once.
    times = models.PositiveIntegerField(default=1)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["service", "action", "key"], name="helpdesk_request_once_per_key"
            )
        ]

    def __str__(self) -> str:
        return f"{self.service}: {self.action} {self.key}"
