"""`send_signal`: a broadcast to the waits that stand at that moment, and to nobody else."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from django_workflows import LeaseLost, PayloadError, cancel, send_message, send_signal, workflow
from django_workflows.models import WorkflowRun, WorkflowSignal
from django_workflows.store import leases, runs, signals
from django_workflows.store.runs import Parking
from django_workflows.telemetry import subscribed
from django_workflows.testing import advance, run_until_idle
from tests.claiming import claim, claim_and_lose, entry, park, rolled_back
from tests.lab import workflows as lab

pytestmark = pytest.mark.django_db


@pytest.fixture
def listening():
    """Start runs that are parked on a signal."""

    @workflow(name="t.listening")
    def listen(ctx, name, timeout=None):
        delivery = ctx.wait_for_signal(name, timeout=timeout)
        return None if delivery is None else delivery.data

    def start(name="news", **options):
        run = listen.start(name=name, **options)
        run_until_idle(run)
        assert run.status == "suspended"
        return run

    return start


def waiting_by_hand(run, name):
    """A run parked on a signal, without a body."""
    claimed = claim(run)
    waiting = entry(claimed, name, kind="signal", status="waiting")
    assert runs.park(claimed, Parking(waiting, (name,), lambda: False))


def test_without_a_waiter_nothing_is_stored(listening):
    listening("other")
    lab.wait_once.start(name="news")

    assert send_signal("news", 1, idempotency_key="k") == []

    assert not WorkflowSignal.objects.exists()


def test_every_run_that_waits_gets_one_delivery_oldest_wait_first(listening):
    first, second = listening(), listening()
    third = lab.nap.start(seconds=1)
    other = listening("other")

    assert send_signal("news", {"n": 1}) == [first.pk, second.pk]
    run_until_idle()

    for run in (first, second):
        run.refresh_from_db()
        assert (run.status, run.result) == ("completed", {"n": 1})
    for run in (third, other):
        run.refresh_from_db()
        assert run.status == "suspended"


def test_the_oldest_wait_is_first_whichever_run_is_older():
    older, newer = lab.nap.start(seconds=1), lab.nap.start(seconds=1)
    waiting_by_hand(newer, "news")
    waiting_by_hand(older, "news")

    assert send_signal("news") == [newer.pk, older.pk]


def test_a_delivery_tells_what_was_sent_to_whom(listening):
    run = listening()
    send_signal("news", [1], idempotency_key="k")

    delivery = WorkflowSignal.objects.get()
    assert (delivery.name, delivery.data, delivery.idempotency_key) == ("news", [1], "k")
    assert (delivery.run, delivery.step) == (run, run.steps.get())
    assert run.steps.get().created_at <= delivery.created_at


def test_a_signal_is_no_message_and_a_message_no_signal(listening):
    run = listening()
    parked = lab.wait_once.start(name="news")
    run_until_idle(parked)

    send_message(run, "news", "a message")
    assert send_signal("news", "a signal") == [run.pk]
    run_until_idle(run, parked)

    assert (run.result, parked.status) == ("a signal", "suspended")
    assert run.messages.pending().count() == 1


def test_a_name_is_matched_exactly(listening):
    listening("news")
    assert [send_signal(name) for name in ("News", "news ", "new", "news2")] == [[]] * 4


def test_a_wait_that_has_its_delivery_gets_no_second_one(listening):
    run = listening()

    assert send_signal("news", "first") == [run.pk]
    assert send_signal("news", "second") == []
    run_until_idle(run)

    assert run.result == "first"


def test_the_database_allows_one_delivery_per_wait(listening):
    listening()
    send_signal("news")
    delivery = WorkflowSignal.objects.get()
    delivery.pk = None
    with pytest.raises(IntegrityError, match=r"(?i)unique.*step"), transaction.atomic():
        delivery.save(force_insert=True)


def test_a_repeat_of_name_and_key_returns_the_first_result_and_delivers_nothing(listening):
    first, second = listening(), listening()
    reached = send_signal("news", "first", idempotency_key="k")
    run_until_idle()
    late = listening()

    assert send_signal("news", "again", idempotency_key="k") == reached == [first.pk, second.pk]
    run_until_idle(first, late)

    assert (first.result, late.status) == ("first", "suspended")


def test_a_key_that_reached_nobody_is_not_remembered(listening):
    assert send_signal("news", "early", idempotency_key="k") == []
    run = listening()

    assert send_signal("news", "late", idempotency_key="k") == [run.pk]


def test_keys_are_per_name(listening):
    news, weather = listening("news"), listening("weather")

    assert send_signal("news", idempotency_key="k") == [news.pk]
    assert send_signal("weather", idempotency_key="k") == [weather.pk]


def test_a_key_is_remembered_after_the_runs_have_ended(listening):
    run = listening()
    send_signal("news", idempotency_key="k")
    cancel(run)

    assert send_signal("news", idempotency_key="k") == [run.pk]


@pytest.mark.parametrize("how", ["canceled", "timed out", "ended"])
def test_a_wait_that_is_over_is_not_reached(listening, how):
    run = listening(timeout=60)
    if how == "canceled":
        cancel(run)
    elif how == "timed out":
        advance(timedelta(seconds=61))
        run_until_idle(run)
        assert run.result is None
    else:
        send_signal("news", "the end")
        run_until_idle(run)

    assert send_signal("news") == []


def test_a_rolled_back_send_delivers_nothing(listening):
    run = listening()
    with rolled_back():
        assert send_signal("news", idempotency_key="k") == [run.pk]

    assert run_until_idle(run) == 0
    assert not WorkflowSignal.objects.exists()


def test_a_send_in_the_callers_transaction_wakes_with_its_commit(listening):
    run = listening()
    with transaction.atomic():
        send_signal("news", "kept")

    run_until_idle(run)
    assert run.result == "kept"


def test_a_step_in_its_backoff_is_not_woken(listening):
    """Parked, but not on a signal: the name in its record is that of a step."""
    run = lab.nap.start(seconds=1)
    claimed = claim(run)
    assert park(claimed, "news")

    assert send_signal("news") == []


def test_the_router_wakes_who_was_reached_once(listening):
    run = listening()
    send_signal("news")

    assert (leases.route("signal"), leases.route("signal")) == (1, 0)
    assert set(WorkflowSignal.objects.values_list("routed", flat=True)) == {True}
    run.refresh_from_db()
    assert run.available_at is not None


def test_a_zombie_takes_no_delivery(listening):
    run = listening()
    send_signal("news", "kept")
    leases.route("signal")
    zombie, _heir = claim_and_lose(run)
    waiting = leases.reload_history(run.pk)[0]

    with pytest.raises(LeaseLost):
        signals.take(zombie, waiting, None)

    assert run.steps.get().status == "waiting"


def test_a_canceled_run_takes_no_delivery(listening):
    run = listening()
    send_signal("news")
    leases.route("signal")
    claimed = claim(run)
    cancel(run)

    looked = signals.take(claimed, leases.reload_history(run.pk)[0], None)

    assert (looked.run_status, looked.taken) == ("canceled", None)
    assert run.steps.get().status == "waiting"


def test_listeners_hear_how_many_were_reached(listening):
    listening()
    told = []
    with subscribed("signal.sent", lambda event, fields: told.append(fields)):
        send_signal("news")
    assert told == [{"name": "news", "reached": 1}]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"name": ""}, ValueError, "A signal's name must not be empty."),
        ({"name": "x" * 201}, ValueError, "A signal's name must have at most 200 characters"),
        ({"name": 7}, TypeError, "A signal's name must be a str, not int."),
        ({"idempotency_key": ""}, ValueError, "An idempotency key must not be empty."),
        ({"data": object()}, PayloadError, "data: an object instance can't be stored"),
    ],
)
def test_a_bad_argument_is_refused_before_anything_is_written(
    listening, arguments, error, text, django_assert_num_queries
):
    listening()
    with django_assert_num_queries(0), pytest.raises(error) as caught:
        send_signal(**{"name": "news", **arguments})

    assert text in str(caught.value)
    assert not WorkflowSignal.objects.exists()


def test_a_signal_goes_with_its_run(listening):
    run = listening()
    send_signal("news")
    WorkflowRun.objects.filter(pk=run.pk).delete()
    assert not WorkflowSignal.objects.exists()
