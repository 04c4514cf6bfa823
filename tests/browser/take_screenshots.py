"""Pictures of the main pages for the docs: `make screenshots` writes them to docs/images/.

Not collected with the suite; they are looked at by people, and made again when a page changes.
"""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.urls import reverse
from django.utils import timezone

from django_workflows import (
    NonRetryableError,
    RetryPolicy,
    payloads,
    send_message,
    step,
    workflow,
)
from django_workflows.db import clock
from django_workflows.models import WorkflowMessage, WorkflowRun, WorkflowStep, WorkflowWorker
from django_workflows.registry import registry
from django_workflows.testing import advance, reset_clock, run_until_idle
from testproject.shop.models import Order
from testproject.shop.workflows import fulfil_order
from tests.admin import forms
from tests.browser.conftest import STAFF

pytestmark = pytest.mark.django_db(transaction=True)

IMAGES = Path(os.environ.get("IMAGES", Path(__file__).parents[2] / "docs/images"))
MOST_BYTES = 150_000
TALLEST = 1_050
SIZE = {"width": 1280, "height": 800}
TRIES = []


def unreliable():
    TRIES.append(1)
    if len(TRIES) < 3:
        raise ConnectionError("carrier.example: connection timed out after 10 s")
    return {"parcel": "P-20931", "weight": "1.2 kg"}


def refused():
    raise NonRetryableError("the address can't be delivered to")


@workflow(name="shop.send_parcel")
def send_parcel(ctx, order):
    ctx.set_state(doing="Waiting for the pick-up", done=2, total=5)
    ctx.step("book", step(unreliable, retry=RetryPolicy(max_attempts=5, jitter=False)))
    ctx.wait_for_message("picked-up")
    ctx.set_state(doing="On its way", done=3)
    ctx.sleep(timedelta(hours=6))
    ctx.set_state(doing="Waiting for the delivery", done=4)
    ctx.wait_for_message("delivered", schema=forms.Address)


@workflow(name="shop.check_address")
def check_address(ctx, order):
    ctx.step("look-up", refused)


@workflow(name="shop.pay_invoice")
def pay_invoice(ctx, invoice):
    ctx.wait_for_approval(
        "accounting",
        approvers="accounting",
        form=forms.Amount,
        title=f"Pay invoice {invoice} of Leaf & Sons?",
        description=(
            "The invoice is 12.00 € higher than the order.\n"
            "Please enter the amount that is to be paid."
        ),
        timeout=timedelta(days=14),
    )


@pytest.fixture
def staff(make_person):
    from django.contrib.auth.models import Group

    user = make_person("manager", *STAFF, is_staff=True)
    user.groups.add(Group.objects.create(name="accounting"))
    return user


@pytest.fixture
def scene(staff, teapot):
    """A shop on an ordinary day."""
    for definition in (send_parcel, check_address, pay_invoice):
        registry.register(definition.definition)
    now = timezone.now()
    WorkflowWorker.objects.create(
        name="worker-1",
        host="shop-1",
        pid=4711,
        version="0.1.0",
        queues=["default"],
        workflows=[list(pair) for pair in registry.pairs() if "shop." in pair[0]],
        started_at=now - timedelta(hours=9),
        heartbeat_at=now,
        lease_until=now + timedelta(hours=1),
    )
    WorkflowWorker.objects.create(
        name="worker-2",
        host="shop-2",
        pid=812,
        version="0.1.0",
        queues=["default", "slow"],
        workflows=[],
        started_at=now - timedelta(hours=9),
        heartbeat_at=now - timedelta(minutes=12),
        lease_until=now - timedelta(minutes=11),
    )
    orders = []
    for name in ("Ada", "Grace", "Edsger"):
        order = Order.objects.create(
            customer=name, product=teapot, quantity=2, total="49.80", placed_by=staff
        )
        run = fulfil_order.using(workflow_id=order.workflow_id, subject=order).start(
            order_id=order.pk
        )
        orders.append((order, run))
    parcel = send_parcel.using(workflow_id="parcel/42").start(order="42")
    failed = check_address.using(workflow_id="address/Köln").start(order="43")
    invoice = pay_invoice.using(workflow_id="invoice-2093").start(invoice="2093")
    WorkflowRun.objects.filter(pk=send_parcel.start(order="44").pk).update(
        version="0", problem="", workflow_id="parcel/44"
    )
    runs = [run for _order, run in orders]
    for run in (*runs, failed, invoice):
        run_until_idle(run)
    for _ in range(4):
        run_until_idle(parcel)
        advance(timedelta(minutes=20))
    send_message(parcel, "picked-up", {"driver": "M. Chen", "at": now})
    run_until_idle(parcel)
    advance(timedelta(hours=6))
    send_message(parcel, "weighed", {"kg": "1.2"})
    run_until_idle(parcel)
    _set_back(clock.offset())
    return {"order": orders[0][1], "parcel": parcel, "failed": failed, "invoice": invoice}


