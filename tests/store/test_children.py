"""Children: started with their parent's record, closed with it, and never left unheard."""

from datetime import timedelta
from uuid import uuid4

import pytest

from django_workflows import LeaseLost, WorkflowAlreadyStarted, cancel, payloads, workflow
from django_workflows.models import WorkflowRun
from django_workflows.store import children, leases, runs
from django_workflows.store.runs import NewRun
from django_workflows.testing import advance, run_until_idle
from tests.claiming import claim, claim_and_lose, entry
from tests.lab import workflows as lab

pytestmark = pytest.mark.django_db


@pytest.fixture
def parent():
    return lab.nap.start(seconds=1)


def new_child(parent, on_parent_close="cancel", **options):
    return NewRun(
        **{
            "workflow_name": "tests.lab.steps",
            "version": "1",
            "queue_name": "default",
            "input": "{}",
            "workflow_id": f"{parent.pk}/0",
            "parent_id": parent.pk,
            "on_parent_close": on_parent_close,
            **options,
        }
    )


def start(claimed, parent, seq=0, **options):
    started = entry(claimed, f"child:{seq}", seq=seq, kind="child", status="running")
    return children.start(claimed, started, new_child(parent, **options))


def test_a_child_and_its_record_are_one_commit(parent):
    claimed = claim(parent)

    assert start(claimed, parent, priority=3) == "running"

    child = WorkflowRun.objects.get(parent=parent)
    assert (child.status, child.workflow_id, child.priority) == ("pending", f"{parent.pk}/0", 3)
    assert child.on_parent_close == "cancel"
    step = parent.steps.get()
    assert (step.kind, step.status) == ("child", "completed")
    assert payloads.load_json(step.details) == {
        "child": str(child.pk),
        "workflow": "tests.lab.steps",
    }
    assert list(parent.children.all()) == [child]


def test_a_zombie_starts_no_child(parent):
    zombie, _heir = claim_and_lose(parent)
    with pytest.raises(LeaseLost):
        start(zombie, parent)
    assert not parent.children.exists()


def test_a_canceled_parent_starts_no_child(parent):
    """Nobody would close it: the cancel has looked for children already."""
    claimed = claim(parent)
    cancel(parent)

    assert start(claimed, parent) == "canceled"

    assert not parent.children.exists()
    assert not parent.steps.exists()


def test_a_workflow_id_that_an_open_run_has_is_refused_with_nothing_written(parent):
    taken = lab.steps.using(workflow_id="x").start()
    claimed = claim(parent)

    with pytest.raises(WorkflowAlreadyStarted) as caught:
        start(claimed, parent, workflow_id="x")

    assert caught.value.run == taken
    assert not parent.steps.exists()


def test_a_workflow_id_whose_run_has_ended_may_be_used_again(parent):
    cancel(lab.steps.using(workflow_id="x").start())

    assert start(claim(parent), parent, workflow_id="x") == "running"
    assert parent.children.get().workflow_id == "x"


def test_the_outcome_of_a_canceled_parents_child_is_not_taken(parent):
    claimed = claim(parent)
    start(claimed, parent, on_parent_close="abandon")
    child = parent.children.get()
    cancel(child)
    cancel(parent)
    waiting = entry(claimed, "result", seq=1, kind="child_result", status="waiting")

    looked = children.take(claimed, waiting, None, child.pk)

    assert (looked.run_status, looked.taken) == ("canceled", None)
    assert parent.steps.count() == 1


def test_the_outcome_of_an_open_child_is_nothing_yet(parent):
    claimed = claim(parent)
    start(claimed, parent)
    child = parent.children.get()
    waiting = entry(claimed, "result", seq=1, kind="child_result", status="waiting")

    assert not children.has_ended(child.pk)
    assert children.take(claimed, waiting, None, child.pk).taken is None
    assert parent.steps.count() == 1


