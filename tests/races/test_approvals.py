"""Reviewers who decide one gate at once, and decisions beside timeouts and ends."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from django_workflows import (
    ApprovalDenied,
    GateDecided,
    RunFinished,
    approve,
    cancel,
    reject,
    resume,
)
from django_workflows.models import WorkflowMessage
from django_workflows.telemetry import subscribed
from django_workflows.testing import advance, run_until_idle
from tests.claiming import rolled_back
from tests.lab import workflows as lab
from tests.waiting import Background, in_threads

pytestmark = pytest.mark.django_db(transaction=True)

row_locks = pytest.mark.postgresql("on SQLite a second writer waits for the whole transaction")


@pytest.fixture
def ann():
    return User.objects.create_user("ann")


@pytest.fixture
def bob():
    return User.objects.create_user("bob")


def gated(**options):
    run = lab.gate.start(**options)
    run_until_idle(run)
    assert run.status == "suspended"
    return run


def attempt(decide, run, by):
    """True for a decision that was stored, else the one that stands."""
    try:
        decide(run, "manager", by=by)
    except GateDecided as decided:
        return decided.approval.by.text
    return True


@pytest.mark.parametrize("is_early", [False, True])
def test_of_reviewers_at_once_one_wins_and_the_others_are_told_who(ann, bob, is_early):
    for _ in range(10):
        run = lab.gate.start() if is_early else gated()
        outcomes = in_threads(
            lambda run=run: attempt(approve, run, ann),
            lambda run=run: attempt(reject, run, bob),
            lambda run=run: attempt(approve, run, ann),
            lambda run=run: attempt(reject, run, bob),
        )
        winner = ("ann", "bob")[outcomes.index(True) % 2]
        assert sorted(map(str, outcomes)) == ["True", *[winner] * 3]
        run_until_idle(run)
        assert run.result == [winner == "ann", winner]
        assert run.messages.count() == 1


@row_locks
def test_a_reviewer_waits_for_a_decision_in_flight_and_is_told_of_it(ann, bob):
    run = gated()
    with transaction.atomic():
        approve(run, "manager", by=ann)
        second = Background(lambda: reject(run, "manager", by=bob)).wait_until_blocked()

    with pytest.raises(GateDecided, match="was approved already, by ann"):
        second.result()
    assert WorkflowMessage.objects.count() == 1


@row_locks
def test_a_decision_that_is_rolled_back_leaves_the_gate_to_the_next(ann, bob):
    run = gated()
    with rolled_back():
        approve(run, "manager", by=ann)
        second = Background(lambda: reject(run, "manager", by=bob)).wait_until_blocked()

    assert second.result().pk
    run_until_idle(run)
    assert run.result == [False, "bob"]


@row_locks
def test_an_early_decision_in_flight_is_not_overtaken_when_the_gate_is_reached(ann, bob):
    run = lab.gate.start()
    with transaction.atomic():
        approve(run, "manager", by=ann)
        assert Background(lambda: resume(run)).result().status == "suspended"
        second = Background(lambda: reject(run, "manager", by=bob)).wait_until_blocked()

    with pytest.raises(GateDecided, match="was approved already, by ann"):
        second.result()
    run_until_idle(run)
    assert run.result == [True, "ann"]


@row_locks
def test_a_decision_that_was_early_when_it_looked_is_checked_by_the_gate_that_has_opened(ann, bob):
    run = lab.gate.start(exclude=bob.pk)
    with rolled_back():
        approve(run, "manager", by=ann)
        second = Background(lambda: approve(run, "manager", by=bob)).wait_until_blocked()
        assert Background(lambda: resume(run)).result().status == "suspended"

    with pytest.raises(ApprovalDenied, match="bob is excluded"):
        second.result()
    assert not WorkflowMessage.objects.exists()


@row_locks
def test_a_decision_beside_the_take_of_an_early_one_is_told_of_it_and_not_kept(ann, bob):
    run = lab.gate.start()
    approve(run, "manager", by=ann)
    seconds = []

    def decide(event, fields):
        # The gate's step isn't committed yet, and the first decision just stops being early.
        second = Background(lambda: reject(run, "manager", by=bob))
        seconds.append(second.wait_until_blocked())

    with subscribed("gate.passed", decide):
        resume(run)

    with pytest.raises(GateDecided, match="was approved already, by ann"):
        seconds[0].result()
    run.refresh_from_db()
    assert run.result == [True, "ann"]
    assert WorkflowMessage.objects.count() == 1


@row_locks
def test_a_repeat_of_a_key_in_flight_is_answered_with_the_first(ann):
    run = gated()
    with transaction.atomic():
        first = approve(run, "manager", by=ann, idempotency_key="k")
        again = Background(lambda: approve(run, "manager", by=ann, idempotency_key="k"))
        again.wait_until_blocked()

    assert (again.result(), again.result().deduplicated) == (first, True)


@pytest.mark.parametrize("event", ["run.parking", "park.looked"])
def test_a_decision_beside_the_park_is_not_lost(ann, event):
    run = lab.gate.start()
    decisions = []

    def decide(event, fields):
        if not decisions:
            decisions.append(Background(lambda: approve(run, "manager", by=ann)))
            if connection.vendor == "postgresql":
                decisions[0].result(10)

    with subscribed(event, decide):
        resume(run)
    decisions[0].result()
    run_until_idle(run)

    assert run.result == [True, "ann"]


def test_a_decision_beside_a_timeout_that_is_told_too_late_is_never_taken(ann):
    for _ in range(20):
        run = gated(timeout=60)
        advance(timedelta(seconds=61))

        def decide(run=run):
            try:
                return bool(approve(run, "manager", by=ann))
            except (GateDecided, RunFinished):
                return False

        is_stored, _ = in_threads(decide, lambda run=run: resume(run))
        run_until_idle(run)
        assert run.status == "completed"
        # One stored after the timeout was recorded stays for a next gate, as messages do.
        assert run.result in (([True, "ann"], None) if is_stored else (None,))
        assert run.messages.count() == is_stored


@row_locks
def test_a_decision_waits_for_an_end_in_flight_and_is_refused(ann):
    run = gated()
    with transaction.atomic():
        cancel(run)
        deciding = Background(lambda: approve(run, "manager", by=ann)).wait_until_blocked()

    with pytest.raises(RunFinished, match="canceled"):
        deciding.result()
    assert not WorkflowMessage.objects.exists()
