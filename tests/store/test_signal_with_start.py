"""`signal_with_start`: deliver to the live run of a workflow id, or start it and deliver."""

from datetime import timedelta

import pytest
from django.db import transaction

from django_workflows import (
    PayloadError,
    SignalWithStart,
    WorkflowAlreadyStarted,
    WorkflowNotRegistered,
    cancel,
    get_run,
    send_message,
    signal_with_start,
    workflow,
)
from django_workflows.models import WorkflowMessage, WorkflowRun
from django_workflows.testing import run_until_idle
from tests.claiming import claim, rolled_back
from tests.lab.models import Thing

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def ticket():
    @workflow(name="t.ticket")
    def ticket(ctx, subject="none"):
        said = []
        while "close" not in said:
            said.append(ctx.wait_for_message("reply").data)
            if "fail" in said:
                raise LookupError
        return [subject, *said]

    return ticket


def reply(data=None, key=None, workflow_id="ticket-1", **options):
    return signal_with_start(
        "t.ticket",
        workflow_id=workflow_id,
        name="reply",
        data=data,
        idempotency_key=key,
        **options,
    )


def end(run, how="completed"):
    if how == "canceled":
        cancel(run)
    else:
        send_message(run, "reply", {"completed": "close", "failed": "fail"}[how])
        run_until_idle(run)
    run.refresh_from_db()
    assert run.status == how
    return run


def counts():
    return WorkflowRun.objects.count(), WorkflowMessage.objects.count()


def test_the_first_call_starts_a_run_that_has_the_message_before_its_body_runs(ticket):
    first = signal_with_start(
        ticket, workflow_id="ticket-1", name="reply", data="hi", input={"subject": "printer"}
    )

    assert isinstance(first, SignalWithStart)
    assert (first.started, first.message.deduplicated) == (True, False)
    assert (first.run.status, first.run.input) == ("pending", {"subject": "printer"})
    assert first.run.workflow_id == "ticket-1"
    assert WorkflowMessage.objects.get() == first.message
    assert (first.message.run_id, first.message.data) == (first.run.pk, "hi")


def test_later_calls_reach_the_open_run_whatever_it_does_and_their_input_is_ignored():
    first = reply("one", input={"subject": "printer"})
    second = reply("two", input={"subject": "other"})
    run_until_idle(first.run)
    third = reply("close", input={"wrong": object()})
    run_until_idle(first.run)

    assert [each.started for each in (first, second, third)] == [True, False, False]
    assert {each.run for each in (first, second, third)} == {first.run}
    assert first.run.result == ["printer", "one", "two", "close"]
    assert WorkflowRun.objects.count() == 1


def test_it_reaches_a_running_run():
    run = reply("one").run
    claim(run)
    assert reply("two").run == run
    assert run.messages.count() == 2


def test_it_reaches_a_run_that_start_has_made(ticket):
    run = ticket.using(workflow_id="ticket-1").start()
    second = reply("one")
    assert (second.run, second.started) == (run, False)


# https://github.com/dapr/docs/pull/5306
@pytest.mark.parametrize("how", ["completed", "failed", "canceled"])
def test_after_an_end_a_new_run_starts_with_just_its_message_and_the_old_one_stays(how):
    old = reply("one", key="a").run
    send_message(old, "other", "unread")
    end(old, how)
    before = (list(old.steps.values()), list(old.messages.values()), old.result)

    new = reply("two", key="b")

    assert new.started
    assert new.run != old
    assert new.run.workflow_id == old.workflow_id == "ticket-1"
    assert [message.data for message in new.run.messages.all()] == ["two"]
    assert not new.run.steps.exists()
    old.refresh_from_db()
    assert (list(old.steps.values()), list(old.messages.values()), old.result) == before
    assert get_run(workflow_id="ticket-1") == new.run


@pytest.mark.parametrize(
    ("reuse", "how", "starts"),
    [
        ("allow", "completed", True),
        ("allow", "failed", True),
        ("allow_failed", "completed", False),
        ("allow_failed", "failed", True),
        ("allow_failed", "canceled", True),
        ("raise", "completed", False),
        ("raise", "failed", False),
    ],
)
def test_id_reuse_says_after_which_end_a_new_run_may_start(reuse, how, starts):
    old = end(reply("one").run, how)
    before = counts()
    if starts:
        assert reply("two", id_reuse=reuse).started
    else:
        with pytest.raises(WorkflowAlreadyStarted) as caught:
            reply("two", id_reuse=reuse)
        assert caught.value.run == old
        assert counts() == before


def test_id_conflict_can_be_an_error_and_nothing_is_delivered():
    run = reply("one").run
    with pytest.raises(WorkflowAlreadyStarted) as caught:
        reply("two", id_conflict="raise")

    assert caught.value.run == run
    assert run.messages.count() == 1


