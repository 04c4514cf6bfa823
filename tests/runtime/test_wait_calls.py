"""`ctx.wait_for_message`, `ctx.receive_message`, `ctx.send_message`."""

from dataclasses import dataclass
from datetime import timedelta

import pytest
from django import forms
from django.utils import timezone

from django_workflows import (
    Message,
    MessageTimeout,
    StepFailed,
    list_messages,
    send_message,
    workflow,
)
from django_workflows.models import WorkflowRun
from django_workflows.testing import advance, run_until_idle
from tests.runtime.crashes import WorkerDied, execute_until_death

pytestmark = pytest.mark.django_db


@dataclass
class Decision:
    approved: bool
    amount: int


def waiting(*names, **options):
    """A run whose body returns what each wait gave, and goes through a replay of all of them."""

    @workflow(name="t.waiting")
    def body(ctx):
        got = [ctx.wait_for_message(name, **options) for name in names]
        ctx.sleep(1)
        return ["timed out" if each is None else each.data for each in got]

    return body.start()


def finish(run, seconds=2):
    run_until_idle(run)
    advance(timedelta(seconds=seconds))
    run_until_idle(run)
    advance(timedelta(seconds=2))
    run_until_idle(run)
    return run


def test_a_message_sent_before_the_wait_is_delivered_without_parking():
    run = waiting("go")
    sent = send_message(run, "go", {"n": 1})
    run_until_idle(run)

    assert run.claim_count == 1
    step = run.steps.get(kind="message")
    assert (step.key, step.name, step.status) == ("message:go", "go", "completed")
    assert step.result == {"n": 1}
    sent.refresh_from_db()
    assert sent.consumed_by == step
    assert sent.consumed_at is not None
    assert finish(run).result == [{"n": 1}]


def test_a_parked_run_waits_for_ever_and_is_woken_by_its_message():
    run = waiting("go")
    run_until_idle(run)
    assert (run.status, run.available_at, run.waiting_names) == ("suspended", None, ["go"])
    advance(timedelta(days=3000))
    assert run_until_idle(run) == 0
    send_message(run, "other")
    assert run_until_idle(run) == 0
    send_message(run, "go", 1)

    assert finish(run).result == [1]
    assert [each.name for each in run.messages.pending()] == ["other"]


def test_the_message_tells_who_sent_what_and_when_the_same_on_every_pass():
    seen = []

    @workflow(name="t.told")
    def told(ctx):
        seen.append(ctx.wait_for_message("go"))
        ctx.sleep(1)

    run = told.start()
    before = timezone.now()
    sent = send_message(run, "go", (1, 2), idempotency_key="evt-1")
    finish(run)

    assert seen == [Message(sent.pk, "go", (1, 2), "evt-1", sent.created_at)] * 2
    assert type(seen[1].data) is tuple
    assert timezone.is_aware(seen[0].sent_at)
    assert abs(seen[0].sent_at - before) < timedelta(minutes=1)


def test_messages_of_one_name_come_in_the_order_in_which_they_were_sent():
    run = waiting("go", "go", "go")
    for n in range(3):
        send_message(run, "go", n)

    assert finish(run).result == [0, 1, 2]
    assert [each.key for each in run.steps.filter(kind="message")] == [
        "message:go",
        "message:go:1",
        "message:go:2",
    ]


# https://github.com/langgenius/dify/issues/42103
def test_names_are_queues_of_their_own():
    run = waiting("legal", "finance", "legal")
    run_until_idle(run)
    send_message(run, "finance", "F1")
    assert run_until_idle(run) == 0
    send_message(run, "legal", "L1")
    send_message(run, "legal", "L2")

    assert finish(run).result == ["L1", "F1", "L2"]


def test_a_wait_for_several_names_takes_the_oldest_of_any():
    run = waiting(("b", "a"), ["a", "b"])
    send_message(run, "c", 0)
    send_message(run, "a", 1)
    send_message(run, "b", 2)

    assert finish(run).result == [1, 2]


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_run_parked_on_several_names_is_woken_by_each_of_them(name):
    run = waiting(["a", "b"])
    run_until_idle(run)
    send_message(run, name, name)

    assert finish(run).result == [name]


