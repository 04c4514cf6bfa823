"""A record: committed on return, fenced by the claim, once per key."""

import pytest
from django.db import IntegrityError, transaction

from django_workflows import LeaseLost, cancel
from django_workflows.store import leases, recorder
from django_workflows.telemetry import subscribed
from tests.claiming import claim, claim_and_lose, entry
from tests.lab import workflows as lab
from tests.lab.models import Thing

pytestmark = pytest.mark.django_db


@pytest.fixture
def run():
    return lab.steps.start()


def test_a_record_is_one_statement_and_comes_back_as_it_was(run, django_assert_num_queries):
    claimed = claim(run)
    given = entry(
        claimed, "charge", result='{"b":1,"a":[1e16,-0.0]}', details='{"x":1}', attempts=3
    )

    with django_assert_num_queries(1):
        recorded = recorder.record(claimed, given)

    assert (recorded.entry, recorded.run_status) == (given, "running")
    (again,) = leases.reload_history(run.pk)
    assert (again.id, again.result, again.details) == (given.id, given.result, given.details)
    assert (again.seq, again.key, again.name, again.kind) == (0, "charge", "charge", "step")
    assert (again.status, again.attempts, again.wake_at) == ("completed", 3, None)
    assert abs(again.created_at - given.created_at) < 1e-5
    step = run.steps.get()
    assert step.result == {"b": 1, "a": [1e16, -0.0]}
    assert step.finished_at is not None


def test_an_entry_is_changed_in_place_and_keeps_its_key(run):
    claimed = claim(run)
    step = entry(claimed, status="running", result=None)
    recorder.record(claimed, step)
    assert run.steps.get().finished_at is None

    step.status, step.result, step.attempts = "completed", "7", 2
    recorder.record(claimed, step)

    again = run.steps.get()
    assert (again.pk, again.key, again.status, again.result) == (step.id, "step", "completed", 7)
    assert again.attempts == 2
    assert again.finished_at is not None


def test_a_zombies_record_changes_nothing(run):
    zombie, claimed = claim_and_lose(run)
    step = entry(claimed, status="running", result=None)
    recorder.record(claimed, step)

    with pytest.raises(LeaseLost):
        recorder.record(zombie, entry(zombie, "other", seq=1))
    stolen = entry(zombie, result='"zombie"')
    stolen.id = step.id
    with pytest.raises(LeaseLost):
        recorder.record(zombie, stolen)

    again = run.steps.get()
    assert (again.key, again.status, again.result) == ("step", "running", None)


def test_an_entry_of_another_run_is_out_of_reach(run):
    mine, other = claim(run), claim(lab.steps.start())
    step = entry(mine, status="running", result=None)
    recorder.record(mine, step)

    foreign = entry(other)
    foreign.id = step.id
    with pytest.raises(LeaseLost):
        recorder.record(other, foreign)
    assert run.steps.get().status == "running"


def test_a_second_record_of_a_key_fails_with_the_work_of_its_transaction(run):
    claimed = claim(run)
    recorder.record(claimed, entry(claimed))

    def do_it_again():
        with transaction.atomic():
            Thing.objects.create(name="effect")
            recorder.record(claimed, entry(claimed, seq=1))

    with pytest.raises(IntegrityError):
        do_it_again()
    assert Thing.objects.count() == 0
    assert run.steps.count() == 1


def test_the_current_step_of_a_canceled_run_is_recorded_and_told_so(run):
    claimed = claim(run)
    cancel(run)

    assert recorder.record(claimed, entry(claimed)).run_status == "canceled"
    assert run.steps.get().status == "completed"


def test_listeners_hear_of_a_record_before_and_after(run):
    claimed = claim(run)
    heard = []

    def listen(event, fields):
        heard.append((event, fields["key"], run.steps.count()))

    with subscribed("record.writing", listen), subscribed("step.recorded", listen):
        recorder.record(claimed, entry(claimed))

    assert heard == [("record.writing", "step", 0), ("step.recorded", "step", 1)]
