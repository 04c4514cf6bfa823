"""Workflow ids: idempotent starts, conflicts, reuse."""

import pytest
from django.db import IntegrityError, transaction

from django_workflows import (
    WorkflowAlreadyStarted,
    cancel,
    get_run,
    send_message,
    signal_with_start,
    start,
    workflow,
)
from django_workflows.models import WorkflowRun
from django_workflows.testing import run_until_idle
from tests.lab.models import Thing

pytestmark = pytest.mark.django_db


@pytest.fixture
def flow():
    @workflow(name="t.w")
    def flow(ctx, a=0):
        data = ctx.wait_for_message("end").data
        if data == "fail":
            raise ValueError("failed")
        return data

    return flow


@pytest.fixture
def other():
    @workflow(name="t.v")
    def other(ctx): ...

    return other


def end(run, how="completed"):
    if how == "canceled":
        cancel(run)
        run.refresh_from_db()
    else:
        send_message(run, "end", "fail" if how == "failed" else "done")
        run_until_idle(run)
    assert run.status == how
    return run


# https://github.com/dbos-inc/dbos-transact-ts/issues/725
# https://github.com/vercel/workflow/pull/2983
def test_a_second_start_returns_the_open_run_with_its_own_input_and_spoils_no_transaction(flow):
    first = flow.using(workflow_id="x").start(a=1)
    with transaction.atomic():
        second = flow.using(workflow_id="x").start(a=2)
        Thing.objects.create(name="kept")

    assert (first.deduplicated, second.deduplicated) == (False, True)
    assert (second.pk, second.input) == (first.pk, {"a": 1})
    assert WorkflowRun.objects.get().input == {"a": 1}
    assert Thing.objects.count() == 1
    assert not get_run(first).deduplicated


# https://github.com/vercel/workflow/pull/2983
def test_an_id_of_another_workflow_is_refused_naming_both_and_harms_nothing(flow, other):
    run = flow.using(workflow_id="x").start(a=1)
    with transaction.atomic():
        for options in ({}, {"id_reuse": "allow"}, {"id_conflict": "raise"}):
            with pytest.raises(WorkflowAlreadyStarted) as caught:
                other.using(workflow_id="x", **options).start()
        Thing.objects.create(name="kept")

    assert caught.value.run == run
    assert str(caught.value) == (
        f"Workflow id 'x' belongs to run {run.pk} of workflow 't.w', so 't.v' can't be started "
        "with it. Give each workflow ids of its own, for instance with a prefix."
    )
    assert WorkflowRun.objects.get().status == "pending"
    assert Thing.objects.count() == 1
    assert end(run).result == "done"


@pytest.mark.parametrize("how", ["completed", "failed", "canceled"])
@pytest.mark.parametrize("options", [{}, {"id_reuse": "allow"}])
def test_an_ended_runs_id_still_belongs_to_its_workflow(flow, other, how, options):
    run = end(flow.using(workflow_id="x").start(), how)
    with pytest.raises(WorkflowAlreadyStarted) as caught:
        other.using(workflow_id="x", **options).start()

    assert caught.value.run == run
    assert WorkflowRun.objects.count() == 1


# https://github.com/dapr/docs/pull/5306
# https://github.com/temporalio/sdk-typescript/issues/661
@pytest.mark.parametrize("how", ["completed", "failed", "canceled"])
def test_an_ended_run_is_returned_and_nothing_is_started(flow, how):
    first = flow.using(workflow_id="ticket-1").start(a=1)
    unread = send_message(first, "unread")
    end(first, how)
    again = flow.using(workflow_id="ticket-1").start(a=2)

    assert (again.pk, again.deduplicated, again.status) == (first.pk, True, how)
    assert (again.input, again.result) == ({"a": 1}, first.result)
    assert WorkflowRun.objects.count() == 1
    assert list(again.messages.pending()) == [unread]


@pytest.mark.parametrize(
    ("id_reuse", "how", "is_new"),
    [
        ("allow", "completed", True),
        ("allow", "failed", True),
        ("allow", "canceled", True),
        ("allow_failed", "completed", False),
        ("allow_failed", "failed", True),
        ("allow_failed", "canceled", True),
    ],
)
def test_id_reuse_tells_after_which_end_a_new_run_starts(flow, id_reuse, how, is_new):
    first = flow.using(workflow_id="x").start(a=1)
    unread = send_message(first, "unread")
    end(first, how)
    steps = list(first.steps.all())
    again = flow.using(workflow_id="x", id_reuse=id_reuse).start(a=2)

    assert (again.pk != first.pk, again.deduplicated) == (is_new, not is_new)
    if is_new:
        assert (again.workflow_id, again.input, again.status) == ("x", {"a": 2}, "pending")
        assert not again.messages.exists()
        assert get_run(workflow_id="x") == again
    first.refresh_from_db()
    assert (first.status, list(first.steps.all())) == (how, steps)
    assert list(first.messages.pending()) == [unread]


