"""Idempotency keys: unique per run, known for ever, answered before the run's end."""

import pytest
from django.db import transaction

from django_workflows import RunFinished, cancel, send_message
from django_workflows.store import runs
from django_workflows.testing import run_until_idle
from tests.claiming import claim
from tests.lab import workflows as lab
from tests.lab.models import Thing

pytestmark = pytest.mark.django_db


@pytest.fixture
def run():
    return lab.wait_once.start()


def stored(run):
    return [(message.name, message.data) for message in run.messages.order_by("id")]


# https://github.com/dbos-inc/dbos-transact-ts/pull/1307
def test_a_key_is_unique_per_run_over_all_names(run):
    other = lab.wait_once.start()
    first = send_message(run, "go", "A", idempotency_key="evt-1")
    second = send_message(other, "go", "B", idempotency_key="evt-1")
    third = send_message(run, "another", "C", idempotency_key="evt-1")

    assert (first.deduplicated, second.deduplicated, third.deduplicated) == (False, False, True)
    assert (third, third.name, third.data) == (first, "go", "A")
    assert (stored(run), stored(other)) == ([("go", "A")], [("go", "B")])


def test_a_repeated_key_in_a_transaction_leaves_it_usable(run):
    with transaction.atomic():
        send_message(run, "go", 1, idempotency_key="k")
        assert send_message(run, "go", 2, idempotency_key="k").deduplicated
        Thing.objects.create(name="after")

    assert stored(run) == [("go", 1)]
    assert Thing.objects.count() == 1


def test_messages_without_a_key_are_never_duplicates(run):
    assert send_message(run, "go", 1) != send_message(run, "go", 1)
    assert len(stored(run)) == 2


# https://github.com/temporalio/temporal/pull/11968
@pytest.mark.parametrize("how", ["completed", "failed", "canceled"])
def test_a_known_key_is_answered_before_the_end_is_looked_at(run, how):
    first = send_message(run, "go", "first", idempotency_key="K")
    if how == "canceled":
        cancel(run)
    else:
        runs.finish(claim(run), status=how, result="null", error=None)

    again = send_message(run, "go", "again", idempotency_key="K")
    assert (again, again.data, again.deduplicated) == (first, "first", True)
    with pytest.raises(RunFinished):
        send_message(run, "go", "new", idempotency_key="L")
    assert stored(run) == [("go", "first")]


def test_a_key_of_a_consumed_message_is_still_known(run):
    first = send_message(run, "go", idempotency_key="K")
    run_until_idle(run)

    again = send_message(run, "go", idempotency_key="K")
    assert (again, again.consumed_by) == (first, run.steps.get())
