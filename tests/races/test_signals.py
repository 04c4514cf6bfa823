"""Broadcasts beside waits that begin, time out and end, and beside each other."""

import json
from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_workflows import cancel, resume, send_signal
from django_workflows.models import WorkflowSignal
from django_workflows.store import leases
from django_workflows.telemetry import subscribed
from django_workflows.testing import advance, run_until_idle
from tests.claiming import claim_batch, rolled_back
from tests.lab import workflows as lab
from tests.waiting import Background, eventually, in_threads

pytestmark = pytest.mark.django_db(transaction=True)

row_locks = pytest.mark.postgresql("on SQLite a second writer waits for the whole transaction")


def listening(count=1, **options):
    found = [lab.listen.start(**options) for _ in range(count)]
    run_until_idle(*found)
    assert {run.status for run in found} == {"suspended"}
    return found


def ids(found):
    return [run.pk for run in found]


def test_sends_of_one_key_at_once_return_the_same_ids_and_deliver_once():
    for n in range(10):
        found = listening(3)
        send = lambda n=n: send_signal("news", idempotency_key=f"k{n}")  # noqa: E731
        assert in_threads(*[send] * 4) == [ids(found)] * 4
        assert WorkflowSignal.objects.filter(idempotency_key=f"k{n}").count() == 3
        run_until_idle(*found)


def test_processes_that_send_one_key_at_once_are_told_the_same_ids(call_process, tmp_path):
    found = listening(3)
    senders = [
        call_process("tests.lab.races:signal_at_once", str(tmp_path), "news", "k") for _ in range(4)
    ]
    eventually(lambda: len(list(tmp_path.glob("ready-*"))) == 4)
    (tmp_path / "go").touch()
    told = [json.loads(sender.communicate(timeout=60)[0]) for sender in senders]

    assert told == [[str(pk) for pk in ids(found)]] * 4
    assert WorkflowSignal.objects.count() == 3


@row_locks
def test_a_repeat_of_a_key_in_flight_waits_and_is_told_the_first_result():
    found = listening(2)
    with transaction.atomic():
        send_signal("news", "first", idempotency_key="k")
        again = Background(lambda: send_signal("news", "again", idempotency_key="k"))
        again.wait_until_blocked()
        assert Background(lambda: send_signal("other", idempotency_key="k")).result(10) == []

    assert again.result() == ids(found)
    assert {delivery.data for delivery in WorkflowSignal.objects.all()} == {"first"}


@row_locks
def test_a_repeat_of_a_key_that_is_rolled_back_delivers_itself():
    found = listening(2)
    with rolled_back():
        send_signal("news", "first", idempotency_key="k")
        again = Background(lambda: send_signal("news", "again", idempotency_key="k"))
        again.wait_until_blocked()

    assert again.result() == ids(found)
    run_until_idle(*found)
    assert [run.result for run in found] == ["again"] * 2


def test_of_signals_at_once_one_is_delivered_to_each_wait():
    for _ in range(10):
        found = listening(2)
        reached = in_threads(*[lambda n=n: send_signal("news", n) for n in range(4)])
        assert sorted(run_id for each in reached for run_id in each) == sorted(ids(found))
        run_until_idle(*found)
        for run in found:
            (n,) = (n for n in range(4) if run.pk in reached[n])
            assert run.result == n


@row_locks
def test_a_signal_in_flight_keeps_the_wait_from_timing_out():
    (run,) = listening(timeout=60)
    with transaction.atomic():
        assert send_signal("news", "in time") == [run.pk]
        advance(timedelta(seconds=61))
        assert Background(claim_batch).result(10) == []

    run_until_idle(run)
    assert run.result == "in time"


@row_locks
def test_a_signal_that_is_rolled_back_lets_the_wait_time_out():
    (run,) = listening(timeout=60)
    with rolled_back():
        send_signal("news")
        advance(timedelta(seconds=61))

    run_until_idle(run)
    assert (run.status, run.result) == ("completed", None)


def test_a_signal_beside_a_timeout_is_told_to_reach_the_run_just_when_it_does():
    outcomes = set()
    for _ in range(30):
        (run,) = listening(timeout=60)
        advance(timedelta(seconds=61))
        reached, _ = in_threads(lambda: send_signal("news", "data"), lambda run=run: resume(run))
        run_until_idle(run)
        assert (reached, run.result) in (([run.pk], "data"), ([], None))
        outcomes.add(run.result)
    assert outcomes, "no race was run"


@pytest.mark.parametrize("event", ["run.parking", "park.looked"])
def test_a_signal_beside_a_park_is_told_to_reach_the_run_just_when_it_does(event):
    run = lab.listen.start()
    sends = []

    def send(event, fields):
        if not sends:
            sends.append(Background(lambda: send_signal("news", "data")))
            if connection.vendor == "postgresql":
                sends[0].result(10)

    with subscribed(event, send):
        resume(run)
    reached = sends[0].result()
    run_until_idle(run)

    assert (reached, run.status) in (([run.pk], "completed"), ([], "suspended"))


@row_locks
def test_a_signal_waits_for_an_end_in_flight_and_does_not_reach_it():
    first, second = listening(2)
    with transaction.atomic():
        cancel(first)
        sending = Background(lambda: send_signal("news")).wait_until_blocked()

    assert sending.result() == [second.pk]
    assert not WorkflowSignal.objects.filter(run=first).exists()


@row_locks
def test_signals_to_the_same_runs_in_opposite_order_do_not_wait_for_each_other():
    listening(name="a")
    listening(name="b")
    with transaction.atomic():
        assert len(send_signal("a")) == 1
        with_other = Background(lambda: [len(send_signal(name)) for name in ("b", "c")])
        assert with_other.result(10) == [1, 0]
        assert send_signal("b") == []


def test_workers_wake_every_run_that_was_reached(start_worker):
    start_worker()
    start_worker()
    found = [lab.listen.start() for _ in range(20)]
    eventually(lambda: all(run.refresh_from_db() or run.status == "suspended" for run in found))

    assert sorted(send_signal("news", 7)) == sorted(ids(found))

    assert [run.wait(20).result for run in found] == [7] * 20
    assert leases.look().unrouted == ()