def test_a_wait_for_more_names_than_a_steps_name_can_hold_works():
    names = [f"name-{n:03}" for n in range(60)]
    run = waiting(names)
    run_until_idle(run)
    send_message(run, "name-059", "last")

    assert finish(run).result == ["last"]


# https://github.com/earendil-works/absurd/pull/116
# https://github.com/dapr/python-sdk/pull/976
def test_a_null_payload_is_told_apart_from_a_timeout_also_on_replay():
    run = waiting("go", timeout=5)
    send_message(run, "go", None)

    assert finish(run).result == [None]
    assert run.messages.get().consumed_by.key == "message:go"


# https://github.com/earendil-works/absurd/pull/116
@pytest.mark.parametrize("timeout", [0, timedelta(0)])
def test_a_timeout_of_zero_takes_what_is_there_and_never_parks(timeout):
    run = waiting("go", "go", timeout=timeout)
    send_message(run, "go", 1)
    run_until_idle(run)

    assert run.claim_count == 1
    assert [each.status for each in run.steps.filter(kind="message")] == ["completed"] * 2
    assert finish(run).result == [1, "timed out"]


# https://github.com/earendil-works/absurd/pull/116
def test_a_message_sent_before_the_deadline_wins_when_the_worker_looks_after_it():
    run = waiting("go", timeout=5)
    run_until_idle(run)
    send_message(run, "go", "in time")
    advance(timedelta(seconds=60))

    assert finish(run).result == ["in time"]


def test_until_the_timeout_is_recorded_a_message_sent_after_it_wins_too():
    run = waiting("go", timeout=5)
    run_until_idle(run)
    advance(timedelta(seconds=60))
    send_message(run, "go", "late")

    assert finish(run).result == ["late"]


def test_a_message_sent_after_the_timeout_was_recorded_stays_for_the_next_wait():
    run = waiting("go", "go", timeout=5)
    run_until_idle(run)
    advance(timedelta(seconds=6))
    run_until_idle(run)
    send_message(run, "go", "second")

    assert finish(run).result == ["timed out", "second"]


def test_a_timed_out_wait_stays_timed_out_on_replay_though_a_message_came():
    run = waiting("go", timeout=5)
    run_until_idle(run)
    advance(timedelta(seconds=6))
    run_until_idle(run)
    send_message(run, "go", "too late")

    assert finish(run).result == ["timed out"]
    assert [each.data for each in run.messages.pending()] == ["too late"]


# https://github.com/dbos-inc/dbos-transact-ts/issues/451
def test_a_worker_that_dies_on_the_replay_does_not_give_the_wait_a_new_window():
    deaths = [WorkerDied]

    @workflow(name="t.window")
    def window(ctx):
        if ctx.is_replaying and deaths:
            raise deaths.pop()
        got = ctx.wait_for_message("x", timeout=60)
        return "timed out" if got is None else got.data

    run = window.start()
    run_until_idle(run)
    deadline = run.available_at
    assert run.steps.get().wake_at == deadline
    advance(timedelta(seconds=50))
    WorkflowRun.objects.filter(pk=run.pk).update(available_at=run.created_at)
    execute_until_death(run)
    run_until_idle(run)
    assert (run.status, run.available_at) == ("suspended", deadline)
    assert run.steps.get().wake_at == deadline
    advance(timedelta(seconds=11))
    run_until_idle(run)

    assert run.result == "timed out"


def test_a_required_message_that_does_not_come_raises_its_name():
    caught = []

    @workflow(name="t.required")
    def required(ctx):
        try:
            ctx.wait_for_message("go", timeout=timedelta(minutes=1), required=True)
        except MessageTimeout as timed_out:
            caught.append((timed_out.name, str(timed_out)))
        ctx.wait_for_message(["a", "b"], timeout=0, required=True)

    run = required.start()
    finish(run, 61)

    assert caught == [("go", "No message 'go' came within 0:01:00.")]
    assert (run.status, run.error["type"]) == ("failed", "MessageTimeout")
    assert run.error["message"] == "No message ('a', 'b') came within 0:00:00."


