"""A body that consumes one message after another reads ahead and commits its takes together."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_workflows import cancel, get_run, send_message, workflow
from django_workflows.models import WorkflowRun
from django_workflows.testing import run_until_idle

pytestmark = pytest.mark.django_db


def start_with_messages(flow, count, **given):
    run = flow.start(**given)
    for n in range(count):
        send_message(run, "m", n)
    return run


def test_every_message_is_consumed_in_order_by_a_step_of_its_own():
    @workflow(name="consume")
    def consume(ctx):
        return [ctx.wait_for_message("m").data for _ in range(120)]

    run = start_with_messages(consume, 120)
    run_until_idle(run)

    assert run.result == list(range(120))
    consumed = run.messages.consumed().select_related("consumed_by")
    assert [message.consumed_by.seq for message in consumed] == list(range(120))
    assert [message.consumed_by.result for message in consumed] == list(range(120))


@pytest.mark.postgresql("SQLite takes each message in a transaction of its own")
def test_many_takes_need_few_statements():
    @workflow(name="consume")
    def consume(ctx):
        return sum(ctx.wait_for_message("m").data for _ in range(100))

    run = start_with_messages(consume, 100)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        run_until_idle(run)

    assert run.result == sum(range(100))
    assert len(queries) < 40


def test_takes_that_were_held_are_committed_before_a_steps_function_runs():
    seen = []

    @workflow(name="consume")
    def consume(ctx):
        for _ in range(5):
            ctx.wait_for_message("m")
        ctx.step("look", look, ctx.run_id)

    def look(run_id):
        seen.append(get_run(run_id).messages.pending().count())

    run = start_with_messages(consume, 5)
    run_until_idle(run)

    assert seen == [0]


def test_takes_are_lost_with_the_lease_and_made_again_in_the_same_order():
    stolen = []

    @workflow(name="consume")
    def consume(ctx):
        got = [ctx.wait_for_message("m").data for _ in range(6)]
        if not stolen:
            stolen.append(got)
            # What a take-over does: the run is due again, and this claim's token is worthless.
            WorkflowRun.objects.filter(pk=ctx.run_id).update(
                claim_token=None, status="pending", available_at=run.created_at
            )
        return got

    run = start_with_messages(consume, 6)
    run_until_idle(run)

    assert stolen == [list(range(6))]
    assert run.result == list(range(6))
    assert run.messages.consumed().count() == 6


def test_a_run_canceled_meanwhile_keeps_what_was_only_held():
    @workflow(name="consume")
    def consume(ctx):
        for n in range(6):
            ctx.wait_for_message("m")
            if n == 4:
                cancel(ctx.run_id)
        ctx.wait_for_message("m")

    run = start_with_messages(consume, 8)
    run_until_idle(run)

    assert run.status == "canceled"
    assert run.messages.consumed().count() <= 5
    assert run.steps.filter(kind="message").count() == run.messages.consumed().count()


def test_two_waits_that_share_a_name_take_different_messages():
    @workflow(name="consume")
    def consume(ctx):
        got = [ctx.wait_for_message("m").data for _ in range(4)]
        got.append(ctx.wait_for_message(["other", "m"]).data)
        got.append(ctx.receive_message("m").data)
        got.append(ctx.wait_for_message("m").data)
        return got

    run = start_with_messages(consume, 10)
    run_until_idle(run)

    assert run.result == list(range(7))
