"""From order to parcel: charge the card, have a manager approve, ship."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from django_workflows import RetryPolicy, StepFailed, WorkflowContext, step, workflow

from . import payments
from .models import Order

MANAGER = "manager"
APPROVER = "shop.approve_order"


# A crash after the provider took the money calls this again, hence the key: the provider answers
# with the first charge. Without such a key, `at_most_once=True` would be the choice.
@step(retry=RetryPolicy(max_attempts=5, non_retryable=(payments.CardDeclined,)))
def charge_card(order_id: int) -> dict[str, Any]:
    order = Order.objects.get(pk=order_id)
    charge = payments.charge(order, idempotency_key=order.workflow_id)
    return {"reference": charge.reference, "amount": charge.amount}


# What the approver is shown comes out of a step: a query in the body could answer differently when
# the run goes on in a week.
@step(atomic=True)
def mark_paid(order_id: int, reference: str) -> dict[str, str]:
    Order.objects.filter(pk=order_id).update(
        status=Order.Status.PAID, paid_at=timezone.now(), charge_ref=reference
    )
    order = Order.objects.select_related("product").get(pk=order_id)
    return {
        "title": f"Ship order {order.number}?",
        "description": (
            f"{order.quantity} x {order.product.name} for {order.customer}, {order.total} € paid."
        ),
    }


@step(atomic=True)
def mark_declined(order_id: int) -> None:
    Order.objects.filter(pk=order_id).update(status=Order.Status.DECLINED)


@step
def refund(order_id: int, reference: str) -> None:
    payments.refund(Order.objects.get(pk=order_id), reference)


@step(atomic=True)
def mark_refunded(order_id: int) -> None:
    Order.objects.filter(pk=order_id).update(status=Order.Status.REFUNDED)


@step(atomic=True)
def ship(order_id: int) -> None:
    Order.objects.filter(pk=order_id).update(status=Order.Status.SHIPPED, shipped_at=timezone.now())


@workflow
def fulfil_order(ctx: WorkflowContext, order_id: int) -> dict[str, Any]:
    ctx.set_state(doing="Charging the card", done=0, total=4)
    try:
        charge = ctx.step("charge", charge_card, order_id)
    except StepFailed as failure:
        ctx.step("mark-declined", mark_declined, order_id)
        ctx.set_state(doing="Declined", done=4)
        return {"status": "declined", "reason": failure.message}
    asked = ctx.step("mark-paid", mark_paid, order_id, charge["reference"])

    ctx.set_state(doing="Waiting for a manager's approval", done=1)
    decision = ctx.wait_for_approval(
        MANAGER,
        permission=APPROVER,
        title=asked["title"],
        description=asked["description"],
        timeout=timedelta(days=7),
    )
    if decision is None or not decision.approved:
        ctx.set_state(doing="Giving the money back", done=2)
        ctx.step("refund", refund, order_id, charge["reference"])
        ctx.step("mark-refunded", mark_refunded, order_id)
        ctx.set_state(doing="Refunded", done=4)
        reason = "nobody decided in time" if decision is None else decision.comment
        return {"status": "refunded", "reason": reason}

    ctx.set_state(doing="Cooling off before it ships", done=2)
    ctx.sleep(settings.SHOP_COOLING_OFF)
    ctx.set_state(doing="Shipping", done=3)
    ctx.step("ship", ship, order_id)
    ctx.set_state(doing="Shipped", done=4)
    return {"status": "shipped", "charge": charge["reference"]}