@pytest.mark.parametrize("id_reuse", ["allow", "allow_failed", "raise"])
def test_id_reuse_says_nothing_about_an_open_run(flow, id_reuse):
    first = flow.using(workflow_id="x").start(a=1)
    again = flow.using(workflow_id="x", id_reuse=id_reuse).start(a=2)

    assert (again.pk, again.deduplicated, again.input) == (first.pk, True, {"a": 1})


def test_id_conflict_raise_refuses_an_open_run_and_returns_an_ended_one(flow):
    once = flow.using(workflow_id="x", id_conflict="raise")
    run = once.start()
    with pytest.raises(WorkflowAlreadyStarted) as caught:
        once.start()
    assert caught.value.run == run
    assert str(caught.value) == (
        f"Workflow id 'x' of 't.w' was started already: run {run.pk} is 'pending'."
    )
    end(run)

    assert once.start().pk == run.pk


@pytest.mark.parametrize("how", ["completed", "failed", "canceled"])
def test_id_reuse_raise_refuses_an_ended_run(flow, how):
    run = end(flow.using(workflow_id="x").start(), how)
    with pytest.raises(WorkflowAlreadyStarted) as caught:
        start("t.w", workflow_id="x", id_reuse="raise")

    assert str(caught.value) == (
        f"Workflow id 'x' of 't.w' was started already: run {run.pk} is {how!r}."
    )
    assert WorkflowRun.objects.count() == 1


def test_the_newest_of_several_ended_runs_decides(flow):
    reused = flow.using(workflow_id="x", id_reuse="allow")
    end(reused.start(), "failed")
    newest = end(reused.start(), "completed")

    assert flow.using(workflow_id="x", id_reuse="allow_failed").start().pk == newest.pk


def test_a_refused_start_spoils_no_callers_transaction(flow):
    flow.using(workflow_id="x").start()
    with transaction.atomic():
        with pytest.raises(WorkflowAlreadyStarted):
            flow.using(workflow_id="x", id_conflict="raise").start()
        second = flow.using(workflow_id="y").start()

    assert WorkflowRun.objects.filter(pk=second.pk).exists()


def test_a_start_that_is_rolled_back_leaves_its_id_free(flow):
    with transaction.atomic():
        flow.using(workflow_id="x").start(a=1)
        transaction.set_rollback(True)

    again = flow.using(workflow_id="x").start(a=2)
    assert (again.deduplicated, again.input) == (False, {"a": 2})


# https://github.com/dapr/docs/pull/5306
def test_the_database_lets_one_open_run_of_a_workflow_id_in(flow):
    run = flow.using(workflow_id="x").start()
    with pytest.raises(IntegrityError), transaction.atomic():
        WorkflowRun.objects.create(
            workflow_id="x", workflow_name="t.w", input={}, state={}, created_at=run.created_at
        )
    end(run)
    WorkflowRun.objects.create(
        workflow_id="x", workflow_name="t.w", input={}, state={}, created_at=run.created_at
    )


# https://github.com/dapr/docs/pull/5306
# https://github.com/temporalio/sdk-typescript/issues/661
@pytest.mark.parametrize("key", [None, "new"])
def test_signal_with_start_after_the_end_makes_a_new_run_and_leaves_the_old_one(flow, key):
    first = flow.using(workflow_id="ticket-1").start(a=1)
    unread = send_message(first, "unread", idempotency_key="old")
    end(first)
    steps = list(first.steps.all())
    second = signal_with_start(
        flow, workflow_id="ticket-1", name="hello", data=1, input={"a": 2}, idempotency_key=key
    )

    assert second.started
    assert (second.run.workflow_id, second.run.input) == ("ticket-1", {"a": 2})
    assert second.run.pk != first.pk
    assert list(second.run.messages.all()) == [second.message]
    first.refresh_from_db()
    assert (first.status, first.result, list(first.steps.all())) == ("completed", "done", steps)
    assert list(first.messages.pending()) == [unread]


def test_ids_are_told_apart_by_case_and_spaces(flow):
    ids = ["x", "X", "x ", "é", "e\u0301"]

    assert [flow.using(workflow_id=each).start().deduplicated for each in ids] == [False] * 5
    assert [get_run(workflow_id=each).workflow_id for each in ids] == ids
