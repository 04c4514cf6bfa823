"""Messages: stored at send, FIFO per name, consumed once, idempotent, refused after the end."""

from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_workflows import (
    LeaseLost,
    PayloadError,
    RunFinished,
    RunNotFound,
    cancel,
    send_message,
    workflow,
)
from django_workflows.api import asend_message
from django_workflows.models import WorkflowMessage, WorkflowRun
from django_workflows.store import leases, messages, runs
from django_workflows.testing import run_until_idle
from tests.claiming import claim, claim_and_lose, entry, park, parked, rolled_back, take
from tests.lab import workflows as lab
from tests.lab.models import Thing

pytestmark = pytest.mark.django_db


@pytest.fixture
def run():
    return lab.wait_once.start()


def stored(run):
    return [(message.name, message.data) for message in run.messages.order_by("id")]


def ended(run, how):
    if how == "canceled":
        cancel(run)
    else:
        runs.finish(claim(run), status=how, result="null", error=None)
    return run


def test_a_message_is_stored_pending_and_unrouted_at_once(run):
    message = send_message(run, "go", {"n": 1}, idempotency_key="k")

    again = WorkflowMessage.objects.get()
    assert message == again
    assert (again.run, again.name, again.data) == (run, "go", {"n": 1})
    assert (again.idempotency_key, again.consumed_by, again.consumed_at) == ("k", None, None)
    assert (message.data, message.created_at) == ({"n": 1}, again.created_at)
    assert not message.deduplicated
    assert not again.routed
    assert str(again) == f"go #{again.pk}"


@pytest.mark.parametrize("make", [lambda run: run, lambda run: run.pk, lambda run: str(run.pk)])
def test_a_run_is_named_by_itself_its_id_or_the_ids_text(run, make):
    assert send_message(make(run), "go").run_id == run.pk


# https://github.com/smithersai/smithers/issues/1406
def test_a_message_sent_before_the_wait_is_delivered_without_parking(run):
    sent = send_message(run, "go", {"n": 1})
    run_until_idle(run)

    assert run.result == {"data": {"n": 1}}
    assert run.claim_count == 1
    sent.refresh_from_db()
    assert sent.consumed_by == run.steps.get()
    assert sent.consumed_at is not None


def test_a_hundred_sends_right_after_their_starts_reach_their_own_waits():
    started = [lab.wait_once.start() for _ in range(100)]
    for n, run in enumerate(started):
        send_message(run, "go", n)
    run_until_idle()

    for n, run in enumerate(started):
        run.refresh_from_db()
        assert (run.result, run.claim_count) == ({"data": n}, 1)
        assert run.messages.consumed().get().consumed_by.run_id == run.pk


def test_a_message_wakes_a_run_that_is_parked_on_its_name(run):
    run_until_idle(run)
    assert (run.status, run.waiting_names, run.available_at) == ("suspended", ["go"], None)

    send_message(run, "go", "now")
    run_until_idle(run)

    assert run.result == {"data": "now"}


# https://github.com/Azure/azure-functions-durable-extension/issues/401
@pytest.mark.parametrize("make", [lambda: uuid4(), lambda: str(uuid4()), lambda: "no-uuid"])
def test_a_send_to_an_unknown_run_stores_nothing_and_harms_no_transaction(run, make):
    missing = make()
    with transaction.atomic():
        Thing.objects.create(name="before")
        with pytest.raises(RunNotFound) as raised:
            send_message(missing, "go", idempotency_key="k")
        send_message(run, "go", "after")

    assert str(raised.value) == (
        f"There is no workflow run with id {str(missing)!r}. "
        "Check the id, and that the transaction that started it has been committed."
    )
    assert stored(run) == [("go", "after")]
    assert WorkflowMessage.objects.count() == 1
    assert Thing.objects.count() == 1


@pytest.mark.parametrize("how", ["completed", "failed", "canceled"])
def test_a_send_to_a_finished_run_says_how_it_ended_and_stores_nothing(run, how):
    ended(run, how)
    with transaction.atomic():
        with pytest.raises(RunFinished) as raised:
            send_message(run, "go")
        Thing.objects.create(name="after")

    assert raised.value.status == how
    assert str(raised.value) == f"Run {run.pk} has already ended as {how!r}; nothing was stored."
    assert stored(run) == []
    assert Thing.objects.count() == 1


