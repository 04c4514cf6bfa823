"""Workflows that are methods, and versions side by side."""

import pytest

from django_workflows import (
    WorkflowNotRegistered,
    register,
    resume,
    send_message,
    start,
    workflow,
)
from django_workflows.registry import registry
from django_workflows.store import leases
from django_workflows.testing import run_until_idle

pytestmark = pytest.mark.django_db


class Payments:
    def __init__(self):
        self.charged = []

    def charge(self, order_id):
        self.charged.append(order_id)
        return f"charge-{order_id}"


class OrderWorkflows:
    def __init__(self, payments):
        self.payments = payments

    @workflow
    def fulfil(self, ctx, order_id, gift=False):
        charge = ctx.step("charge", self.payments.charge, order_id)
        ctx.wait_for_message("go")
        wrapped = ctx.run_child(self.wrap, {"charge": charge}) if gift else None
        return [charge, wrapped]

    @workflow(name="orders.wrap")
    def wrap(self, ctx, charge):
        return ctx.step("wrap", lambda: f"{charge} for {type(self.payments).__name__}")

    @workflow(name="orders.wrap", version=2)
    def wrap_better(self, ctx, charge):
        return "better"


@pytest.fixture
def payments():
    return Payments()


def go(run):
    run_until_idle(run)
    send_message(run, "go")
    run_until_idle()
    run.refresh_from_db()
    return run


def test_a_method_runs_bound_to_the_registered_instance_on_every_pass(payments):
    assert register(OrderWorkflows(payments)) == ["OrderWorkflows.fulfil", "orders.wrap"]
    run = go(OrderWorkflows.fulfil.start(order_id=7))

    assert (run.workflow_name, run.input) == ("OrderWorkflows.fulfil", {"order_id": 7})
    assert (run.result, payments.charged) == (["charge-7", None], [7])


def test_a_method_starts_a_method_as_its_child(payments):
    orders = OrderWorkflows(payments)
    register(orders)
    run = go(orders.fulfil.start(7, gift=True))

    assert run.result == ["charge-7", "charge-7 for Payments"]
    assert run.children.get().version == "1"


def test_a_method_is_started_by_name(payments):
    register(OrderWorkflows(payments))
    assert go(start("OrderWorkflows.fulfil", {"order_id": 7})).result == ["charge-7", None]


def test_the_instance_that_was_registered_last_is_the_one_that_runs(payments):
    register(OrderWorkflows(None))
    register(OrderWorkflows(payments))

    assert go(OrderWorkflows.fulfil.start(order_id=7)).result == ["charge-7", None]
    assert registry.clashes() == {}


def test_without_a_registered_instance_a_run_stays_pending(payments):
    run = OrderWorkflows.fulfil.start(order_id=7)
    assert run_until_idle() == 0
    with pytest.raises(WorkflowNotRegistered, match=r"OrderWorkflows\.fulfil"):
        resume(run)
    register(OrderWorkflows(payments))

    assert go(run).result == ["charge-7", None]
    assert run.claim_count == 2


@pytest.fixture
def versions():
    for version in (1, 2):

        @workflow(name="t.flow", version=version)
        def flow(ctx, version=version):
            ctx.wait_for_message("go")
            return version

    return [start("t.flow", version=version) for version in ("1", "2")]


def test_two_versions_run_side_by_side_each_on_its_own_code(versions):
    assert [go(run).result for run in versions] == [1, 2]


# https://github.com/chrisguidry/docket/issues/437
def test_a_worker_without_a_runs_version_leaves_it_alone(versions):
    old, new = versions
    registry.unregister("t.flow", "1")
    for _ in range(10):
        run_until_idle()
    old.refresh_from_db()
    new.refresh_from_db()

    assert (old.status, old.claim_count, old.attempts) == ("pending", 0, 0)
    assert new.status == "suspended"
    assert leases.take_over_dead() == 0

    @workflow(name="t.flow", version=1)
    def flow(ctx):
        return "the first is back"

    run_until_idle(old)
    assert old.result == "the first is back"


def test_a_run_keeps_its_version_when_a_newer_one_is_deployed(versions):
    run = versions[0]
    run_until_idle(run)

    @workflow(name="t.flow", version=3)
    def flow(ctx):
        return 3

    assert go(run).result == 1
    assert start("t.flow").version == "3"