def _set_back(seconds):
    """What happened on the workflow clock, which was ahead, happened by now."""
    shift = timedelta(seconds=seconds)
    for model, names in (
        (WorkflowRun, ("created_at", "started_at", "finished_at", "waiting_since", "available_at")),
        (WorkflowStep, ("created_at", "started_at", "finished_at", "wake_at")),
        (WorkflowMessage, ("created_at", "consumed_at")),
    ):
        for row in model.objects.all():
            for name in names:
                value = getattr(row, name)
                if value is not None:
                    setattr(row, name, value - shift)
            row.save()
    for row in WorkflowStep.objects.exclude(details=""):
        details = payloads.load_json(row.details)
        for told in details.get("attempts", ()):
            told["at"] -= seconds
            told["started_at"] -= seconds
        if "message" in details:
            details["message"]["sent_at"] -= seconds
        row.details = payloads.dump_json(details)
        row.save()
    reset_clock()


def shot(page, name, *, theme="light", full=False):
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    page.evaluate("document.activeElement && document.activeElement.blur()")
    IMAGES.mkdir(parents=True, exist_ok=True)
    path = IMAGES / f"{name}.png"
    height = min(TALLEST, page.evaluate("document.documentElement.scrollHeight"))
    clip = {"x": 0, "y": 0, "width": SIZE["width"], "height": height}
    given = {"full_page": True, "clip": clip} if full else {}
    page.screenshot(path=path, animations="disabled", **given)
    assert path.stat().st_size < MOST_BYTES, f"{path} is too large for the repository"


def test_take_pictures_of_the_main_pages(scene, open_page):
    def url(name, *args):
        return reverse(f"admin:django_workflows_{name}", args=args)

    gate = scene["order"].steps.get(kind="approval")
    form_gate = scene["invoice"].steps.get(kind="approval")
    page = open_page("manager", "/admin/", viewport=SIZE)
    places = {
        "index": "/admin/",
        "runs": url("workflowrun_changelist"),
        "run": url("workflowrun_change", scene["parcel"].pk),
        "run-failed": url("workflowrun_change", scene["failed"].pk),
        "run-waiting": url("workflowrun_change", scene["order"].pk),
        "approvals": url("approvalgate_changelist"),
        "approval": url("approvalgate_change", gate.pk),
        "approval-form": url("approvalgate_change", form_gate.pk),
        "send-message": url("workflowrun_send", scene["parcel"].pk),
        "cancel": url("workflowrun_cancel", scene["parcel"].pk),
        "messages": url("workflowmessage_changelist"),
        "workers": url("workflowworker_changelist"),
        "workflows": url("registry"),
        "start": url("start") + "?workflow=testproject.shop.fulfil_order",
        "steps": url("workflowstep_report"),
        "site-approvals": "/approvals/",
        "site-approval": f"/approvals/{gate.pk}/",
    }
    dark = {"run", "approvals", "approval", "runs"}
    only = os.environ.get("ONLY", "").split()
    for name, place in places.items():
        if only and name not in only:
            continue
        page.goto(place)
        full = name.startswith(("run-", "approval-form")) or name == "run"
        shot(page, name, full=full)
        if name in dark or os.environ.get("ALL_DARK"):
            shot(page, f"{name}-dark", theme="dark", full=full)
