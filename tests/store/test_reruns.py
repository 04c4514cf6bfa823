"""`rerun`: a new run that goes on where an ended one failed, and leaves that one alone."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.forms.models import model_to_dict

from django_workflows import (
    GateDecided,
    RetryPolicy,
    RunNotFound,
    StepFailed,
    WorkflowAlreadyStarted,
    WorkflowError,
    approve,
    cancel,
    rerun,
    send_message,
    step,
    workflow,
)
from django_workflows.fields import uuid7
from django_workflows.models import WorkflowRun
from django_workflows.testing import advance, run_until_idle
from tests.claiming import rolled_back
from tests.failing import Effects, once
from tests.lab import workflows as lab
from tests.lab.models import Thing

pytestmark = pytest.mark.django_db


@pytest.fixture
def effects():
    return Effects()


def snapshot(run):
    run = WorkflowRun.objects.get(pk=run.pk)
    rows = [run, *run.steps.all(), *run.messages.all()]
    return [(model_to_dict(row), row.pk) for row in rows] + [run.status, run.finished_at]


@pytest.fixture
def order(effects):
    @workflow(name="t.order", version=2, queue_name="slow")
    def order(ctx, order_id):
        ctx.set_state(stage="begun")
        charge = ctx.step("charge", effects.do, "charge", order_id * 10)
        note = ctx.wait_for_message("note").data
        ctx.sleep(5)
        ctx.step("ship", once(effects.do), "ship")
        more = ctx.receive_message("note")
        return [charge, note, None if more is None else more.data]

    return order


@pytest.fixture
def failed(order, effects):
    """A run that failed at its second step, with an unread message."""
    effects.broken = {"ship"}
    thing = Thing.objects.create(name="t")
    run = order.using(
        subject=thing, priority=3, deadline=timedelta(hours=1), workflow_id="order-7"
    ).start(order_id=7)
    send_message(run, "note", "first")
    send_message(run, "note", "unread", idempotency_key="k")
    run_until_idle(run)
    advance(timedelta(seconds=6))
    run_until_idle(run)
    assert (run.status, run.error["type"]) == ("failed", "StepFailed")
    effects.broken = set()
    effects.calls.clear()
    return run


def test_it_goes_on_from_the_failed_step_with_the_completed_ones_copied(failed, effects):
    again = rerun(failed)
    copied = list(again.steps.all())
    run_until_idle(again)

    assert [(each.kind, each.status) for each in copied] == [
        ("step", "completed"),
        ("message", "completed"),
        ("sleep", "completed"),
    ]
    assert copied[0].result == failed.steps.first().result == 70
    assert copied[0].finished_at == failed.steps.first().finished_at
    assert (again.status, again.result) == ("completed", [70, "first", None])
    assert effects.calls == ["ship"]


def test_it_is_a_new_run_of_the_same_input_and_options(failed):
    again = rerun(failed.pk)

    assert again.pk != failed.pk
    assert (again.rerun_of, again.status) == (failed, "pending")
    for name in ("workflow_id", "workflow_name", "version", "queue_name", "priority", "input"):
        assert getattr(again, name) == getattr(failed, name), name
    assert (again.subject, again.state) == (failed.subject, {"stage": "begun"})
    assert abs(again.deadline_at - again.created_at - timedelta(hours=1)) < timedelta(seconds=1)
    assert (again.parent, again.attempts) == (None, 0)


def test_a_run_without_a_workflow_id_of_its_own_gets_a_new_one():
    run = lab.wait_once.start()
    cancel(run)
    again = rerun(run)
    assert again.workflow_id == str(again.pk) != run.workflow_id


def test_the_old_run_stays_as_it_is(failed):
    before = snapshot(failed)
    again = rerun(failed)
    run_until_idle(again)

    assert snapshot(failed) == before


def test_its_inbox_is_empty_and_the_old_keys_are_free(failed):
    again = rerun(failed)
    assert again.messages.count() == 0
    sent = send_message(again, "note", "new", idempotency_key="k")
    run_until_idle(again)

    assert not sent.deduplicated
    assert again.result == [70, "first", "new"]


def test_from_the_start_no_step_and_no_state_is_copied(failed, effects):
    again = rerun(failed, from_start=True)
    assert (again.steps.count(), again.state, again.rerun_of) == (0, {}, failed)
    run_until_idle(again)
    assert (again.status, effects.calls) == ("suspended", ["charge"])
    send_message(again, "note", "second")
    run_until_idle(again)
    advance(timedelta(seconds=6))
    run_until_idle(again)

    assert again.result == [70, "second", None]


def test_the_retry_budget_is_fresh(effects):
    @workflow(name="t.retries")
    def retries(ctx):
        policy = RetryPolicy(max_attempts=3, initial_interval=1, jitter=False)
        return ctx.step("ship", step(effects.do, retry=policy), "ship")

    effects.broken = {"ship"}
    run = retries.start()
    for each in (run, None):
        again = each or rerun(run)
        for _ in range(3):
            run_until_idle(again)
            advance(timedelta(seconds=10))
        run_until_idle(again)
        assert (again.status, again.steps.get().attempts) == ("failed", 3)
    assert effects.calls == ["ship"] * 6


def test_a_failure_that_the_body_dealt_with_stays_dealt_with(effects):
    @workflow(name="t.caught")
    def caught(ctx):
        try:
            ctx.step("charge", once(effects.do), "charge")
        except StepFailed:
            ctx.step("invoice", effects.do, "invoice")
        ctx.step("ship", once(effects.do), "ship")
        return "shipped"

    effects.broken = {"charge", "ship"}
    run = caught.start()
    run_until_idle(run)
    effects.broken = set()
    effects.calls.clear()
    again = rerun(run)
    run_until_idle(again)

    assert (again.result, effects.calls) == ("shipped", ["ship"])
    assert [each.status for each in again.steps.all()] == ["failed", "completed", "completed"]


def test_a_step_whose_failure_the_body_turned_into_its_own_error_is_tried_again(effects):
    @workflow(name="t.own")
    def own(ctx):
        try:
            return ctx.step("charge", once(effects.do), "charge", 7)
        except StepFailed as failed:
            raise ValueError("no money") from failed

    effects.broken = {"charge"}
    run = own.start()
    run_until_idle(run)
    assert run.error["type"] == "ValueError"
    effects.broken = set()
    again = rerun(run)
    run_until_idle(again)

    assert again.result == 7


def test_a_compensated_failure_is_tried_again_with_what_came_after_it(effects):
    @workflow(name="t.saga")
    def saga(ctx):
        ctx.step("charge", effects.do, "charge")
        try:
            ctx.step("ship", once(effects.do), "ship")
        except StepFailed:
            ctx.step("refund", effects.do, "refund")
            raise
        return "shipped"

    effects.broken = {"ship"}
    run = saga.start()
    run_until_idle(run)
    effects.broken = set()
    again = rerun(run)
    run_until_idle(again)

    assert (again.status, again.result) == ("completed", "shipped")
    assert effects.calls == ["charge", "ship", "refund", "ship"]


def test_a_run_that_failed_outside_its_steps_is_tried_again_from_there(effects):
    @workflow(name="t.bug")
    def bug(ctx):
        value = ctx.step("charge", effects.do, "charge", 7)
        if "bug" in effects.broken:
            raise ZeroDivisionError
        return value

    effects.broken = {"bug"}
    run = bug.start()
    run_until_idle(run)
    effects.broken = set()
    again = rerun(run)
    run_until_idle(again)

    assert (again.result, effects.calls) == (7, ["charge"])


def test_a_completed_run_is_done_again_from_its_record(order, effects):
    run = order.start(order_id=1)
    send_message(run, "note", "n")
    run_until_idle(run)
    advance(timedelta(seconds=6))
    run_until_idle(run)
    effects.calls.clear()
    again = rerun(run)
    run_until_idle(again)

    assert (again.result, effects.calls) == (run.result, [])


def test_a_canceled_wait_is_waited_for_anew(order):
    run = order.start(order_id=1)
    run_until_idle(run)
    cancel(run)
    again = rerun(run)
    run_until_idle(again)

    assert (again.status, again.waiting_names, run.steps.last().status) == (
        "suspended",
        ["note"],
        "waiting",
    )
    assert [each.status for each in again.steps.all()] == ["completed", "waiting"]


def test_a_gate_that_was_passed_stays_passed_and_decided(effects):
    ann = User.objects.create_user("ann")

    @workflow(name="t.gated")
    def gated(ctx):
        decision = ctx.wait_for_approval("manager")
        ctx.step("ship", once(effects.do), "ship")
        return decision.by.text

    effects.broken = {"ship"}
    run = gated.start()
    run_until_idle(run)
    approve(run, "manager", by=ann)
    run_until_idle(run)
    effects.broken = set()
    again = rerun(run)
    with pytest.raises(GateDecided, match="approved already, by ann"):
        approve(again, "manager", by=ann)
    run_until_idle(again)

    assert again.result == "ann"


def test_a_send_that_was_recorded_is_not_sent_again(effects):
    target = lab.wait_many.start(count=3)

    @workflow(name="t.send")
    def send(ctx):
        ctx.send_message(target, "go", "once")
        ctx.step("ship", once(effects.do), "ship")
        ctx.send_message(target, "go", "then")

    effects.broken = {"ship"}
    run = send.start()
    run_until_idle(run)
    effects.broken = set()
    run_until_idle(rerun(run))

    assert [message.data for message in target.messages.order_by("id")] == ["once", "then"]


def test_a_rerun_can_be_rerun(failed, effects):
    effects.broken = {"ship"}
    second = rerun(failed)
    run_until_idle(second)
    assert second.status == "failed"
    effects.broken = set()
    third = rerun(second)
    run_until_idle(third)

    assert (third.rerun_of, third.result) == (second, [70, "first", None])


@pytest.mark.parametrize("from_start", [False, True])
@pytest.mark.parametrize("status", ["pending", "suspended"])
def test_an_unfinished_run_is_refused(order, from_start, status):
    run = order.start(order_id=1)
    if status == "suspended":
        run_until_idle(run)
    with pytest.raises(WorkflowError) as caught:
        rerun(run, from_start=from_start)

    assert str(caught.value) == (
        f"Run {run.pk} is still {status!r}; only an ended run can be rerun. "
        "Cancel it first, or wait for its end."
    )
    assert WorkflowRun.objects.count() == 1


def test_an_unknown_run_is_refused():
    with pytest.raises(RunNotFound):
        rerun(uuid7())


def test_a_second_rerun_of_one_workflow_id_while_the_first_is_open_is_refused(failed):
    first = rerun(failed)
    with pytest.raises(WorkflowAlreadyStarted) as caught:
        rerun(failed)

    assert caught.value.run == first
    assert WorkflowRun.objects.count() == 2


def test_a_rerun_goes_with_the_callers_transaction(failed):
    with rolled_back():
        rerun(failed)
    assert WorkflowRun.objects.count() == 1
    with transaction.atomic():
        first = rerun(failed)
        with pytest.raises(WorkflowAlreadyStarted):
            rerun(failed)
        Thing.objects.create(name="written after the refusal")

    run_until_idle(first)
    assert first.status == "completed"