@pytest.mark.parametrize("is_open", [True, False])
def test_the_id_of_another_workflows_run_is_refused_naming_both(is_open):
    run = reply("one").run
    if not is_open:
        end(run)

    @workflow(name="t.other")
    def other(ctx): ...

    before = counts()
    with pytest.raises(WorkflowAlreadyStarted, match=r"of workflow 't\.ticket', so 't\.other'"):
        signal_with_start(other, workflow_id="ticket-1", name="reply", idempotency_key="k")
    assert counts() == before


def test_a_repeated_key_returns_its_run_and_message_and_stores_nothing():
    first = reply("one", key="k")
    again = reply("two", key="k")

    assert (again.run, again.message, again.started) == (first.run, first.message, False)
    assert (again.message.data, again.message.deduplicated) == ("one", True)
    assert WorkflowMessage.objects.count() == 1


# https://github.com/temporalio/temporal/pull/11968
@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("reuse", ["allow", "allow_failed", "raise"])
def test_a_key_that_an_ended_run_accepted_reopens_nothing(is_reopened, reuse):
    first = reply("one", key="k")
    end(first.run)
    if is_reopened:
        reply("another")
    known = WorkflowRun.objects.count()

    again = reply("one", key="k", id_reuse=reuse)

    assert (again.run, again.message, again.started) == (first.run, first.message, False)
    assert (again.run.status, again.message.deduplicated) == ("completed", True)
    assert WorkflowRun.objects.count() == known


def test_a_key_that_a_plain_send_used_is_known_too(ticket):
    run = ticket.using(workflow_id="ticket-1").start()
    sent = send_message(run, "reply", "one", idempotency_key="k")
    end(run)

    assert (reply("two", key="k").message, reply("two", key="l").started) == (sent, True)


def test_keys_are_per_workflow_id():
    first, second = (reply("one", key="k", workflow_id=f"ticket-{n}") for n in range(2))
    assert (first.started, second.started) == (True, True)


def test_calls_without_a_key_are_never_duplicates():
    assert len({reply("same").message.pk for _ in range(3)}) == 3


def test_the_options_of_a_start_hold_for_a_new_run(ticket):
    workflow(name="t.ticket", version=2)(lambda ctx: None)
    thing = Thing.objects.create(name="t")
    run = reply(
        "one",
        version="1",
        subject=thing,
        queue_name="slow",
        run_after=timedelta(hours=1),
        deadline=timedelta(hours=2),
        priority=4,
    ).run

    assert (run.version, run.subject, run.queue_name, run.priority) == ("1", thing, "slow", 4)
    assert abs(run.available_at - run.created_at - timedelta(hours=1)) < timedelta(seconds=1)
    assert abs(run.deadline_at - run.created_at - timedelta(hours=2)) < timedelta(seconds=1)


def test_run_and_message_go_with_the_callers_transaction():
    with rolled_back():
        assert reply("one", key="k").started
    assert counts() == (0, 0)

    with transaction.atomic():
        first, again, second = reply("one", key="k"), reply("one", key="k"), reply("two")
        with pytest.raises(WorkflowAlreadyStarted):
            reply("three", id_conflict="raise")
        Thing.objects.create(name="written after the refusal")

    assert [each.started for each in (first, again, second)] == [True, False, False]
    assert first.run.messages.count() == 2


def test_nothing_that_the_message_touches_has_to_be_set_up_first():
    """The inbox is durable: the body may do what it likes before its first wait."""

    @workflow(name="t.slow_start")
    def slow_start(ctx):
        ctx.step("set up", lambda: None)
        ctx.sleep(0)
        return ctx.receive_message("reply").data

    run = signal_with_start(slow_start, workflow_id="x", name="reply", data=7).run
    run_until_idle(run)

    assert run.result == 7


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"workflow": "t.none"}, WorkflowNotRegistered, "t.none"),
        ({"workflow": 7}, TypeError, "Expected a workflow or its name, got int."),
        ({"workflow_id": ""}, ValueError, "A workflow id must not be empty."),
        ({"workflow_id": None}, TypeError, "signal_with_start() needs a workflow_id."),
        ({"name": ""}, ValueError, "A message's name must not be empty."),
        ({"name": "$approval:x"}, ValueError, "reserved"),
        ({"idempotency_key": ""}, ValueError, "An idempotency key must not be empty."),
        ({"data": object()}, PayloadError, "data: an object instance"),
        ({"input": {"wrong": 1}}, TypeError, "unexpected keyword argument 'wrong'"),
        ({"input": {"subject": object()}}, PayloadError, "input.subject: an object instance"),
        ({"id_reuse": "return"}, ValueError, "id_reuse must be one of allow, allow_failed, raise"),
        ({"id_conflict": "allow"}, ValueError, "id_conflict must be one of return, raise"),
        ({"priority": True}, TypeError, "priority must be an int, not bool."),
    ],
)
def test_a_bad_argument_is_refused_and_nothing_is_stored(given, error, text):
    arguments = {"workflow": "t.ticket", "workflow_id": "x", "name": "reply", **given}
    with pytest.raises(error) as caught:
        signal_with_start(arguments.pop("workflow"), **arguments)

    assert text in str(caught.value)
    assert counts() == (0, 0)