def test_data_that_fits_the_schema_arrives_as_its_type_on_every_pass():
    seen = []

    @workflow(name="t.schema")
    def schema(ctx):
        seen.append(ctx.wait_for_message("go", schema=Decision).data)
        seen.append(ctx.wait_for_message("n", schema=int).data)
        ctx.sleep(1)

    run = schema.start()
    send_message(run, "go", {"approved": True, "amount": 3})
    send_message(run, "n", 7)
    finish(run)

    assert seen == [Decision(True, 3), 7] * 2


class AmountForm(forms.Form):
    amount = forms.IntegerField(max_value=10)


class Unprintable(Exception):
    def __str__(self):
        raise LookupError("no text")


def refuse(data):
    raise Unprintable


@pytest.mark.parametrize("schema", [Decision, AmountForm, int, refuse])
def test_data_that_does_not_fit_fails_the_wait_for_good_and_the_next_message_is_not_stuck(schema):
    caught = []

    @workflow(name="t.misfit")
    def misfit(ctx):
        try:
            ctx.wait_for_message("go", schema=schema)
        except StepFailed as failed:
            caught.append((failed.step, failed.type, failed.message, failed.attempts))
        second = ctx.wait_for_message("go").data
        ctx.sleep(1)
        return second

    run = misfit.start()
    first = send_message(run, "go", {"amount": "x\x00\ud800"})
    send_message(run, "go", "second")
    finish(run)

    assert run.result == "second"
    step = run.steps.get(key="message:go")
    first.refresh_from_db()
    assert first.consumed_by == step
    assert step.status == "failed"
    assert len(caught) == 2
    assert caught[0] == caught[1]
    assert caught[0][:2] == ("go", step.error["type"])
    assert caught[0][2] == step.error["message"]
    assert step.error["message"].startswith(f"message {first.pk} ('go') doesn't fit the schema: ")
    # People see this on a page, which couldn't be sent with a lone surrogate in it.
    assert step.error["message"].encode()
    assert step.result == {"amount": "x\x00\ud800"}


@pytest.mark.parametrize(
    ("name", "options", "kind", "text"),
    [
        ("", {}, "ValueError", "A message's name must not be empty."),
        ([], {}, "ValueError", "Waiting for a message needs at least one name."),
        (["a", ""], {}, "ValueError", "A message's name must not be empty."),
        ("go", {"timeout": -1}, "ValueError", "A wait's timeout must be zero or more, got -1."),
        (
            "go",
            {"timeout": "5"},
            "TypeError",
            "A wait's timeout must be a timedelta or a number of seconds, not str.",
        ),
    ],
)
def test_a_wait_that_is_asked_for_wrongly_fails_the_run_with_a_clear_text(
    name, options, kind, text
):
    run = waiting(name, **options)
    run_until_idle(run)

    assert (run.status, run.error["type"], run.error["message"]) == ("failed", kind, text)
    assert not run.steps.exists()


def test_a_consumed_wait_stands_the_same_whether_it_parked_or_not():
    parked, at_once = waiting("go", timeout=60), waiting("go", timeout=60)
    run_until_idle(parked)
    for run in (parked, at_once):
        send_message(run, "go", 1)
        run_until_idle(run)

    rows = [
        (step.status, step.attempts, step.result, step.error, step.wake_at, bool(step.finished_at))
        for step in (run.steps.get(kind="message") for run in (parked, at_once))
    ]
    assert rows[0] == rows[1] == ("completed", 1, 1, None, None, True)


def test_list_messages_tells_which_step_took_which_message():
    run = waiting("go")
    for n in range(2):
        send_message(run, "go", n)
    run_until_idle(run)

    page = list_messages(run)
    assert [each.consumed_by and each.consumed_by.key for each in page.items] == [
        "message:go",
        None,
    ]
    assert [each.data for each in list_messages(run, state="pending").items] == [1]
    assert [each.data for each in list_messages(run, state="consumed").items] == [0]
