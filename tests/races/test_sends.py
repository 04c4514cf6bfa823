"""Senders beside parkers, finishers, workers and each other, on real connections."""

import json
import threading
from uuid import uuid4

import pytest
from django.db import connection, transaction

from django_workflows import RunFinished, cancel, resume, send_message
from django_workflows.models import WorkflowMessage
from django_workflows.store import leases, recorder, runs
from django_workflows.telemetry import subscribed
from django_workflows.testing import run_until_idle
from tests.claiming import claim, entry, park, parked, rolled_back
from tests.lab import workflows as lab
from tests.waiting import Background, blocked_backends, eventually, in_threads

pytestmark = pytest.mark.django_db(transaction=True)

row_locks = pytest.mark.postgresql("on SQLite a second writer waits for the whole transaction")


@pytest.fixture
def run():
    return lab.wait_once.start()


# https://github.com/aikirun/aiki/pull/173
def test_a_send_between_the_look_and_the_park_keeps_the_run_from_parking(run):
    def send(event, fields):
        Background(lambda: send_message(run, "go", "in between")).result()

    with subscribed("run.parking", send):
        done = resume(run)

    assert (done.result, done.claim_count) == ({"data": "in between"}, 1)


# https://github.com/aikirun/aiki/pull/173
def test_a_send_between_the_look_under_the_lock_and_the_park_wakes_the_run(run):
    sends = []

    def send(event, fields):
        sends.append(Background(lambda: send_message(run, "go", "in between")))
        if connection.vendor == "postgresql":
            # The sender needn't wait for the parker; the router must.
            sends[0].result()
            assert Background(leases.route).result() == 0

    with subscribed("park.looked", send):
        assert resume(run).status == "suspended"
    sends[0].result()

    run_until_idle(run)
    assert run.result == {"data": "in between"}


# https://github.com/aikirun/aiki/pull/173
def test_a_worker_process_that_is_held_before_its_park_sees_the_message(
    run, start_worker, tmp_path
):
    start_worker("--poll-interval", "1", LAB_PAUSE=f"park.looked:{tmp_path}")
    eventually((tmp_path / "reached").exists)
    sent = Background(lambda: send_message(run, "go", "in between"))
    if connection.vendor == "postgresql":
        sent.result()
    (tmp_path / "go").touch()

    sent.result()
    assert run.wait(10).result == {"data": "in between"}


@row_locks
def test_a_send_whose_transaction_outlives_the_park_wakes_the_run_on_commit(run):
    with transaction.atomic():
        send_message(run, "go", "late")
        assert Background(lambda: resume(run)).result().status == "suspended"
        assert Background(leases.route).result() == 0
        assert Background(leases.look).result().unrouted == ()

    assert leases.look().unrouted == ("message",)
    assert leases.route() == 1
    run_until_idle(run)
    assert run.result == {"data": "late"}


@row_locks
def test_a_send_that_is_rolled_back_after_the_park_wakes_nobody(run):
    with rolled_back():
        send_message(run, "go", "late")
        Background(lambda: resume(run)).result()

    assert run_until_idle(run) == 0
    assert run.status == "suspended"


@row_locks
@pytest.mark.parametrize("how", ["finish", "cancel"])
def test_an_end_waits_for_a_send_in_flight_which_is_then_there(run, how):
    claimed = claim(run)

    def end():
        if how == "cancel":
            return cancel(run)
        return runs.finish(claimed, status="completed", result="1", error=None)

    with transaction.atomic():
        send_message(run, "go", "in flight")
        ending = Background(end).wait_until_blocked()
    ending.result()

    run.refresh_from_db()
    assert run.is_finished
    assert [message.data for message in run.messages.pending()] == ["in flight"]


@row_locks
@pytest.mark.parametrize("how", ["finish", "cancel"])
def test_a_send_waits_for_an_end_in_flight_and_is_refused(run, how):
    claimed = claim(run)
    with transaction.atomic():
        if how == "cancel":
            cancel(run)
        else:
            runs.finish(claimed, status="completed", result="1", error=None)
        sending = Background(lambda: send_message(run, "go")).wait_until_blocked()

    with pytest.raises(RunFinished, match="canceled" if how == "cancel" else "completed"):
        sending.result()
    assert WorkflowMessage.objects.count() == 0


@row_locks
def test_a_send_that_waited_for_an_end_that_is_rolled_back_is_stored(run):
    with rolled_back():
        cancel(run)
        sending = Background(lambda: send_message(run, "go", "kept")).wait_until_blocked()

    assert sending.result().data == "kept"
    assert run.messages.count() == 1