def test_unread_messages_stay_with_a_finished_run_and_go_with_it(run):
    send_message(run, "other", "unread")
    ended(run, "completed")

    assert [message.data for message in run.messages.pending()] == ["unread"]

    run.delete()
    assert WorkflowMessage.objects.count() == 0


# https://github.com/cschleiden/go-workflows/pull/132
def test_a_name_that_no_wait_uses_is_kept_and_wakes_nobody(run):
    run_until_idle(run)
    other = parked(lab.wait_once.start(), "go")

    send_message(run, "stranger")
    assert run_until_idle(run, other) == 0

    assert (run.status, run.available_at, run.claim_count) == ("suspended", None, 1)
    assert (other.status, other.available_at) == ("suspended", None)
    assert run.messages.pending().count() == 1


def test_a_send_wakes_only_the_run_that_it_is_addressed_to(run):
    run_until_idle(run)
    other = lab.wait_once.start()
    run_until_idle(other)

    send_message(run, "go")
    assert run_until_idle(run, other) == 1
    assert (run.status, other.status, other.claim_count) == ("completed", "suspended", 1)


def test_a_message_does_not_retry_a_step_early(run):
    claimed = claim(run)
    backing_off = entry(claimed, status="waiting", wake_at=claimed.time() + 3600)
    assert runs.park(claimed, runs.Parking(backing_off))
    run.refresh_from_db()
    due = run.available_at

    send_message(run, "step")
    assert leases.route() == 1

    run.refresh_from_db()
    assert run.available_at == due


# https://github.com/langgenius/dify/issues/42103
def test_names_are_queues_of_their_own():
    run = lab.wait_for_all.start(names=["legal", "finance", "legal"])
    run_until_idle(run)
    send_message(run, "finance", "F1")
    assert run_until_idle(run) == 0

    send_message(run, "legal", "L1")
    send_message(run, "legal", "L2")
    run_until_idle(run)

    assert run.result == ["L1", "F1", "L2"]


def test_messages_of_a_name_are_delivered_in_the_order_of_their_sends(run):
    claimed = claim(run)
    for n in range(50):
        send_message(run, "go" if n % 2 else "other", n)

    got = [take(claimed, "go", seq=seq).taken.data for seq in range(25)]

    assert got == [str(n) for n in range(1, 50, 2)]
    assert take(claimed, "go", seq=25).taken is None
    assert run.messages.pending().count() == 25


def test_a_wait_for_several_names_takes_the_oldest_of_any(run):
    claimed = claim(run)
    for name in ("c", "b", "a", "b"):
        send_message(run, name, name)

    got = [take(claimed, "a", "b", seq=seq).taken.name for seq in range(3)]

    assert got == ["b", "a", "b"]
    assert [message.name for message in run.messages.pending()] == ["c"]


def test_a_name_is_matched_exactly(run):
    claimed = claim(run)
    for name in ("Go", "go ", "goo", "g", "gö"):
        send_message(run, name)

    assert take(claimed, "go").taken is None
    assert take(claimed, "go", "GO").taken is None
    assert park(claimed, "go", "GO")


def test_a_message_is_taken_once_and_its_step_says_which(run):
    claimed = claim(run)
    sent = send_message(run, "go", {"n": 1}, idempotency_key="k")

    taken = take(claimed, "go").taken

    step = run.steps.get()
    assert (taken.id, taken.name, taken.data, taken.key) == (sent.pk, "go", '{"n":1}', "k")
    assert (step.status, step.result, step.kind) == ("completed", {"n": 1}, "message")
    assert list(step.consumed.all()) == [sent]
    assert abs(taken.sent_at - sent.created_at.timestamp()) < 0.001
    assert take(claimed, "go", seq=1).taken is None


def test_without_a_message_the_alternative_is_recorded_instead(run):
    claimed = claim(run)
    timed_out = entry(claimed, "go", kind="message", details='{"timed_out":true}')

    assert take(claimed, "go", if_none=timed_out).taken is None

    assert run.steps.get().details == '{"timed_out":true}'


def test_a_stored_message_beats_a_timeout_that_is_not_recorded_yet(run):
    claimed = claim(run)
    send_message(run, "go", "in time")
    timed_out = entry(claimed, "go", kind="message", details='{"timed_out":true}')

    assert take(claimed, "go", if_none=timed_out).taken.data == '"in time"'
    assert run.steps.get().result == "in time"


