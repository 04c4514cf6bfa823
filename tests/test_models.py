"""What a run, a step and a message show, and how they are asked for."""

import threading
from datetime import timedelta
from itertools import pairwise

import pytest
from django.utils import timezone

from django_workflows import cancel, send_message, workflow
from django_workflows.fields import uuid7
from django_workflows.models import (
    RunStatus,
    StepStatus,
    WorkflowMessage,
    WorkflowRun,
    WorkflowStep,
)
from django_workflows.testing import advance, run_until_idle
from tests.lab.models import Thing
from tests.waiting import in_threads

pytestmark = pytest.mark.django_db


@pytest.fixture
def flow():
    @workflow(name="t.flow")
    def flow(ctx, how="wait"):
        if how == "fail":
            raise ValueError(how)
        if how == "wait":
            ctx.wait_for_message("go")
        if how == "sleep":
            ctx.sleep(3600)
        return {"how": how}

    return flow


def executed(flow, how):
    run = flow.start(how=how)
    run_until_idle(run)
    return run


def test_statuses_are_those_of_the_contract():
    assert RunStatus.values == [
        "pending",
        "running",
        "suspended",
        "completed",
        "failed",
        "canceled",
    ]
    assert StepStatus.values == ["waiting", "running", "completed", "failed"]


def test_a_run_tells_whether_it_has_ended(flow):
    runs = [flow.start(), *(executed(flow, how) for how in ("wait", "return", "fail"))]
    cancel(runs[0])
    runs[0].refresh_from_db()

    assert [(run.status, run.is_finished) for run in runs] == [
        ("canceled", True),
        ("suspended", False),
        ("completed", True),
        ("failed", True),
    ]
    assert list(WorkflowRun.objects.open()) == [runs[1]]
    assert set(WorkflowRun.objects.finished()) == {runs[0], runs[2], runs[3]}


def test_due_runs_are_those_that_a_worker_may_claim_now(flow):
    now, parked = flow.start(), executed(flow, "wait")
    flow.using(run_after=timedelta(hours=1)).start()
    executed(flow, "sleep")

    assert list(WorkflowRun.objects.due()) == [now]
    assert parked.available_at is None


# https://github.com/aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws/issues/755
def test_runs_that_wait_long_are_found_for_alarms(flow):
    old, new = executed(flow, "wait"), executed(flow, "wait")
    executed(flow, "sleep")
    since = timezone.now() - timedelta(days=8)
    WorkflowRun.objects.filter(pk=old.pk).update(waiting_since=since)

    assert set(WorkflowRun.objects.waiting()) == {old, new}
    assert list(WorkflowRun.objects.waiting(longer_than=timedelta(days=7))) == [old]
    assert not WorkflowRun.objects.waiting(longer_than=timedelta(days=9)).exists()
    assert old.waiting_names == ["go"]
    send_message(old, "go")
    run_until_idle(old)
    assert (old.waiting_since, old.waiting_names) == (None, [])


def test_texts_name_what_they_stand_for(flow):
    run = flow.using(workflow_id="order-7").start()
    message = send_message(run, "go")
    run_until_idle(run)

    assert str(run) == "t.flow order-7"
    assert str(run.steps.get()) == "message:go"
    assert str(message) == f"go #{message.pk}"


def test_messages_are_told_apart_by_whether_a_step_took_them(flow):
    run = flow.start()
    taken, left, other = (send_message(run, name) for name in ("go", "go", "other"))
    run_until_idle(run)

    assert list(run.messages.consumed()) == [taken]
    assert list(run.messages.pending()) == [left, other]


def test_deleting_a_run_takes_its_steps_and_messages_along(flow):
    run = flow.start()
    send_message(run, "go")
    send_message(run, "unread")
    run_until_idle(run)
    assert run.is_finished
    run.delete()

    assert not WorkflowStep.objects.exists()
    assert not WorkflowMessage.objects.exists()


def test_payloads_are_decoded_when_they_are_asked_for(flow):
    run = executed(flow, "return")
    listed = WorkflowRun.objects.defer("input", "result").get(pk=run.pk)

    assert listed.get_deferred_fields() == {"input", "result"}
    assert (listed.result, listed.input) == ({"how": "return"}, {"how": "return"})


def test_a_payload_can_be_written_by_the_model_too():
    run = WorkflowRun.objects.create(
        workflow_id="x",
        workflow_name="t",
        input={"a": (1, 2)},
        state={},
        result={1, 2},
        created_at=timezone.now(),
    )
    found = WorkflowRun.objects.get(pk=run.pk)

    assert (found.input, found.result, found.error) == ({"a": (1, 2)}, {1, 2}, None)


def test_a_run_whose_subject_model_is_gone_has_none(flow):
    run = flow.using(subject=Thing.objects.create(name="a")).start()
    WorkflowRun.objects.filter(pk=run.pk).update(subject_type="gone.thing")
    assert WorkflowRun.objects.get(pk=run.pk).subject is None
    WorkflowRun.objects.filter(pk=run.pk).update(subject_type="nonsense")

    assert WorkflowRun.objects.get(pk=run.pk).subject is None


def test_wait_returns_an_ended_run_at_once_and_refreshed(flow):
    run = flow.start(how="return")
    run_until_idle()
    assert run.status == "pending"

    assert run.wait(0) is run
    assert run.result == {"how": "return"}


@pytest.mark.parametrize("timeout", [0, 0.01, timedelta(milliseconds=10)])
def test_wait_gives_up_after_its_timeout(flow, timeout):
    run = flow.start()
    with pytest.raises(TimeoutError) as caught:
        run.wait(timeout)

    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    assert str(caught.value) == f"Run {run.pk} is still 'pending' after {seconds} s."


@pytest.mark.django_db(transaction=True)
def test_wait_sees_what_another_thread_does(flow):
    run = flow.start(how="return")
    started = threading.Event()

    def wait():
        started.set()
        return WorkflowRun.objects.get(pk=run.pk).wait(30).status

    def execute():
        started.wait(30)
        run_until_idle(WorkflowRun.objects.get(pk=run.pk))

    assert in_threads(wait, execute)[0] == "completed"


def test_ids_made_here_increase_and_are_version_seven():
    ids = [uuid7() for _ in range(2000)]

    assert ids == sorted(set(ids))
    assert {(each.version, each.variant) for each in ids} == {(7, "specified in RFC 4122")}
    assert all(a.int >> 64 < b.int >> 64 for a, b in pairwise(ids))


def test_a_run_started_later_sorts_later_whatever_the_workflow_clock_says(flow):
    first = flow.start()
    advance(timedelta(days=1))
    second = flow.start()

    assert [first, second] == list(WorkflowRun.objects.order_by("id"))
    assert second.created_at - first.created_at >= timedelta(days=1)
