"""Runs: started once per workflow id, parked, given back, and ended once and for all."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction

from django_workflows import (
    LeaseLost,
    RunNotFound,
    WorkflowAlreadyStarted,
    cancel,
    get_run,
    send_message,
    start,
)
from django_workflows.models import WorkflowRun
from django_workflows.store import leases, runs
from django_workflows.testing import advance, run_until_idle
from tests.claiming import claim, claim_and_lose, park, rolled_back
from tests.lab import workflows as lab
from tests.lab.models import Thing

pytestmark = pytest.mark.django_db


def finish(run, status="completed", **given):
    runs.finish(claim(run), status=status, **{"result": "null", "error": None, **given})
    run.refresh_from_db()
    return run


def as_stored(run):
    return WorkflowRun.objects.filter(pk=run.pk).values().get()


def test_a_start_records_a_pending_run_and_executes_nothing():
    run = lab.wait_once.start(name="go", timeout=5)

    again = WorkflowRun.objects.get()
    assert again == run
    assert run.pk.version == 7
    assert (again.workflow_name, again.version) == ("tests.lab.wait_once", "1")
    assert (again.workflow_id, again.status) == (str(run.pk), "pending")
    assert (again.queue_name, again.priority) == ("default", 0)
    assert again.input == {"name": "go", "timeout": 5}
    assert (again.attempts, again.claim_count, again.started_at) == (0, 0, None)
    assert (run.available_at, run.created_at) == (again.available_at, again.created_at)
    assert not run.deduplicated
    assert not run.is_finished
    assert run.steps.count() == 0


def test_ids_of_runs_increase():
    ids = [lab.nap.start(seconds=1).pk for _ in range(20)]
    assert ids == sorted(ids)


def test_input_that_does_not_fit_is_refused_at_the_caller():
    with pytest.raises(TypeError, match=r"Input of workflow 'tests\.lab\.nap'"):
        lab.nap.start(hours=1)
    assert WorkflowRun.objects.count() == 0


def test_a_run_for_later_is_not_due_before():
    run = lab.steps.using(run_after=timedelta(hours=1)).start()

    assert leases.claim_one(run.pk, None) is None
    advance(timedelta(hours=1))
    assert leases.claim_one(run.pk, None) is not None


# https://github.com/dbos-inc/dbos-transact-ts/issues/725
def test_a_second_start_of_an_id_returns_the_open_run_and_its_own_input():
    first = lab.nap.using(workflow_id="x").start(seconds=1)
    with transaction.atomic():
        again = lab.nap.using(workflow_id="x").start(seconds=2)
        Thing.objects.create(name="after")

    assert (again, again.deduplicated, again.input) == (first, True, {"seconds": 1})
    assert WorkflowRun.objects.count() == 1
    assert Thing.objects.count() == 1


@pytest.mark.parametrize("how", ["completed", "failed", "canceled"])
def test_a_start_of_an_ended_id_returns_the_ended_run(how):
    first = lab.nap.using(workflow_id="ticket-1").start(seconds=1)
    send_message(first, "unread")
    cancel(first) if how == "canceled" else finish(first, how)

    again = lab.nap.using(workflow_id="ticket-1").start(seconds=2)

    assert (again, again.deduplicated, again.status) == (first, True, how)
    assert WorkflowRun.objects.count() == 1
    assert again.messages.pending().count() == 1


def test_an_id_conflict_can_be_an_error_with_the_run():
    first = lab.nap.using(workflow_id="x").start(seconds=1)
    with pytest.raises(WorkflowAlreadyStarted) as raised:
        lab.nap.using(workflow_id="x", id_conflict="raise").start(seconds=2)

    assert raised.value.run == first
    assert str(raised.value) == (
        f"Workflow id 'x' of 'tests.lab.nap' was started already: run {first.pk} is 'pending'."
    )


def test_id_reuse_can_be_an_error_where_a_conflict_is_none():
    once = lab.nap.using(workflow_id="x", id_reuse="raise")
    first = once.start(seconds=1)
    assert once.start(seconds=1) == first
    finish(first)

    with pytest.raises(WorkflowAlreadyStarted) as raised:
        once.start(seconds=1)
    assert raised.value.run == first


@pytest.mark.parametrize(
    ("reuse", "how", "is_new"),
    [
        ("allow", "completed", True),
        ("allow", "failed", True),
        ("allow", "canceled", True),
        ("allow_failed", "completed", False),
        ("allow_failed", "failed", True),
        ("allow_failed", "canceled", True),
    ],
)
def test_id_reuse_starts_a_run_with_an_empty_record_after_such_an_end(reuse, how, is_new):
    first = lab.nap.using(workflow_id="x").start(seconds=1)
    send_message(first, "unread")
    cancel(first) if how == "canceled" else finish(first, how)
    before = as_stored(first)

    second = lab.nap.using(workflow_id="x", id_reuse=reuse).start(seconds=2)

    assert second.deduplicated is not is_new
    assert (second != first) is is_new
    assert as_stored(first) == before
    assert first.messages.pending().count() == 1
    if is_new:
        assert (second.workflow_id, second.messages.count()) == ("x", 0)
        assert get_run(workflow_id="x") == second


def test_with_reuse_allowed_an_open_run_is_still_the_only_one():
    again = lab.nap.using(workflow_id="x", id_reuse="allow")
    assert again.start(seconds=1) == again.start(seconds=2)


def test_the_database_admits_one_open_run_per_id():
    lab.nap.using(workflow_id="x").start(seconds=1)
    with pytest.raises(IntegrityError):
        WorkflowRun.objects.create(workflow_id="x", created_at="2026-01-01T00:00Z", input={})


# https://github.com/vercel/workflow/pull/2983
@pytest.mark.parametrize("is_open", [True, False])
def test_the_id_of_another_workflows_run_is_refused_naming_both(is_open):
    first = lab.nap.using(workflow_id="x").start(seconds=1)
    if not is_open:
        finish(first)
    before = as_stored(first)

    with transaction.atomic():
        with pytest.raises(WorkflowAlreadyStarted) as raised:
            lab.steps.using(workflow_id="x", id_reuse="allow").start()
        Thing.objects.create(name="after")

    assert str(raised.value) == (
        f"Workflow id 'x' belongs to run {first.pk} of workflow 'tests.lab.nap', so "
        "'tests.lab.steps' can't be started with it. Give each workflow ids of its own, for "
        "instance with a prefix."
    )
    assert as_stored(first) == before
    assert WorkflowRun.objects.count() == 1
    assert Thing.objects.count() == 1


# https://github.com/dbos-inc/dbos-transact-py/issues/759
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"workflow_id": ""}, "A workflow id must not be empty."),
        ({"workflow_id": "w" * 256}, "A workflow id must have at most 255 characters"),
        ({"queue_name": ""}, "A queue's name must not be empty."),
        ({"id_conflict": "ignore"}, "id_conflict must be one of return, raise; got 'ignore'."),
        ({"id_reuse": "never"}, "id_reuse must be one of"),
        ({"priority": 2**31}, "priority must fit 32 bits, got 2147483648."),
    ],
)
def test_a_bad_option_is_refused_and_nothing_is_stored(options, told):
    with pytest.raises(ValueError, match=told):
        start(lab.steps, **options)
    assert WorkflowRun.objects.count() == 0


def test_a_start_goes_with_the_callers_transaction():
    with rolled_back():
        lab.nap.using(workflow_id="x").start(seconds=1)
    assert WorkflowRun.objects.count() == 0

    assert not lab.nap.using(workflow_id="x").start(seconds=1).deduplicated


def test_a_run_is_found_by_its_id_and_by_workflow_id():
    run = lab.nap.using(workflow_id="x").start(seconds=1)
    assert get_run(run.pk) == get_run(str(run.pk)) == get_run(workflow_id="x") == run

    with pytest.raises(RunNotFound, match="There is no workflow run with workflow id 'y'"):
        get_run(workflow_id="y")
    with pytest.raises(RunNotFound):
        get_run(uuid4())
    with pytest.raises(TypeError):
        get_run(run.pk, workflow_id="x")


def test_by_workflow_id_the_open_run_comes_before_the_newest():
    again = lab.nap.using(workflow_id="x", id_reuse="allow")
    first = finish(again.start(seconds=1))
    second = again.start(seconds=2)
    assert get_run(workflow_id="x") == second

    WorkflowRun.objects.filter(pk=second.pk).update(status="completed")
    WorkflowRun.objects.filter(pk=first.pk).update(status="suspended")
    assert get_run(workflow_id="x") == first


def test_a_parked_run_holds_no_claim_and_says_what_it_waits_for():
    claimed = claim(lab.wait_once.start())
    due = claimed.time() + 60
    assert park(claimed, "go", "stop", wake_at=due)

    run = WorkflowRun.objects.get()
    assert (run.status, run.claim_token, run.claimed_by) == ("suspended", None, None)
    assert (run.waiting_kind, run.waiting_names) == ("message", ["go", "stop"])
    assert abs(run.available_at.timestamp() - due) < 0.001
    assert run.steps.get().status == "waiting"


def test_a_park_that_finds_a_message_under_the_lock_writes_nothing():
    run = lab.wait_once.start()
    claimed = claim(run)
    send_message(run, "go")

    assert not park(claimed, "go")

    run.refresh_from_db()
    assert (run.status, run.claim_token, run.steps.count()) == ("running", claimed.token, 0)


def test_a_finished_run_is_never_due_again():
    run = finish(lab.steps.start(), result='{"ok":true}')

    assert (run.status, run.result, run.available_at) == ("completed", {"ok": True}, None)
    assert (run.claim_token, run.claimed_by) == (None, None)
    assert run.is_finished
    assert run.created_at <= run.started_at <= run.finished_at
    advance(timedelta(days=1000))
    assert run_until_idle(run) == 0


def test_a_claim_that_was_given_back_is_due_after_its_delay():
    run = lab.steps.start()
    assert runs.give_back(claim(run), delay=60, problem="the code has changed")

    run.refresh_from_db()
    assert (run.status, run.problem, run.problem_count) == ("pending", "the code has changed", 1)
    assert leases.claim_one(run.pk, None) is None
    advance(timedelta(seconds=61))
    assert runs.give_back(claim(run))
    run.refresh_from_db()
    assert (run.problem, run.problem_count) == ("", 0)


def test_a_zombies_claim_neither_parks_finishes_nor_gives_back():
    run = lab.wait_once.start()
    zombie, claimed = claim_and_lose(run)
    before = as_stored(run)

    with pytest.raises(LeaseLost) as raised:
        park(zombie, "go")
    with pytest.raises(LeaseLost):
        runs.finish(zombie, status="completed", result="null", error=None)
    with pytest.raises(LeaseLost):
        runs.retry_body(zombie, delay=0, forget_from=0)
    with pytest.raises(LeaseLost):
        runs.write_state(zombie, "{}")
    assert not runs.give_back(zombie)
    assert runs.standing(zombie) is None

    assert str(raised.value) == (
        f"The lease on run {run.pk} was lost; nothing more is written for it here."
    )
    assert as_stored(run) == before
    assert (run.steps.count(), runs.standing(claimed)) == (0, "running")
