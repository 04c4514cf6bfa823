"""The demo shop through its pages, with its runs executed in the test's own transaction."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from decimal import Decimal
from io import StringIO
from typing import ClassVar

import factory
import pytest
from django.contrib.auth import authenticate, get_user_model
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from django_workflows import (
    NonRetryableError,
    WorkflowAlreadyStarted,
    WorkflowContext,
    get_run,
    workflow,
)
from django_workflows.models import WorkflowMessage, WorkflowRun
from django_workflows.registry import registry
from django_workflows.testing import advance, run_until_idle, workflow_clock
from testproject.shop import payments
from testproject.shop.models import Charge, Order, Product, ProviderCall

pytestmark = pytest.mark.django_db

COOLING_OFF = timedelta(days=1)


class UserFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = get_user_model()

    username = factory.Sequence(lambda n: f"user-{n}")


class ProductFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Product

    name = factory.Sequence(lambda n: f"Teapot {n}")
    price = Decimal("24.90")


@pytest.fixture(autouse=True)
def clock():
    with workflow_clock():
        yield


def sign_in(user, **options) -> Client:
    client = Client(**options)
    client.force_login(user)
    return client


@pytest.fixture
def customer() -> Client:
    return sign_in(UserFactory(username="ada"))


@pytest.fixture
def manager() -> Client:
    user = UserFactory(username="grace")
    user.user_permissions.add(Permission.objects.get(codename="approve_order"))
    return sign_in(user)


def place(client: Client, **changes) -> Order:
    product = changes.pop("product", None) or ProductFactory()
    fields = {"product": product.pk, "quantity": 2, "customer": "Ada Lovelace", **changes}
    response = client.post(reverse("shop:place"), fields)
    order = Order.objects.latest("pk")
    assert response.status_code == 302
    assert response.url == order.get_absolute_url()
    return order


def decide(client: Client, order: Order, decision: str, comment: str = "") -> str:
    url = reverse("shop:decide", args=[order.number])
    response = client.post(url, {"decision": decision, "comment": comment}, follow=True)
    assert response.redirect_chain == [(order.get_absolute_url(), 302)]
    [told] = response.context["messages"]
    return str(told)


def run_of(order: Order) -> WorkflowRun:
    return get_run(workflow_id=order.workflow_id)


def go_on(order: Order, later: timedelta | None = None) -> WorkflowRun:
    if later:
        advance(later)
    run = run_of(order)
    run_until_idle(run)
    order.refresh_from_db()
    return run


def facts(client: Client, order: Order) -> dict[str, str]:
    response = client.get(reverse("shop:progress", args=[order.number]))
    section = response.content.decode().partition(">")[0]
    return dict(re.findall(r'data-([a-z-]+)="([^"]*)"', section))


def test_placing_an_order_starts_its_run_and_shows_its_page(customer):
    order = place(customer)

    run = run_of(order)
    assert (order.total, order.status, order.placed_by.username) == (
        Decimal("49.80"),
        "placed",
        "ada",
    )
    assert (run.workflow_name, run.status) == ("testproject.shop.fulfil_order", "pending")
    assert run.input == {"order_id": order.pk}
    assert run.subject == order
    assert WorkflowRun.objects.for_subject(order).get() == run
    page = customer.get(order.get_absolute_url())
    assert "Waiting for a worker" in page.content.decode()
    assert order.number in customer.get(reverse("shop:orders")).content.decode()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("quantity", "0"),
        ("quantity", "1001"),
        ("quantity", "two"),
        ("product", "0"),
        ("customer", ""),
    ],
)
def test_an_order_that_makes_no_sense_is_shown_again_and_not_stored(customer, field, value):
    fields = {"product": ProductFactory().pk, "quantity": 1, "customer": "Ada", field: value}

    response = customer.post(reverse("shop:place"), fields)

    assert response.status_code == 200
    assert field in response.context["form"].errors
    assert not Order.objects.exists()
    assert not WorkflowRun.objects.exists()


def test_an_order_whose_run_cannot_be_started_is_not_stored(customer, monkeypatch):
    @workflow(name="tests.somebody_elses")
    def somebody_elses(ctx: WorkflowContext) -> None: ...

    monkeypatch.setattr("testproject.shop.models.get_random_string", lambda *args: "TAKEN")
    try:
        somebody_elses.using(workflow_id="order-TAKEN").start()
        with pytest.raises(WorkflowAlreadyStarted):
            place(customer)
    finally:
        registry.unregister("tests.somebody_elses", "1")

    assert not Order.objects.exists()


def test_an_approval_before_the_run_waits_is_kept_for_it(customer, manager):
    order = place(customer)

    assert decide(manager, order, "approve", "A good customer.") == "You have approved this order."
    message = run_of(order).messages.get()
    assert message.data["approved"] is True
    assert message.data["comment"] == "A good customer."
    assert message.data["by"]["text"] == "grace"
    assert message.consumed_by is None

    run = go_on(order)
    assert (run.status, order.status) == ("suspended", "paid")
    message.refresh_from_db()
    assert (message.consumed_by.kind, message.consumed_by.name) == ("approval", "manager")

    run = go_on(order, later=COOLING_OFF)
    assert (run.status, order.status) == ("completed", "shipped")
    assert run.result == {"status": "shipped", "charge": order.charge_ref}
    assert Charge.objects.get().reference == order.charge_ref


def test_an_approval_after_the_run_waits_wakes_it(customer, manager):
    order = place(customer)
    run = go_on(order)
    assert (run.status, order.status) == ("suspended", "paid")
    assert run.state == {"doing": "Waiting for a manager's approval", "done": 1, "total": 4}
    assert "until" in customer.get(order.get_absolute_url()).content.decode()

    decide(manager, order, "approve")
    go_on(order)
    run = go_on(order, later=COOLING_OFF)

    assert (run.status, order.status) == ("completed", "shipped")
    assert order.shipped_at > order.paid_at
    assert [step.name for step in run.steps.all() if step.kind == "step"] == [
        "charge",
        "mark-paid",
        "ship",
    ]


def test_a_rejection_gives_the_money_back(customer, manager):
    order = place(customer)
    go_on(order)

    assert decide(manager, order, "reject", "Out of stock.") == "You have rejected this order."
    run = go_on(order)

    assert (run.status, order.status) == ("completed", "refunded")
    assert run.result == {"status": "refunded", "reason": "Out of stock."}
    assert Charge.objects.get().refunded_at is not None
    assert "Out of stock." in customer.get(order.get_absolute_url()).content.decode()


def test_an_order_that_nobody_decides_on_is_refunded_after_a_week(customer):
    order = place(customer)
    go_on(order)

    go_on(order, later=timedelta(days=6, hours=23))
    assert order.status == "paid"
    run = go_on(order, later=timedelta(hours=2))

    assert run.result == {"status": "refunded", "reason": "nobody decided in time"}
    assert order.status == "refunded"


def test_a_declined_card_ends_the_order_without_a_second_try(customer):
    order = place(customer, product=ProductFactory(price=Decimal("10000.01")), quantity=1)

    run = go_on(order)

    assert (run.status, order.status) == ("completed", "declined")
    assert run.result["status"] == "declined"
    assert ProviderCall.objects.count() == 1
    assert not Charge.objects.exists()
    page = customer.get(order.get_absolute_url()).content.decode()
    assert "over the card&#x27;s limit" in page


def test_the_first_of_two_decisions_stands(customer, manager):
    order = place(customer)
    decide(manager, order, "approve")

    assert decide(manager, order, "reject") == "grace had already approved this order."

    assert [message.data["approved"] for message in run_of(order).messages.all()] == [True]


def test_a_second_click_on_the_same_button_is_the_same_decision(customer, manager):
    order = place(customer)
    told = [decide(manager, order, "approve") for _ in range(2)]
    go_on(order)

    assert told == ["You have approved this order."] * 2
    assert decide(manager, order, "approve") == told[0]
    assert decide(manager, order, "reject") == "grace had already approved this order."
    assert run_of(order).messages.count() == 1


def test_the_gate_keeps_what_the_approver_was_shown(customer):
    order = place(customer)

    [gate] = go_on(order).steps.filter(kind="approval")

    asked = json.loads(gate.details)["gate"]
    assert asked["title"] == f"Ship order {order.number}?"
    assert asked["description"].endswith("for Ada Lovelace, 49.80 € paid.")


def test_the_ready_made_pages_list_the_gate_and_decide_it(customer, manager):
    order = place(customer)
    [gate] = go_on(order).steps.filter(kind="approval")
    listed = reverse("django_workflows:gates")
    url = reverse("django_workflows:gate", args=[gate.pk])

    assert f"Ship order {order.number}?" in manager.get(listed).content.decode()
    assert f"Ship order {order.number}?" not in customer.get(listed).content.decode()
    page = manager.get(url).context["form"].comment["page"].value()
    manager.post(url, {"decision": "reject", "comment": "No.", "page": page}, follow=True)

    assert go_on(order).result == {"status": "refunded", "reason": "No."}
    assert decide(manager, order, "approve") == "grace had already rejected this order."


def test_an_early_approval_by_someone_who_may_no_longer_decide_is_refused_at_the_gate(
    customer, manager
):
    order = place(customer)
    decide(manager, order, "approve")
    get_user_model().objects.get(username="grace").user_permissions.clear()

    run = go_on(order)

    assert (run.status, order.status) == ("suspended", "paid")
    assert "lacks the permission" in run.messages.get().refused
    page = customer.get(order.get_absolute_url()).content.decode()
    assert "refused: grace lacks the permission" in page
    admin = sign_in(UserFactory(username="admin", is_superuser=True))
    assert decide(admin, order, "approve") == "You have approved this order."
    go_on(order)
    go_on(order, later=COOLING_OFF)
    assert order.status == "shipped"


class Withdrawing(ModelBackend):
    """The permission is taken away between the page's look at it and the gate's."""

    asked: ClassVar[int] = 0

    def has_perm(self, user_obj, perm, obj=None):
        type(self).asked += 1
        return type(self).asked == 1


def test_a_decision_that_the_gate_denies_gets_403_and_nothing_is_stored(
    customer, settings, monkeypatch
):
    order = place(customer)
    go_on(order)
    monkeypatch.setattr(Withdrawing, "asked", 0)
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.Withdrawing"]
    client = sign_in(UserFactory())

    response = client.post(reverse("shop:decide", args=[order.number]), {"decision": "approve"})

    assert (response.status_code, Withdrawing.asked) == (403, 2)
    assert not WorkflowMessage.objects.exists()


def test_a_decision_for_a_closed_order_is_refused(customer, manager):
    order = place(customer, product=ProductFactory(price=Decimal(20_000)))
    go_on(order)

    told = decide(manager, order, "approve")

    assert told == "This order is closed, so there is nothing left to decide."
    assert not WorkflowMessage.objects.exists()


def test_a_decision_that_is_neither_is_refused(customer, manager):
    order = place(customer)

    assert decide(manager, order, "perhaps") == "Please choose to approve or to reject."

    assert not WorkflowMessage.objects.exists()


def test_a_user_without_the_permission_gets_403_and_nothing_is_stored(customer):
    order = place(customer)

    response = customer.post(reverse("shop:decide", args=[order.number]), {"decision": "approve"})

    assert response.status_code == 403
    assert not WorkflowMessage.objects.exists()


@pytest.mark.parametrize("page", ["orders", "place", "order", "progress", "decide"])
def test_every_page_asks_to_sign_in_first(customer, client, page):
    order = place(customer)
    url = reverse(f"shop:{page}", args=[order.number] if page not in ("orders", "place") else [])

    response = client.post(url, {"decision": "approve"}) if page == "decide" else client.get(url)

    assert response.status_code == 302
    assert response.url == f"{reverse('login')}?next={url}"
    assert not WorkflowMessage.objects.exists()


def test_pages_that_write_refuse_a_request_without_a_csrf_token(customer, manager):
    order = place(customer)
    user = get_user_model().objects.get(username="grace")
    strict = sign_in(user, enforce_csrf_checks=True)

    decision = strict.post(reverse("shop:decide", args=[order.number]), {"decision": "approve"})
    placing = strict.post(reverse("shop:place"), {"quantity": 1})

    assert (decision.status_code, placing.status_code) == (403, 403)
    assert not WorkflowMessage.objects.exists()
    assert Order.objects.count() == 1


def test_reading_a_page_never_decides(customer, manager):
    order = place(customer)

    assert manager.get(reverse("shop:decide", args=[order.number])).status_code == 405


def test_orders_of_others_are_hidden_from_customers_and_shown_to_managers(customer, manager):
    order = place(customer)
    other = sign_in(UserFactory())

    for page in ("order", "progress"):
        url = reverse(f"shop:{page}", args=[order.number])
        assert other.get(url).status_code == 404
        assert manager.get(url).status_code == 200
    assert order.number not in other.get(reverse("shop:orders")).content.decode()
    assert order.number in manager.get(reverse("shop:orders")).content.decode()


def test_only_who_may_decide_sees_the_form_and_only_while_there_is_something_to_decide(
    customer, manager
):
    order = place(customer)
    url, action = order.get_absolute_url(), reverse("shop:decide", args=[order.number])

    assert action not in customer.get(url).content.decode()
    assert action in manager.get(url).content.decode()
    decide(manager, order, "approve")
    assert action not in manager.get(url).content.decode()


def test_the_fragment_that_the_page_fetches_follows_the_run(customer, manager):
    order = place(customer)
    before = facts(customer, order)
    go_on(order)
    decide(manager, order, "approve")
    decided = facts(customer, order)
    go_on(order)
    go_on(order, later=COOLING_OFF)

    assert (before["open"], before["decided"], before["run-status"]) == ("yes", "no", "pending")
    assert (decided["open"], decided["decided"], decided["charges"]) == ("yes", "yes", "1")
    assert facts(customer, order) == {
        "open": "no",
        "decided": "yes",
        "order-status": "shipped",
        "run-status": "completed",
        "provider-calls": "1",
        "charges": "1",
    }


def test_a_failed_run_shows_its_error_on_the_page(customer, manager, monkeypatch):
    def out_of_order(*args):
        raise NonRetryableError("The provider is closed.")

    order = place(customer)
    monkeypatch.setattr(payments, "refund", out_of_order)
    decide(manager, order, "reject")

    run = go_on(order)

    assert (run.status, run.error["type"]) == ("failed", "StepFailed")
    assert "The provider is closed." in customer.get(order.get_absolute_url()).content.decode()


def test_an_order_without_a_run_has_a_page_that_says_so(customer, manager):
    user = get_user_model().objects.get(username="ada")
    order = Order.objects.create(
        product=ProductFactory(), total=1, placed_by=user, customer="Ada Lovelace"
    )

    assert "Nothing is under way" in customer.get(order.get_absolute_url()).content.decode()
    assert decide(manager, order, "approve") == "Nothing is under way for this order."


def test_seeding_again_keeps_what_is_there(settings):
    settings.DEBUG = True
    call_command("seed_shop", stdout=StringIO())
    changed = get_user_model().objects.get(username="customer")
    changed.set_password("my own")
    changed.save()
    Product.objects.filter(name="Teapot").update(price=30)

    call_command("seed_shop", stdout=StringIO())

    assert authenticate(username="customer", password="my own") == changed
    assert authenticate(username="manager", password="manager-demo").has_perm("shop.approve_order")
    assert authenticate(username="admin", password="admin-demo").is_superuser
    assert not changed.has_perm("shop.approve_order")
    assert Product.objects.get(name="Teapot").price == 30
    assert Product.objects.count() == 4


def test_demo_users_are_not_created_outside_of_development():
    with pytest.raises(CommandError, match="only created with DEBUG on"):
        call_command("seed_shop")

    assert not get_user_model().objects.exists()


@pytest.mark.parametrize("model", ["product", "order", "charge", "providercall"])
def test_the_admin_lists_the_models_of_the_shop(customer, model):
    go_on(place(customer))
    admin = sign_in(UserFactory(is_staff=True, is_superuser=True))

    assert admin.get(reverse(f"admin:shop_{model}_changelist")).status_code == 200
    pk = {"product": Product, "order": Order, "charge": Charge, "providercall": ProviderCall}
    url = reverse(f"admin:shop_{model}_change", args=[pk[model].objects.get().pk])
    assert admin.get(url).status_code == 200
