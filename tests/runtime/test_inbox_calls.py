"""`ctx.receive_message` and `ctx.send_message`, and the scope of a sender's key."""

from datetime import timedelta
from uuid import UUID

import pytest

from django_workflows import (
    Message,
    RunFinished,
    StepFailed,
    cancel,
    send_message,
    telemetry,
    workflow,
)
from django_workflows.models import WorkflowMessage
from django_workflows.testing import advance, run_until_idle
from tests.runtime.crashes import WorkerDied, execute_until_death

pytestmark = pytest.mark.django_db


def wake(run):
    advance(timedelta(minutes=1))
    run_until_idle(run)
    return run


@pytest.fixture
def target():
    @workflow(name="t.target")
    def parked(ctx):
        ctx.wait_for_message("never")

    run = parked.start()
    run_until_idle(run)
    return run


def test_receiving_takes_what_is_there_and_never_waits():
    seen = []

    @workflow(name="t.receive")
    def receive(ctx):
        seen.append([ctx.receive_message("go") for _ in range(3)])
        ctx.sleep(1)

    run = receive.start()
    sent = [send_message(run, "go", n) for n in range(2)]
    run_until_idle(run)
    # Recorded as empty, so a message that came since doesn't change a replay.
    send_message(run, "go", "later")
    wake(run)

    told = [Message(each.pk, "go", each.data, None, each.created_at) for each in sent]
    assert seen == [[*told, None]] * 2
    assert [(each.kind, each.status) for each in run.steps.all()] == [
        ("receive", "completed"),
        ("receive", "completed"),
        ("receive", "completed"),
        ("sleep", "completed"),
    ]
    assert [each.data for each in run.messages.pending()] == ["later"]


def test_receiving_any_of_several_names_takes_the_oldest():
    @workflow(name="t.receive_any")
    def receive(ctx):
        return [ctx.receive_message(["a", "b"]).data for _ in range(2)]

    run = receive.start()
    send_message(run, "b", 1)
    send_message(run, "a", 2)
    run_until_idle(run)

    assert run.result == [1, 2]


def test_a_send_is_recorded_and_a_replay_does_not_send_again(target):
    @workflow(name="t.send")
    def send(ctx):
        ctx.send_message(target, "go", {"n": 1})
        ctx.send_message(target.pk, "go", {"n": 2})
        ctx.send_message(str(target.pk), "go")
        ctx.sleep(1)

    run = send.start()
    run_until_idle(run)
    wake(run)

    assert run.status == "completed"
    assert [each.data for each in target.messages.pending()] == [{"n": 1}, {"n": 2}, None]
    assert [(each.kind, each.key) for each in run.steps.all()][:3] == [
        ("send", "send:go"),
        ("send", "send:go:1"),
        ("send", "send:go:2"),
    ]


def test_a_crash_between_send_and_record_does_not_send_twice(target):
    def die(event, fields):
        if fields["key"] == "send:go":
            raise WorkerDied

    @workflow(name="t.send_dies")
    def send(ctx):
        ctx.send_message(target, "go", 1)

    run = send.start()
    with telemetry.subscribed("record.writing", die):
        execute_until_death(run)
    assert not run.steps.exists()
    assert target.messages.count() == 1
    run_until_idle(run)

    assert run.status == "completed"
    assert [each.data for each in target.messages.all()] == [1]


def test_a_run_can_send_to_itself():
    @workflow(name="t.self")
    def own(ctx):
        ctx.send_message(ctx.run_id, "go", 7)
        return ctx.wait_for_message("go").data

    run = own.start()
    run_until_idle(run)

    assert run.result == 7


@pytest.mark.parametrize("kind", ["RunNotFound", "RunFinished"])
def test_a_send_that_is_refused_fails_its_step_the_same_on_every_replay(target, kind):
    caught = []
    to = UUID(int=5) if kind == "RunNotFound" else target.pk
    cancel(target)

    @workflow(name="t.send_refused")
    def send(ctx):
        try:
            ctx.send_message(to, "go", 1)
        except StepFailed as failed:
            caught.append((failed.step, failed.type, failed.message))
        ctx.sleep(1)
        return "done"

    run = send.start()
    wake(run)
    wake(run)

    text = {
        "RunNotFound": f"There is no workflow run with id '{to}'. Check the id, and that the "
        "transaction that started it has been committed.",
        "RunFinished": f"Run {to} has already ended as 'canceled'; nothing was stored.",
    }[kind]
    assert caught == [("go", kind, text)] * 2
    assert run.result == "done"
    assert not WorkflowMessage.objects.exists()


def test_data_that_cannot_be_sent_fails_the_run_and_sends_nothing(target):
    @workflow(name="t.send_object")
    def send(ctx):
        ctx.send_message(target, "go", {"run": target})

    run = send.start()
    run_until_idle(run)

    assert (run.status, run.error["type"]) == ("failed", "PayloadError")
    assert run.error["message"] == "data.run: a WorkflowRun instance can't be stored; pass its pk"
    assert not target.messages.exists()


# https://github.com/dbos-inc/dbos-transact-ts/pull/1307
def test_a_key_is_unique_per_run_across_names_and_keeps_the_first_data(target):
    @workflow(name="t.other_target")
    def parked(ctx):
        ctx.wait_for_message("never")

    other = parked.start()
    first = send_message(target, "go", 1, idempotency_key="evt-1")
    second = send_message(other, "go", 2, idempotency_key="evt-1")
    again = send_message(target, "stop", 3, idempotency_key="evt-1")

    assert (first.deduplicated, second.deduplicated, again.deduplicated) == (False, False, True)
    assert second.pk != first.pk
    assert (again.pk, again.name, again.data) == (first.pk, "go", 1)
    assert target.messages.count() == other.messages.count() == 1
    assert target.messages.get().data == 1


# https://github.com/temporalio/temporal/pull/11968
def test_a_known_key_is_accepted_after_the_end_and_a_new_one_refused(target):
    first = send_message(target, "go", 1, idempotency_key="evt-1")
    cancel(target)

    again = send_message(target, "go", 1, idempotency_key="evt-1")
    with pytest.raises(RunFinished) as caught:
        send_message(target, "go", 1, idempotency_key="evt-2")

    assert (again.pk, again.deduplicated) == (first.pk, True)
    assert caught.value.status == "canceled"
    assert str(caught.value) == (
        f"Run {target.pk} has already ended as 'canceled'; nothing was stored."
    )
    assert target.messages.count() == 1
