"""Domain verbs on querysets."""

from datetime import timedelta

import pytest
from django.utils import timezone

from django_workflows import cancel, send_message
from django_workflows.models import WorkflowMessage, WorkflowRun
from django_workflows.store import runs
from django_workflows.testing import run_until_idle
from tests.claiming import claim, entry, parked, take
from tests.lab import workflows as lab
from tests.lab.models import Thing

pytestmark = pytest.mark.django_db


class ThingProxy(Thing):
    class Meta:
        proxy = True
        app_label = "lab"


@pytest.fixture
def every_kind():
    """A run of every status, by status."""
    found = {"pending": lab.steps.start(), "running": lab.steps.start()}
    claim(found["running"])
    found["suspended"] = parked(lab.wait_once.start(), "go")
    for status in ("completed", "failed"):
        found[status] = lab.steps.start()
        runs.finish(claim(found[status]), status=status, result=None, error=None)
    found["canceled"] = cancel(lab.steps.start())
    return found


def statuses(queryset):
    return sorted(queryset.values_list("status", flat=True))


def test_open_and_finished_are_the_two_halves(every_kind):
    assert statuses(WorkflowRun.objects.open()) == ["pending", "running", "suspended"]
    assert statuses(WorkflowRun.objects.finished()) == ["canceled", "completed", "failed"]
    assert WorkflowRun.objects.count() == len(every_kind)


def test_due_are_those_that_a_worker_may_claim_now(every_kind):
    lab.steps.using(run_after=timedelta(hours=1)).start()
    assert WorkflowRun.objects.due().get() == every_kind["pending"]


def test_runs_of_a_subject_come_newest_first():
    mine, other = Thing.objects.create(name="mine"), Thing.objects.create(name="other")
    first = lab.steps.using(subject=mine).start()
    second = lab.nap.using(subject=mine).start(seconds=1)
    lab.steps.using(subject=other).start()
    lab.steps.start()

    assert list(WorkflowRun.objects.for_subject(mine)) == [second, first]
    assert list(WorkflowRun.objects.open().for_subject(ThingProxy.objects.get(pk=mine.pk))) == [
        second,
        first,
    ]
    assert first.subject == mine


def test_what_is_no_saved_model_instance_is_no_subject():
    with pytest.raises(ValueError, match="A subject must be saved first; this Thing has no pk"):
        WorkflowRun.objects.for_subject(Thing())
    with pytest.raises(TypeError, match="A subject must be a model instance, not str"):
        WorkflowRun.objects.for_subject("lab.Thing")


# https://github.com/aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws/issues/755
def test_waits_that_nobody_answers_are_found_by_how_long_they_last(every_kind):
    old = parked(lab.wait_once.start(), "go")
    WorkflowRun.objects.filter(pk=old.pk).update(waiting_since=timezone.now() - timedelta(days=8))
    asleep = lab.nap.start(seconds=3600)
    run_until_idle(asleep)

    assert set(WorkflowRun.objects.waiting()) == {old, every_kind["suspended"]}
    assert WorkflowRun.objects.waiting(longer_than=timedelta(days=7)).get() == old
    assert not WorkflowRun.objects.waiting(longer_than=timedelta(days=9)).exists()


def test_a_steps_backoff_is_no_wait():
    claimed = claim(lab.steps.start())
    runs.park(claimed, runs.Parking(entry(claimed, status="waiting", wake_at=claimed.time() + 60)))
    assert not WorkflowRun.objects.waiting().exists()


def test_stuck_are_open_runs_with_a_problem(every_kind):
    stuck = lab.steps.start()
    runs.give_back(claim(stuck), delay=60, problem="the code has changed")
    assert WorkflowRun.objects.stuck().get() == stuck

    cancel(stuck)
    assert not WorkflowRun.objects.stuck().exists()


def test_messages_are_pending_or_consumed_oldest_first():
    run, other = lab.wait_once.start(), lab.wait_once.start()
    sent = [send_message(run, "go", n) for n in range(4)]
    foreign = send_message(other, "go")
    claimed = claim(run)
    for seq in range(2):
        take(claimed, "go", seq=seq)

    assert list(run.messages.consumed()) == sent[:2]
    assert list(run.messages.pending()) == sent[2:]
    assert list(WorkflowMessage.objects.pending()) == [*sent[2:], foreign]
