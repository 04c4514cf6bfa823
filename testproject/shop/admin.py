from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from django_workflows.admin import WorkflowRunInline

from .models import Charge, Order, Product, ProviderCall


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ["name", "price"]
    search_fields = ["name"]


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ["number", "customer", "product", "quantity", "total", "status", "created_at"]
    list_filter = ["status", "created_at"]
    list_select_related = ["product"]
    search_fields = ["number", "customer"]
    inlines = [WorkflowRunInline]
    readonly_fields = [
        "number",
        "product",
        "quantity",
        "total",
        "status",
        "placed_by",
        "created_at",
        "paid_at",
        "shipped_at",
        "charge_ref",
    ]

    # An order that starts here would have no run; the shop's own page places both.
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False


class ReadOnlyAdmin(admin.ModelAdmin):
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Charge)
class ChargeAdmin(ReadOnlyAdmin):
    list_display = ["reference", "order", "amount", "charged_at", "refunded_at"]
    search_fields = ["reference", "order__number"]


@admin.register(ProviderCall)
class ProviderCallAdmin(ReadOnlyAdmin):
    list_display = ["order", "what", "begun_at", "answered_at"]
    list_filter = ["what"]
