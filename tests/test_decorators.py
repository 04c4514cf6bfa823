"""`@workflow`, `Workflow.start` and `using`, `register` for classes."""

import asyncio
from datetime import timedelta

import pytest

from django_workflows import Workflow, register, workflow
from django_workflows.models import WorkflowRun
from django_workflows.registry import registry
from django_workflows.testing import advance, run_until_idle
from tests.lab import workflows as lab

pytestmark = pytest.mark.django_db


def test_a_bare_decorator_names_the_workflow_after_the_package_that_holds_workflows():
    assert isinstance(lab.steps, Workflow)
    assert (lab.steps.name, lab.steps.version) == ("tests.lab.steps", "1")
    assert repr(lab.steps) == "<Workflow tests.lab.steps version 1>"
    assert lab.steps.__name__ == "steps"
    assert lab.steps.__module__ == "tests.lab.workflows"


def test_start_records_a_pending_run_and_never_executes_inline():
    calls = []

    @workflow(name="t.plain", version=3, queue_name="slow")
    def plain(ctx, order_id, note="none"):
        """Ship it."""
        calls.append(order_id)

    run = plain.start(order_id=7)

    assert calls == []
    assert plain.__doc__ == "Ship it."
    stored = WorkflowRun.objects.get()
    for each in (run, stored):
        assert (each.workflow_name, each.version, each.queue_name) == ("t.plain", "3", "slow")
        assert (each.status, each.input, each.result, each.error) == (
            "pending",
            {"order_id": 7},
            None,
            None,
        )
        assert (each.priority, each.attempts, each.state) == (0, 0, {})
        assert (each.parent, each.rerun_of, each.subject) == (None, None, None)
        assert (each.started_at, each.finished_at, each.deadline_at) == (None, None, None)
        assert each.workflow_id == str(each.pk)
        assert not each.deduplicated
        assert not each.is_finished
    assert run.pk.version == 7
    assert (run.created_at, run.available_at) == (stored.created_at, stored.available_at)


def test_positional_input_is_stored_by_name():
    @workflow(name="t.plain")
    def plain(ctx, order_id, note="none"):
        return [order_id, note]

    run = plain.start(7, "n")
    run_until_idle(run)

    assert (run.input, run.result) == ({"order_id": 7, "note": "n"}, [7, "n"])


def test_a_default_is_that_of_the_code_that_runs():
    @workflow(name="t.plain")
    def plain(ctx, note="old"): ...

    run = plain.start()

    @workflow(name="t.plain")
    def changed(ctx, note="new"):
        return note

    run_until_idle(run)

    assert (run.input, run.result) == ({}, "new")


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((), {}, "missing a required argument: 'order_id'"),
        ((1, 2), {}, "too many positional arguments"),
        ((1,), {"extra": 2}, "got an unexpected keyword argument 'extra'"),
    ],
)
def test_input_that_does_not_fit_raises_at_the_caller_and_stores_nothing(args, kwargs, why):
    @workflow(name="t.plain")
    def plain(ctx, order_id): ...

    with pytest.raises(TypeError) as caught:
        plain.start(*args, **kwargs)

    assert str(caught.value) == f"Input of workflow 't.plain': {why}."
    assert not WorkflowRun.objects.exists()


def test_a_call_calls_the_function_itself():
    @workflow(name="t.plain")
    def plain(ctx, order_id, *, note="none"):
        return (ctx, order_id, note)

    assert plain("a context", 7, note="n") == ("a context", 7, "n")
    assert not WorkflowRun.objects.exists()


def test_using_gives_a_workflow_with_options_and_leaves_the_first_as_it_is():
    @workflow(name="t.plain")
    def plain(ctx): ...

    chosen = plain.using(workflow_id="order-7", priority=5)
    more = chosen.using(queue_name="slow", priority=-1)
    runs = [plain.start(), chosen.start(), more.using(workflow_id="order-8").start()]

    assert [(run.workflow_id, run.priority, run.queue_name) for run in runs] == [
        (str(runs[0].pk), 0, "default"),
        ("order-7", 5, "default"),
        ("order-8", -1, "slow"),
    ]
    assert isinstance(chosen, Workflow)


@pytest.mark.parametrize("due", ["timedelta", "datetime"])
def test_run_after_keeps_a_run_pending_until_then(due):
    @workflow(name="t.plain")
    def plain(ctx):
        return "done"

    after = timedelta(hours=1)
    if due == "datetime":
        after += plain.start().created_at
    run = plain.using(run_after=after).start()
    assert timedelta(minutes=59) < run.available_at - run.created_at <= timedelta(hours=1)
    run_until_idle(run)
    assert run.status == "pending"
    advance(timedelta(hours=1, seconds=1))
    run_until_idle(run)

    assert run.result == "done"


def test_higher_priorities_go_first_and_then_those_that_were_due_first():
    order = []

    @workflow(name="t.plain")
    def plain(ctx, n):
        order.append(n)

    for n, priority in enumerate([0, 0, 10, -10, 10]):
        plain.using(priority=priority).start(n=n)
    run_until_idle()

    assert order == [2, 4, 0, 1, 3]


def test_the_async_twin_of_start_checks_the_input_and_records_the_run():
    @workflow(name="t.plain")
    def plain(ctx, order_id): ...

    with pytest.raises(TypeError, match=r"^Input of workflow 't\.plain'"):
        asyncio.run(plain.astart())


class Orders:
    def __init__(self, payments):
        self.payments = payments

    @workflow
    def fulfil(self, ctx, order_id):
        return ctx.step("charge", self.payments, order_id)

    @workflow(name="orders.return", version=2, queue_name="slow")
    def give_back(self, ctx, order_id): ...

    def other(self, ctx): ...


def test_a_class_registers_its_workflows_bound_to_an_instance():
    assert ("Orders.fulfil", "1") not in registry.pairs()
    orders = Orders(payments=lambda order_id: f"paid {order_id}")

    assert register(orders) == ["Orders.fulfil", "orders.return"]
    run = orders.fulfil.start(order_id=7)
    second = Orders.fulfil.using(workflow_id="order-8").start(order_id=8)
    run_until_idle(run, second)

    assert (run.result, second.result) == ("paid 7", "paid 8")
    assert registry.get("orders.return").queue_name == "slow"
    assert registry.clashes() == {}


def test_a_method_can_be_called_and_its_input_is_checked_like_any_other():
    orders = Orders(payments=None)

    class Context:
        def step(self, name, fn, *args):
            return (name, fn, args)

    assert orders.fulfil(Context(), 7) == ("charge", None, (7,))
    with pytest.raises(TypeError, match=r"missing a required argument: 'order_id'"):
        orders.fulfil.start()


def test_a_subclass_registers_what_it_inherits():
    class Better(Orders):
        @workflow(name="better.extra")
        def extra(self, ctx): ...

    assert register(Better(None)) == ["Orders.fulfil", "better.extra", "orders.return"]


def test_register_needs_an_instance_with_workflows():
    with pytest.raises(TypeError) as caught:
        register(Orders)
    assert str(caught.value) == "register() needs an instance: register(Orders(…))."
    with pytest.raises(ValueError, match=r"^object has no methods decorated by @workflow\.$"):
        register(object())
