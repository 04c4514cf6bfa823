from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required, permission_required
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_POST

from django_workflows import (
    Approval,
    ApprovalDenied,
    GateDecided,
    RunFinished,
    RunNotFound,
    approve,
    get_run,
    reject,
)

from .forms import DecisionForm, OrderForm
from .models import Order
from .workflows import APPROVER, MANAGER, fulfil_order


@require_GET
@login_required
def orders(request: HttpRequest) -> HttpResponse:
    return render(request, "shop/orders.html", {"orders": _orders_for(request)[:100]})


@login_required
def place_order(request: HttpRequest) -> HttpResponse:
    form = OrderForm(request.POST or None)
    if request.method != "POST" or not form.is_valid():
        return render(request, "shop/place_order.html", {"form": form})
    order: Order = form.save(commit=False)
    order.placed_by = request.user
    order.total = order.product.price * order.quantity
    # Order and run are there together or not at all; no worker sees either before the commit.
    with transaction.atomic():
        order.save()
        fulfil_order.using(workflow_id=order.workflow_id, subject=order).start(order_id=order.pk)
    return redirect(order)


@require_GET
@login_required
def order_page(request: HttpRequest, number: str) -> HttpResponse:
    order = get_object_or_404(_orders_for(request), number=number)
    return render(request, "shop/order.html", _progress(request, order))


@require_GET
@login_required
def order_progress(request: HttpRequest, number: str) -> HttpResponse:
    """The part of the order page that changes, for its script to fetch."""
    order = get_object_or_404(_orders_for(request), number=number)
    return render(request, "shop/_progress.html", _progress(request, order))


# The gate checks the permission too, but only once the run has reached it. What comes earlier is
# kept unchecked until then, so the door is here.
@require_POST
@login_required
@permission_required(APPROVER, raise_exception=True)
def decide(request: HttpRequest, number: str) -> HttpResponse:
    """Approve or reject, whether the run waits for it already or gets there later."""
    order = get_object_or_404(Order, number=number)
    form = DecisionForm(request.POST)
    if not form.is_valid():
        messages.error(request, "Please choose to approve or to reject.")
        return redirect(order)
    chosen = form.cleaned_data["decision"]
    act = approve if chosen == "approve" else reject
    try:
        act(
            get_run(workflow_id=order.workflow_id),
            MANAGER,
            by=request.user,
            comment=form.cleaned_data["comment"],
            # Two clicks on one button are one decision; the other button, or another manager, is
            # told who was first.
            idempotency_key=f"{chosen}:{order.number}:{request.user.pk}",
        )
    except ApprovalDenied as denied:
        raise PermissionDenied(str(denied)) from denied
    except GateDecided as decided:
        messages.warning(request, _already(decided.approval))
    except RunFinished:
        messages.error(request, "This order is closed, so there is nothing left to decide.")
    except RunNotFound:
        messages.error(request, "Nothing is under way for this order.")
    else:
        messages.success(request, f"You have {_past(approved=act is approve)} this order.")
    return redirect(order)


def _already(approval: Approval | None) -> str:
    if approval is None:
        return "It is too late to decide on this order."
    return f"{approval.by.text} had already {_past(approved=approval.approved)} this order."


def _past(*, approved: bool) -> str:
    return "approved" if approved else "rejected"


def _orders_for(request: HttpRequest) -> QuerySet[Order]:
    visible = Order.objects.select_related("product", "placed_by")
    if not request.user.has_perm(APPROVER):
        visible = visible.filter(placed_by=request.user)
    return visible


def _progress(request: HttpRequest, order: Order) -> dict[str, Any]:
    context: dict[str, Any] = {
        "order": order,
        "provider_calls": order.provider_calls.all(),
        "charges": order.charges.all(),
    }
    try:
        run = get_run(workflow_id=order.workflow_id)
    except RunNotFound:
        return context
    inbox = list(run.messages.select_related("consumed_by").order_by("id"))
    # One that was refused at the gate decides nothing; the gate goes on waiting.
    decision = next((message for message in inbox if not message.refused), None)
    return {
        **context,
        "run": run,
        "steps": run.steps.all(),
        "inbox": inbox,
        "decision": decision,
        "may_decide": (
            decision is None and not run.is_finished and request.user.has_perm(APPROVER)
        ),
    }