def test_no_message_is_stored_after_an_end_whoever_comes_first():
    for _ in range(20):
        run = parked(lab.wait_once.start(), "go")

        def send(run=run):
            try:
                return send_message(run, "go").created_at
            except RunFinished:
                return None

        *sent, ended = in_threads(send, send, send, lambda run=run: cancel(run).finished_at)
        assert run.messages.count() == sum(at is not None for at in sent)
        assert all(at is None or at <= ended for at in sent)


# https://github.com/zenml-io/kitaru/pull/683
@row_locks
def test_an_open_send_holds_up_neither_records_nor_heartbeat_nor_other_senders(run):
    worker = uuid4()
    leases.register_worker(
        worker, name="w", host="h", pid=1, queues=[], pairs=[], lease=lab.timedelta(seconds=30)
    )
    claimed = claim(run, worker)
    other = lab.wait_once.start()

    def work():
        for seq in range(3):
            recorder.record(claimed, entry(claimed, f"step:{seq}", seq=seq))
        assert leases.renew(worker, lab.timedelta(seconds=30), [])
        runs.write_state(claimed, '{"done":1}')
        assert park(claimed, "go", seq=3)
        return run.steps.count()

    with transaction.atomic():
        send_message(run, "go", "open")
        assert Background(work).result(10) == 4
        assert Background(lambda: send_message(run, "go", "second")).result(10).pk
        assert Background(lambda: claim(other)).result(10).run_id == other.pk
        # A second claim of the very run, woken by the other sender.
        assert Background(leases.route).result(10) == 1
        assert Background(lambda: claim(run)).result(10).run_id == run.pk
        assert blocked_backends() == 0

    assert leases.take_over_dead() == 0


# https://github.com/rails/solid_queue/issues/162
def test_senders_to_two_runs_in_opposite_order_do_not_deadlock(run):
    other = lab.wait_once.start()
    both_sent_one = threading.Barrier(2)

    def send_to(*recipients):
        with transaction.atomic():
            send_message(recipients[0], "go", idempotency_key=f"to:{recipients[1].pk}")
            if connection.vendor == "postgresql":
                both_sent_one.wait(20)
            send_message(recipients[1], "go", idempotency_key=f"to:{recipients[1].pk}")

    in_threads(lambda: send_to(run, other), lambda: send_to(other, run))

    assert (run.messages.count(), other.messages.count()) == (2, 2)


@row_locks
def test_a_repeat_of_a_key_in_flight_waits_and_is_answered_with_the_first(run):
    with transaction.atomic():
        first = send_message(run, "go", "first", idempotency_key="k")
        again = Background(lambda: send_message(run, "go", "again", idempotency_key="k"))
        again.wait_until_blocked()

    again = again.result()
    assert (again, again.data, again.deduplicated) == (first, "first", True)
    assert run.messages.count() == 1


@row_locks
def test_a_repeat_of_a_key_that_is_rolled_back_is_stored(run):
    with rolled_back():
        send_message(run, "go", "first", idempotency_key="k")
        again = Background(lambda: send_message(run, "go", "again", idempotency_key="k"))
        again.wait_until_blocked()

    again = again.result()
    assert (again.data, again.deduplicated) == ("again", False)
    assert [message.data for message in run.messages.all()] == ["again"]


def test_of_senders_with_one_key_at_once_one_stores(run):
    for n in range(10):
        send = lambda n=n: send_message(run, "go", idempotency_key=f"k{n}")  # noqa: E731
        sent = in_threads(*[send] * 6)
        assert sum(not message.deduplicated for message in sent) == 1
        assert len({message.pk for message in sent}) == 1
    assert run.messages.count() == 10


def test_of_processes_with_one_key_at_once_one_stores(run, call_process):
    senders = [
        call_process("tests.lab.races:send_keyed", str(run.pk), "go", n, "k") for n in range(4)
    ]
    told = [json.loads(sender.communicate(timeout=60)[0]) for sender in senders]

    assert len({message for message, _ in told}) == 1
    assert sorted(known for _, known in told) == [False, True, True, True]
    assert run.messages.count() == 1


# https://github.com/langgenius/dify/issues/42103
def test_two_answers_at_once_reach_their_waits_in_the_order_of_their_commits(
    start_worker, call_process
):
    run = lab.wait_for_all.start(names=["legal", "finance", "legal"])
    start_worker()
    eventually(lambda: run.refresh_from_db() or run.status == "suspended")
    send_message(run, "finance", "F1")
    first = call_process("tests.lab.races:send_keyed", str(run.pk), "legal", "L1", None)
    assert first.wait(30) == 0
    call_process("tests.lab.races:send_keyed", str(run.pk), "legal", "L2", None)

    assert run.wait(15).result == ["L1", "F1", "L2"]