# https://github.com/veryfront/veryfront-code/pull/4159
def test_a_replay_after_a_crash_takes_the_same_message(run):
    send_message(run, "go", "m1")
    send_message(run, "go", "m2")
    zombie, claimed = claim_and_lose(run)

    with pytest.raises(LeaseLost):
        take(zombie, "go")
    assert take(claimed, "go").taken.data == '"m1"'

    assert leases.reload_history(run.pk)[0].result == '"m1"'
    assert [message.data for message in run.messages.pending()] == ["m2"]


def test_a_claim_that_dies_before_its_commit_leaves_the_message_to_the_next(run):
    sent = send_message(run, "go", "m1")
    claimed = claim(run)

    with rolled_back():
        assert take(claimed, "go").taken.id == sent.pk

    assert run.steps.count() == 0
    assert take(claimed, "go").taken.id == sent.pk


def test_a_canceled_run_takes_no_message(run):
    claimed = claim(run)
    send_message(run, "go")
    cancel(run)

    assert take(claimed, "go") == messages.Claimed("canceled", None)
    assert take(claimed, "go", if_none=entry(claimed)) == messages.Claimed("canceled", None)

    assert run.steps.count() == 0
    assert run.messages.pending().count() == 1


# https://github.com/dbos-inc/dbos-transact-py/issues/759
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"name": ""}, "A message's name must not be empty."),
        (
            {"name": "go", "idempotency_key": ""},
            "An idempotency key must not be empty.",
        ),
        (
            {"name": "n" * 201},
            "A message's name must have at most 200 characters; this has 201.",
        ),
        (
            {"name": "go", "idempotency_key": "k" * 256},
            "An idempotency key must have at most 255 characters; this has 256.",
        ),
    ],
)
def test_a_bad_name_or_key_is_refused_and_nothing_is_stored(run, arguments, told):
    with pytest.raises(ValueError, match=told):
        send_message(run, **arguments)
    assert stored(run) == []


def test_the_longest_name_and_key_are_stored(run):
    send_message(run, "n" * 200, idempotency_key="k" * 255)
    assert send_message(run, "n" * 200, idempotency_key="k" * 255).deduplicated


def test_data_that_cannot_be_stored_is_refused_before_anything_is_written(
    run, django_assert_num_queries
):
    with django_assert_num_queries(0), pytest.raises(PayloadError):
        send_message(run, "go", object())


def test_a_send_goes_with_the_callers_transaction(run):
    with rolled_back():
        Thing.objects.create(name="gone")
        send_message(run, "go", "gone", idempotency_key="k")
    assert (stored(run), Thing.objects.count()) == ([], 0)

    with transaction.atomic():
        assert not send_message(run, "go", "kept", idempotency_key="k").deduplicated
    assert stored(run) == [("go", "kept")]


def test_a_send_in_a_rolled_back_savepoint_leaves_the_rest(run):
    with transaction.atomic():
        send_message(run, "go", 1)
        with rolled_back():
            send_message(run, "go", 2)
        send_message(run, "go", 3)
    assert stored(run) == [("go", 1), ("go", 3)]


# https://github.com/RealOrangeOne/django-tasks/issues/189
def test_a_start_and_a_send_to_it_share_one_transaction():
    with rolled_back():
        run = lab.wait_once.start()
        assert send_message(run, "go", "early").pk is not None
    assert not WorkflowRun.objects.filter(pk=run.pk).exists()
    assert WorkflowMessage.objects.count() == 0

    with transaction.atomic():
        run = lab.wait_once.start()
        send_message(run, "go", "early")
    run_until_idle(run)
    assert run.result == {"data": "early"}


def test_the_async_twin_sends_the_same(run):
    message = async_to_sync(asend_message)(run, "go", {"n": 1}, idempotency_key="k")

    assert (message.run_id, stored(run)) == (run.pk, [("go", {"n": 1})])


def test_a_run_sends_itself_a_message_that_its_next_wait_takes():
    @workflow(name="t.to_itself")
    def to_itself(ctx):
        ctx.send_message(ctx.run_id, "note", "hello")
        return ctx.wait_for_message("note").data

    run = to_itself.start()
    run_until_idle(run)
    assert run.result == "hello"
