"""`ctx.run_child`, `ctx.start_child`, `handle.result()`."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from django_workflows import (
    ChildFailed,
    RetryPolicy,
    StepFailed,
    cancel,
    send_message,
    workflow,
)
from django_workflows.models import WorkflowRun
from django_workflows.store import leases
from django_workflows.telemetry import subscribed
from django_workflows.testing import advance, run_until_idle
from tests.claiming import claim
from tests.lab import workflows as lab
from tests.runtime.crashes import WorkerDied, execute_until_death

pytestmark = pytest.mark.django_db


@pytest.fixture
def child():
    @workflow(name="t.child")
    def child(ctx, go="go"):
        message = ctx.wait_for_message(go)
        if message.data == "fail":
            raise LookupError("no such order")
        return message.data

    return child


def parent_of(child, **options):
    """A run that awaits a child, and is replayed once more before it ends."""

    @workflow(name="t.parent")
    def parent(ctx):
        try:
            got = ctx.run_child(child, {"go": "go"}, **options)
        except ChildFailed as failed:
            got = [str(failed.run_id), failed.status, dict(failed.error)]
        ctx.sleep(1)
        return got

    run = parent.start()
    run_until_idle()
    run.refresh_from_db()
    return run


def finish(run):
    run_until_idle()
    advance(timedelta(seconds=2))
    run_until_idle(run)
    return run


def test_a_parent_is_parked_until_its_child_has_ended_and_gets_its_result(child):
    run = parent_of(child)
    (started,) = run.children.all()
    assert (run.status, run.available_at, run.waiting_names) == (
        "suspended",
        None,
        [str(started.pk)],
    )
    assert (started.parent, started.input, started.status) == (run, {"go": "go"}, "suspended")

    send_message(started, "go", (1, UUID(int=7)))

    assert finish(run).result == (1, UUID(int=7))
    assert [(step.kind, step.name, step.status) for step in run.steps.all()] == [
        ("child", "t.child", "completed"),
        ("child_result", "t.child", "completed"),
        ("sleep", "sleep", "completed"),
    ]


def test_a_child_is_named_by_its_workflow_or_by_name_and_takes_no_input_by_default(child):
    @workflow(name="t.by_name")
    def by_name(ctx):
        return [ctx.run_child("t.child"), ctx.run_child(child)]

    run = by_name.start()
    for data in ("first", "second"):
        run_until_idle()
        send_message(run.children.open().get(), "go", data)
    assert finish(run).result == ["first", "second"]


def test_a_childs_id_is_derived_from_the_run_and_the_step_unless_given(child):
    @workflow(name="t.ids")
    def ids(ctx):
        ctx.step("first", lambda: None)
        handles = [ctx.start_child(child), ctx.start_child(child, workflow_id="mine")]
        return [handle.run_id for handle in handles]

    run = ids.start()
    run_until_idle(run)

    assert list(run.children.order_by("id").values_list("workflow_id", flat=True)) == [
        f"{run.pk}/1",
        "mine",
    ]
    assert run.result == list(run.children.order_by("id").values_list("pk", flat=True))


def test_a_child_has_its_own_workflows_queue_and_version_and_its_parents_priority():
    @workflow(name="t.slow", version=3, queue_name="slow")
    def slow(ctx): ...

    @workflow(name="t.parent")
    def parent(ctx):
        ctx.start_child(slow, on_parent_close="abandon")

    run = parent.using(priority=5, queue_name="fast").start()
    run_until_idle(run)

    started = run.children.get()
    assert (started.queue_name, started.version, started.priority) == ("slow", "3", 5)


@pytest.mark.parametrize("how", ["failed", "canceled", "deadline", "poison"])
def test_however_a_child_ends_its_parent_is_woken_and_told(child, how, settings):
    run = parent_of(child, timeout=60)
    started = run.children.get()
    if how == "failed":
        send_message(started, "go", "fail")
    elif how == "canceled":
        cancel(started, reason="enough")
    elif how == "deadline":
        advance(timedelta(seconds=61))
    else:
        settings.DJANGO_WORKFLOWS = {"MAX_CRASHES": 1}
        send_message(started, "go")
        leases.route()
        claim(started, uuid4())
        assert leases.take_over_dead() == 1

    child_id, status, error = finish(run).result
    started.refresh_from_db()
    assert child_id == str(started.pk)
    assert status == started.status == ("canceled" if how == "canceled" else "failed")
    assert error == started.error
    assert (error["type"], error["message"]) == {
        "failed": ("LookupError", "no such order"),
        "canceled": ("Canceled", "enough"),
        "deadline": ("DeadlineExceeded", error["message"]),
        "poison": ("PoisonRun", error["message"]),
    }[how]
    assert [step.status for step in run.steps.all()] == ["completed", "failed", "completed"]


def test_a_childs_failure_that_is_not_caught_fails_its_parent_and_names_the_child(child):
    @workflow(name="t.parent")
    def parent(ctx):
        return ctx.run_child(child)

    run = parent.start()
    run_until_idle()
    started = run.children.get()
    send_message(started, "go", "fail")
    run_until_idle()
    run.refresh_from_db()

    assert (run.status, run.error["type"]) == ("failed", "ChildFailed")
    assert run.error["message"] == (
        f"Child run {started.pk} ended as 'failed': LookupError: no such order"
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_parent_fans_out_and_collects_whatever_order_its_children_end_in(child, order):
    @workflow(name="t.fan")
    def fan(ctx):
        handles = [ctx.start_child(child) for _ in range(3)]
        return [handle.result() for handle in handles]

    run = fan.start()
    run_until_idle()
    started = list(run.children.order_by("id"))
    assert [each.status for each in started] == ["suspended"] * 3
    for n in order:
        send_message(started[n], "go", n)
        run_until_idle()
    run.refresh_from_db()

    assert run.result == [0, 1, 2]


def test_a_result_that_is_asked_for_twice_is_the_same(child):
    @workflow(name="t.twice")
    def twice(ctx):
        handle = ctx.start_child(child)
        return [handle.result(), handle.result()]

    run = twice.start()
    run_until_idle()
    send_message(run.children.get(), "go", 7)
    assert finish(run).result == [7, 7]


def test_an_already_ended_child_does_not_park_its_parent(child):
    @workflow(name="t.late")
    def late(ctx):
        handle = ctx.start_child(child)
        ctx.wait_for_message("now")
        return handle.result()

    run = late.start()
    run_until_idle()
    send_message(run.children.get(), "go", 7)
    run_until_idle()
    run.refresh_from_db()
    assert run.status == "suspended"
    send_message(run, "now")

    assert run_until_idle(run) == 1
    assert run.result == 7


# https://github.com/windmill-labs/windmill/pull/11119
@pytest.mark.parametrize("event", ["run.started", "run.parking"])
def test_a_crash_around_the_childs_start_starts_one(child, event):
    @workflow(name="t.parent")
    def parent(ctx):
        return ctx.run_child(child)

    run = parent.start()

    def die(event, fields):
        raise WorkerDied

    with subscribed(event, die):
        execute_until_death(run)
    assert run.children.count() == (0 if event == "run.started" else 1)
    run_until_idle()
    send_message(run.children.get(), "go", 7)

    assert finish(run).result == 7


def test_a_crash_once_the_childs_result_was_taken_takes_it_from_the_record(child):
    run = parent_of(child)
    send_message(run.children.get(), "go", 7)
    run_until_idle(run.children.get())

    def die(event, fields):
        raise WorkerDied

    with subscribed("run.parking", die):
        execute_until_death(run)
    assert finish(run).result == 7


# https://github.com/windmill-labs/windmill/pull/11119
def test_a_wait_for_a_message_of_a_child_that_is_canceled_ends_by_its_timeout():
    @workflow(name="t.report")
    def report(ctx, to):
        ctx.wait_for_message("go")
        ctx.send_message(to, "report", "done")

    @workflow(name="t.parent")
    def parent(ctx):
        ctx.start_child(report, {"to": ctx.run_id})
        message = ctx.wait_for_message("report", timeout=60)
        return None if message is None else message.data

    silent, told = parent.start(), parent.start()
    run_until_idle()
    cancel(silent.children.get())
    send_message(told.children.get(), "go")
    run_until_idle()
    told.refresh_from_db()
    assert told.result == "done"
    advance(timedelta(seconds=61))
    run_until_idle(silent)

    assert (silent.status, silent.result) == ("completed", None)


def test_a_workflow_id_that_is_taken_fails_the_step_the_same_on_every_replay(child):
    taken = lab.wait_once.using(workflow_id="mine").start()

    @workflow(name="t.parent")
    def parent(ctx):
        try:
            ctx.start_child(child, workflow_id="mine")
        except StepFailed as failed:
            why = failed.type
        ctx.sleep(1)
        return why

    run = parent.start()
    run_until_idle(run)
    cancel(taken)

    assert finish(run).result == "WorkflowAlreadyStarted"
    assert not run.children.exists()


@pytest.mark.parametrize("policy", ["cancel", "abandon"])
@pytest.mark.parametrize("how", ["completed", "failed", "canceled"])
def test_children_close_with_their_parent_as_its_policy_says(child, policy, how):
    @workflow(name="t.parent")
    def parent(ctx):
        ctx.start_child(child, on_parent_close=policy)
        if ctx.wait_for_message("end").data == "fail":
            raise ValueError

    run = parent.start()
    run_until_idle()
    if how == "canceled":
        cancel(run)
    else:
        send_message(run, "end", "fail" if how == "failed" else None)
        run_until_idle(run)
    assert run.children.get().status == ("canceled" if policy == "cancel" else "suspended")


def test_an_abandoned_child_goes_on_when_its_parent_is_deleted(child):
    @workflow(name="t.parent")
    def parent(ctx):
        ctx.start_child(child, on_parent_close="abandon")

    run = parent.start()
    run_until_idle()
    started = run.children.get()
    WorkflowRun.objects.filter(pk=run.pk).delete()
    send_message(started, "go", 7)
    run_until_idle(started)

    assert (started.parent, started.result) == (None, 7)


def test_a_body_that_is_tried_again_keeps_its_child(child):
    tries = []

    @workflow(name="t.parent", retry=RetryPolicy(max_attempts=2, initial_interval=1))
    def parent(ctx):
        handle = ctx.start_child(child)
        tries.append(1)
        if len(tries) == 1:
            raise ValueError
        return handle.result()

    run = parent.start()
    finish(run)
    send_message(run.children.get(), "go", 7)

    assert finish(run).result == 7


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"workflow": "t.none"}, "No workflow named 't.none' is registered"),
        ({"workflow": 7}, "A child must be a workflow or its name, not int."),
        ({"input": {"wrong": 1}}, "got an unexpected keyword argument 'wrong'"),
        ({"input": {"go": object()}}, "input.go: an object instance can't be stored"),
        ({"on_parent_close": "ask"}, "on_parent_close must be one of cancel, abandon; got 'ask'."),
        ({"workflow_id": ""}, "A workflow id must not be empty."),
        ({"timeout": -1}, "A child's timeout must be zero or more, got -1"),
    ],
)
def test_a_child_that_is_asked_for_wrongly_fails_the_run_and_starts_nothing(child, given, error):
    @workflow(name="t.parent")
    def parent(ctx):
        ctx.start_child(**{"workflow": child, **given})

    run = parent.start()
    run_until_idle(run)

    assert run.status == "failed"
    assert error in run.error["message"]
    assert not run.children.exists()
    assert not run.steps.exists()
