"""`ctx.wait_for_signal`, `ctx.send_signal`."""

from dataclasses import dataclass
from datetime import timedelta

import pytest

from django_workflows import Message, StepFailed, resume, send_message, send_signal, workflow
from django_workflows.models import WorkflowSignal
from django_workflows.telemetry import subscribed
from django_workflows.testing import advance, run_until_idle
from tests.runtime.crashes import WorkerDied, execute_until_death

pytestmark = pytest.mark.django_db


@dataclass
class Headline:
    title: str


def listening(**options):
    """A run that waits for a signal, and is replayed once more before it ends."""

    @workflow(name="t.listening")
    def body(ctx):
        delivery = ctx.wait_for_signal("news", **options)
        ctx.sleep(1)
        return "timed out" if delivery is None else delivery.data

    run = body.start()
    run_until_idle(run)
    return run


def finish(run):
    run_until_idle(run)
    advance(timedelta(seconds=2))
    run_until_idle(run)
    return run


def test_a_wait_parks_until_a_signal_comes_and_gives_the_same_on_every_replay():
    run = listening()
    assert (run.status, run.available_at, run.waiting_names) == ("suspended", None, ["news"])

    send_signal("news", {"n": 1})

    assert finish(run).result == {"n": 1}
    assert [(step.kind, step.status) for step in run.steps.all()] == [
        ("signal", "completed"),
        ("sleep", "completed"),
    ]


def test_a_delivery_is_a_message_that_tells_name_key_and_time():
    seen = []

    @workflow(name="t.tell")
    def tell(ctx):
        seen.append(ctx.wait_for_signal("news"))
        ctx.sleep(1)

    run = tell.start()
    run_until_idle(run)
    send_signal("news", (1, 2), idempotency_key="k")
    finish(run)

    first, again = seen
    assert first == again
    assert isinstance(first, Message)
    delivery = WorkflowSignal.objects.get()
    assert (first.id, first.name, first.data) == (delivery.pk, "news", (1, 2))
    assert (first.idempotency_key, first.sent_at) == ("k", delivery.created_at)


def test_what_was_sent_before_the_wait_does_not_count():
    assert send_signal("news", "early") == []
    run = listening()

    assert run.status == "suspended"


def test_what_was_sent_to_the_wait_before_does_not_count_for_the_next():
    @workflow(name="t.two")
    def two(ctx):
        return [ctx.wait_for_signal("news").data for _ in range(2)]

    run = two.start()
    run_until_idle(run)
    for data in ("first", "lost"):
        send_signal("news", data)
    run_until_idle(run)
    assert run.status == "suspended"
    send_signal("news", "second")
    run_until_idle(run)

    assert run.result == ["first", "second"]


def test_a_wait_times_out_and_stays_timed_out():
    run = listening(timeout=timedelta(hours=1))
    advance(timedelta(hours=1, seconds=1))
    run_until_idle(run)

    assert send_signal("news", "late") == []
    assert finish(run).result == "timed out"


def test_a_delivery_beats_a_timeout_that_is_not_recorded_yet():
    run = listening(timeout=60)
    advance(timedelta(seconds=61))

    assert send_signal("news", "just in time") == [run.pk]
    assert finish(run).result == "just in time"


def test_a_timeout_of_zero_never_parks():
    run = listening(timeout=0)

    assert send_signal("news") == []
    assert finish(run).result == "timed out"


def test_a_worker_that_dies_once_it_has_taken_the_delivery_leaves_it_to_the_replay():
    run = listening()
    send_signal("news", "kept")

    def die(event, fields):
        raise WorkerDied

    with subscribed("signal.consumed", die):
        execute_until_death(run)
    assert send_signal("news", "again") == []

    assert finish(run).result == "kept"


def test_data_that_fits_the_schema_arrives_as_its_type():
    @workflow(name="t.typed")
    def typed(ctx):
        return ctx.wait_for_signal("news", schema=Headline).data.title

    run = typed.start()
    run_until_idle(run)
    send_signal("news", {"title": "Rain"})
    run_until_idle(run)

    assert run.result == "Rain"


def test_data_that_does_not_fit_fails_the_wait_for_good_and_the_next_one_is_free():
    @workflow(name="t.typed")
    def typed(ctx):
        try:
            ctx.wait_for_signal("news", schema=Headline)
        except StepFailed as failed:
            why = f"{failed.step}: {failed.type}"
        return [why, ctx.wait_for_signal("news", schema=Headline).data.title]

    run = typed.start()
    run_until_idle(run)
    send_signal("news", {"headline": "Rain"})
    run_until_idle(run)
    assert (run.status, run.steps.first().status) == ("suspended", "failed")
    send_signal("news", {"title": "Sun"})
    run_until_idle(run)

    assert run.result[0].startswith("news: ")
    assert run.result[1] == "Sun"


def test_a_message_of_the_same_name_does_not_end_the_wait():
    run = listening()
    send_message(run, "news", "a message")
    run_until_idle(run)

    assert run.status == "suspended"


@pytest.fixture
def sender():
    @workflow(name="t.sender")
    def send(ctx):
        reached = ctx.send_signal("news", {"n": 1})
        ctx.sleep(1)
        return reached

    return send


def test_a_signal_from_a_body_is_recorded_and_not_sent_again_by_a_replay(sender):
    first = listening()
    run = sender.start()
    run_until_idle(run)
    late = listening()

    assert finish(run).result == [first.pk]
    assert finish(first).result == {"n": 1}
    run_until_idle(late)
    assert late.status == "suspended"
    assert [step.kind for step in run.steps.all()] == ["send_signal", "sleep"]


def test_a_signal_from_a_body_that_reaches_nobody_says_so(sender):
    assert finish(sender.start()).result == []


def test_a_crash_between_send_and_record_sends_once(sender):
    first = listening()
    run = sender.start()

    def die(event, fields):
        raise WorkerDied

    with subscribed("record.writing", die):
        execute_until_death(run)
    assert WorkflowSignal.objects.count() == 1
    late = listening()

    assert finish(run).result == [first.pk]
    run_until_idle(late)
    assert (late.status, WorkflowSignal.objects.count()) == ("suspended", 1)


def test_a_run_cannot_reach_itself(sender):
    """It isn't waiting while it sends."""

    @workflow(name="t.self")
    def to_self(ctx):
        reached = ctx.send_signal("news")
        ctx.wait_for_signal("news", timeout=1)
        return reached

    assert finish(to_self.start()).result == []


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda ctx: ctx.wait_for_signal(""), "A signal's name must not be empty."),
        (lambda ctx: ctx.wait_for_signal("x", timeout=-1), "must be zero or more, got -1"),
        (lambda ctx: ctx.send_signal(""), "A signal's name must not be empty."),
        (lambda ctx: ctx.send_signal("x", object()), "an object instance can't be stored"),
    ],
)
def test_a_bad_argument_fails_the_run_and_records_nothing(call, text):
    @workflow(name="t.bad")
    def bad(ctx):
        call(ctx)

    run = bad.start()
    run_until_idle(run)

    assert run.status == "failed"
    assert text in run.error["message"]
    assert not run.steps.exists()


def test_resume_takes_a_signal_that_no_worker_has_routed():
    run = listening()
    send_signal("news", 7)

    assert resume(run).steps.first().status == "completed"