def test_a_child_that_was_deleted_has_ended_without_a_result(parent):
    claimed = claim(parent)
    waiting = entry(claimed, "result", kind="child_result", status="waiting")

    assert children.has_ended(uuid4())
    children.take(claimed, waiting, None, uuid4())

    step = parent.steps.get()
    assert (step.status, step.error["type"]) == ("failed", "RunNotFound")


def family(parent):
    """Children of every kind: (ends with its parent, abandoned, ended already, unrelated)."""
    claimed = claim(parent)
    start(claimed, parent, seq=0, workflow_id="closing")
    start(claimed, parent, seq=1, workflow_id="abandoned", on_parent_close="abandon")
    start(claimed, parent, seq=2, workflow_id="ended")
    ended = WorkflowRun.objects.get(workflow_id="ended")
    runs.finish(claim(ended), status="completed", result="1", error=None)
    lab.steps.using(workflow_id="unrelated").start()
    return claimed


def how_they_stand():
    found = WorkflowRun.objects.exclude(workflow_name="tests.lab.nap")
    return dict(found.values_list("workflow_id", "status"))


CLOSED = {
    "closing": "canceled",
    "abandoned": "pending",
    "ended": "completed",
    "unrelated": "pending",
}


# https://github.com/temporalio/temporal/pull/2390
def test_a_canceled_parent_closes_its_own_children_by_their_policy(parent):
    family(parent)
    cancel(parent, reason="enough")

    assert how_they_stand() == CLOSED
    closed = WorkflowRun.objects.get(workflow_id="closing")
    assert closed.error["message"] == f"its parent, run {parent.pk}, has ended"


@pytest.mark.parametrize("how", ["completed", "failed"])
def test_a_parent_that_ends_closes_its_children_by_their_policy(parent, how):
    runs.finish(family(parent), status=how, result="1", error=None, has_children=True)
    assert how_they_stand() == CLOSED


def test_a_parent_past_its_deadline_closes_its_children_by_their_policy():
    parent = lab.nap.using(deadline=timedelta(minutes=1)).start(seconds=1)
    claimed = family(parent)
    runs.give_back(claimed, delay=1000)
    advance(timedelta(minutes=2))
    assert leases.fail_overdue() == 1

    assert how_they_stand() == CLOSED


def test_a_poisoned_parent_closes_its_children_by_their_policy(parent, settings):
    settings.DJANGO_WORKFLOWS = {"MAX_CRASHES": 1}
    family(parent)
    WorkflowRun.objects.filter(pk=parent.pk).update(claimed_by=uuid4())
    assert leases.take_over_dead() == 1

    parent.refresh_from_db()
    assert (parent.status, parent.error["type"]) == ("failed", "PoisonRun")
    assert how_they_stand() == CLOSED


def test_grandchildren_close_with_their_parent():
    @workflow(name="t.down")
    def down(ctx, depth):
        if depth:
            ctx.run_child(down, {"depth": depth - 1})
        ctx.wait_for_message("never")

    top = down.start(depth=3)
    run_until_idle()
    assert WorkflowRun.objects.open().count() == 4

    cancel(top)

    assert set(WorkflowRun.objects.values_list("status", flat=True)) == {"canceled"}


def test_an_ended_child_is_told_once_and_a_run_without_a_parent_never(parent):
    claimed = claim(parent)
    start(claimed, parent)
    cancel(parent.children.get())
    cancel(lab.steps.start())

    assert leases.look().unrouted == ("child",)
    assert leases.route("child") == 1
    assert leases.look().unrouted == ()
    assert leases.route("child") == 0


def test_a_child_wakes_only_a_parent_that_waits_for_it(parent):
    @workflow(name="t.family")
    def two(ctx):
        first, second = (ctx.start_child("tests.lab.wait_once") for _ in range(2))
        first.result()
        second.result()

    run = two.start()
    run_until_idle()
    first, second = run.children.order_by("id")
    before = run.steps.count()

    cancel(second)
    assert run_until_idle(run) == 0
    cancel(first)
    assert run_until_idle(run) == 1

    assert (run.status, run.steps.count()) == ("failed", before)
