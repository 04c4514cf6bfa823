"""Children that end beside their parent's park, its cancel, and a worker's death."""

import pytest
from django.db import connection, transaction

from django_workflows import RunFinished, cancel, resume, send_message
from django_workflows.models import WorkflowRun
from django_workflows.runtime import inline
from django_workflows.store import leases, runs
from django_workflows.telemetry import subscribed
from django_workflows.testing import run_until_idle
from tests.claiming import claim, rolled_back
from tests.lab import workflows as lab
from tests.waiting import Background, eventually, in_threads

pytestmark = pytest.mark.django_db(transaction=True)

row_locks = pytest.mark.postgresql("on SQLite a second writer waits for the whole transaction")


def family(**options):
    """A parent that is parked on its child, which is parked on a message."""
    parent = lab.parent_of_one.start(**options)
    run_until_idle(parent)
    child = parent.children.get()
    run_until_idle(child)
    assert {parent.status, child.status} == {"suspended"}
    return parent, child


# https://github.com/windmill-labs/windmill/pull/11119
@pytest.mark.parametrize("event", ["run.parking", "park.looked"])
def test_a_child_that_ends_beside_its_parents_park_does_not_leave_it_parked(event):
    parent = lab.parent_of_one.start()
    ends = []

    def end(event, fields):
        if not ends and fields["run"] == parent.pk:
            ends.append(Background(lambda: cancel(parent.children.get())))
            if connection.vendor == "postgresql":
                # The child needn't wait for its parent; the router must.
                ends[0].result(10)
                assert Background(lambda: leases.route("child")).result(10) == 0 or (
                    event == "run.parking"
                )

    with subscribed(event, end):
        resume(parent)
    ends[0].result()
    run_until_idle(parent)

    assert (parent.status, parent.result) == ("completed", "canceled")


@row_locks
def test_a_childs_end_in_flight_while_its_parent_parks_wakes_it_with_its_commit():
    parent = lab.parent_of_one.start()
    assert resume(parent).status == "suspended"
    child = parent.children.get()
    with transaction.atomic():
        cancel(child)
        assert Background(lambda: leases.route("child")).result(10) == 0
    assert leases.route("child") == 1

    run_until_idle(parent)
    assert parent.result == "canceled"


@row_locks
def test_a_childs_end_that_is_rolled_back_wakes_nobody():
    parent, child = family()
    with rolled_back():
        cancel(child)

    assert leases.route("child") == 0
    assert run_until_idle(parent) == 0
    assert parent.status == "suspended"


def swallow(ended, act):
    try:
        return act()
    except RunFinished as finished:
        ended.append(finished.status)
        return None


@pytest.mark.parametrize("policy", ["cancel", "abandon"])
def test_a_cancel_of_the_parent_beside_its_childs_end_never_deadlocks_or_leaves_one_open(policy):
    for _ in range(15):
        parent, child = family(policy=policy)
        send_message(child, "go", 1)
        refused = []
        in_threads(
            lambda parent=parent, refused=refused: swallow(refused, lambda: cancel(parent)),
            lambda child=child: resume(child),
            lambda: leases.route("child"),
            lambda parent=parent: resume(parent),
        )
        run_until_idle()
        parent.refresh_from_db()
        child.refresh_from_db()
        assert parent.status == ("completed" if refused else "canceled")
        assert refused in ([], ["completed"])
        assert child.status in ({"completed"} if policy == "abandon" else {"completed", "canceled"})
        if parent.status == "completed":
            assert (child.status, parent.result) == ("completed", {"data": 1})
    assert not WorkflowRun.objects.open().exists()


def test_cancels_of_parent_and_child_at_once_never_deadlock():
    for _ in range(15):
        parent, child = family()
        refused = []
        in_threads(
            lambda parent=parent, refused=refused: swallow(refused, lambda: cancel(parent)),
            lambda child=child: cancel(child),
            lambda: leases.route("child"),
            lambda: leases.fail_overdue(),
        )
        run_until_idle()
        child.refresh_from_db()
        parent.refresh_from_db()
        assert (child.status, refused) == ("canceled", [])
        assert parent.status == "canceled"


@row_locks
def test_a_cancel_waits_for_its_childs_end_in_flight_and_keeps_it():
    parent, child = family()
    send_message(child, "go", 1)
    leases.route()
    claimed = claim(child)
    with transaction.atomic():
        runs.finish(claimed, status="completed", result="1", error=None)
        canceling = Background(lambda: cancel(parent)).wait_until_blocked()

    assert canceling.result().status == "canceled"
    child.refresh_from_db()
    assert child.status == "completed"


@row_locks
def test_a_cancel_waits_for_a_childs_start_in_flight_and_closes_it():
    """Found by no look, had the cancel not waited for its parent's row."""
    parent = lab.parent_of_one.start()
    cancels = []

    def cancel_parent(event, fields):
        if fields["run"] != parent.pk and not cancels:
            cancels.append(Background(lambda: cancel(parent)).wait_until_blocked())

    with subscribed("run.started", cancel_parent):
        resume(parent)
    cancels[0].result()

    assert WorkflowRun.objects.get(pk=parent.pk).status == "canceled"
    assert parent.children.get().status == "canceled"


def test_a_child_is_not_started_for_a_parent_that_was_canceled_just_before():
    """Within the moment for which a claim counts as confirmed."""
    parent = lab.parent_of_one.start()
    claimed = claim(parent)
    cancel(parent)

    inline.execute(claimed)

    assert not parent.children.exists()
    assert not parent.steps.exists()


# https://github.com/windmill-labs/windmill/pull/11119
@pytest.mark.parametrize("event", ["run.started:1", "run.parking:1", "run.parked:1"])
def test_a_worker_killed_around_the_childs_start_leaves_one_child(start_worker, event):
    parent = lab.parent_of_one.start()
    killed = start_worker("--lease", "1", LAB_KILL=event, wait=False)
    assert killed.process.wait(30) == -9
    start_worker("--lease", "1")
    child = eventually(lambda: parent.children.first())
    send_message(child, "go", 7)

    assert parent.wait(30).result == {"data": 7}
    assert parent.children.count() == 1


@pytest.mark.parametrize("event", ["run.ended:1", "message.consumed:1"])
def test_a_worker_killed_around_the_childs_end_leaves_no_parent_parked(start_worker, event):
    parent, child = family()
    send_message(child, "go", 7)
    killed = start_worker("--lease", "1", LAB_KILL=event, wait=False)
    assert killed.process.wait(30) == -9
    start_worker("--lease", "1")

    assert parent.wait(30).result == {"data": 7}
    assert child.wait(5).status == "completed"
