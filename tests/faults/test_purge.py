"""`manage.py purgeworkflows`: in small transactions, beside a worker, stopped and run again."""

import resource
import subprocess
import sys
import time
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_workflows import approve, cancel, rerun, send_message, send_signal, workflow
from django_workflows.models import WorkflowMessage, WorkflowRun, WorkflowSignal, WorkflowStep
from django_workflows.store import retention
from django_workflows.telemetry import subscribed
from django_workflows.testing import run_until_idle
from tests.conftest import ROOT, process_environment
from tests.lab import workflows as lab
from tests.waiting import Background, eventually

WEEK = timedelta(days=7)


def purge(*arguments):
    out = StringIO()
    call_command("purgeworkflows", "--older-than", "1d", *arguments, stdout=out, no_color=True)
    return out.getvalue()


def age(*runs, by=WEEK):
    """Make runs as if they had ended long ago."""
    WorkflowRun.objects.filter(pk__in=[run.pk for run in runs]).update(
        finished_at=timezone.now() - by
    )


def ended(count=1):
    runs = [lab.steps.start(count=1) for _ in range(count)]
    run_until_idle(*runs)
    return runs


def make_many(count, live):
    """Rows of `count` long ended runs with two steps and two messages each, and `live` open
    ones that have an unread message."""
    template, waiting = ended(1)[0], lab.wait_once.start()
    run_until_idle(waiting)
    like = {field.attname: getattr(template, field.attname) for field in WorkflowRun._meta.fields}
    from django_workflows.fields import uuid7

    def copies(number, **changes):
        made = []
        for _ in range(number):
            key = uuid7()
            made.append(WorkflowRun(**{**like, "id": key, "workflow_id": str(key), **changes}))
        return WorkflowRun.objects.bulk_create(made, batch_size=500)

    old = copies(count, finished_at=timezone.now() - WEEK)
    alive = copies(
        live, status="suspended", finished_at=None, waiting_kind="message", waiting_for='["go"]'
    )
    now = timezone.now()
    WorkflowStep.objects.bulk_create(
        [
            WorkflowStep(
                run=run, seq=seq, key=f"s{seq}", name="s", kind="step", status="completed",
                attempts=1, created_at=now,
            )
            for run in old
            for seq in range(2)
        ],
        batch_size=500,
    )  # fmt: skip
    WorkflowMessage.objects.bulk_create(
        [
            WorkflowMessage(run=run, name="other", data=n, routed=True, created_at=now)
            for run in (*old, *alive)
            for n in range(2)
        ],
        batch_size=500,
    )
    age(template)
    return alive


@pytest.mark.django_db
def test_runs_that_ended_before_the_age_go_with_their_rows_and_others_stay():
    old, young = ended(2)
    unread = lab.wait_once.start()
    send_message(unread, "other")
    run_until_idle(unread)
    cancel(unread)
    age(old, unread)
    kept = lab.wait_once.start()
    send_message(kept, "other")
    run_until_idle(kept)

    assert purge() == "2 runs deleted.\n"

    assert set(WorkflowRun.objects.values_list("pk", flat=True)) == {young.pk, kept.pk}
    assert set(WorkflowStep.objects.values_list("run_id", flat=True)) == {young.pk, kept.pk}
    assert WorkflowMessage.objects.get().run_id == kept.pk
    assert purge() == "0 runs deleted.\n"


@pytest.mark.django_db
def test_decisions_signals_and_reruns_of_deleted_runs_leave_nothing_dangling():
    @workflow(name="t.all_kinds")
    def all_kinds(ctx):
        ctx.wait_for_approval("gate")
        ctx.wait_for_signal("bell")
        raise LookupError("so that it can be rerun")

    run = all_kinds.start()
    run_until_idle(run)
    approve(run, "gate", by=User.objects.create(username="ann"))
    run_until_idle(run)
    assert send_signal("bell") == [run.pk]
    run_until_idle(run)
    again = rerun(run)
    assert run.status == "failed"
    age(run)

    assert purge() == "1 runs deleted.\n"

    again.refresh_from_db()
    assert again.rerun_of is None
    assert not WorkflowSignal.objects.exists()
    run_until_idle(again)
    assert again.status == "failed"


@pytest.mark.django_db
def test_a_child_stays_while_its_parent_is_open():
    @workflow(name="t.slow_parent")
    def slow_parent(ctx):
        child = ctx.start_child(lab.steps, {"count": 1})
        ctx.wait_for_message("go")
        return child.result()

    parent = slow_parent.start()
    run_until_idle(parent)
    child = WorkflowRun.objects.get(parent=parent)
    assert child.status == "completed"
    age(child)
    assert purge() == "0 runs deleted.\n"
    send_message(parent, "go")
    run_until_idle(parent)
    assert parent.result == [0]
    assert purge() == "1 runs deleted.\n"


@pytest.mark.django_db
def test_an_open_child_outlives_its_deleted_parent():
    @workflow(name="t.leaving_parent")
    def leaving_parent(ctx):
        ctx.start_child(lab.wait_once, {}, on_parent_close="abandon")

    parent = leaving_parent.start()
    run_until_idle(parent)
    age(parent)
    assert purge() == "1 runs deleted.\n"
    child = WorkflowRun.objects.get()
    send_message(child, "go", 1)
    run_until_idle(child)
    assert child.status == "completed"


@pytest.mark.django_db
def test_only_the_named_ends_go():
    (done,) = ended()
    canceled = lab.wait_once.start()
    cancel(canceled)
    age(done, canceled)
    assert purge("--status", "canceled") == "1 runs deleted.\n"
    assert WorkflowRun.objects.get().pk == done.pk


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "age_of_run", "count"),
    [
        ("6", WEEK, 1),
        ("8d", WEEK, 0),
        ("23h", timedelta(days=1), 1),
        ("90m", timedelta(hours=1), 0),
    ],
)
def test_an_age_is_given_in_days_hours_or_minutes(text, age_of_run, count):
    age(*ended(), by=age_of_run)
    out = StringIO()
    call_command("purgeworkflows", "--older-than", text, stdout=out)
    assert out.getvalue() == f"{count} runs deleted.\n"


@pytest.mark.parametrize("arguments", [["-1"], ["soon"], ["1d", "--batch-size", "1001"], ["1w"]])
def test_a_bad_age_or_batch_is_refused(arguments):
    with pytest.raises(CommandError):
        call_command("purgeworkflows", "--older-than", *arguments)
    with pytest.raises(CommandError):
        call_command("purgeworkflows")


@pytest.mark.django_db
def test_batches_are_as_small_as_asked_for():
    age(*ended(7))
    sizes = []
    with subscribed("runs.purged", lambda event, fields: sizes.append(fields["count"])):
        assert purge("--batch-size", "3") == "7 runs deleted.\n"
    assert sizes == [3, 3, 1]


@pytest.mark.postgresql("SQLite has one writer at a time")
@pytest.mark.django_db(transaction=True)
def test_a_run_that_somebody_has_locked_is_skipped_and_goes_the_next_time():
    from django.db import transaction

    held, free = ended(2)
    age(held, free)
    with transaction.atomic():
        WorkflowRun.objects.select_for_update().get(pk=held.pk)
        assert Background(purge).result(20) == "1 runs deleted.\n"
    assert purge() == "1 runs deleted.\n"


# https://github.com/celery/django-celery-results/issues/232
# https://github.com/celery/django-celery-results/issues/117
def test_a_purge_beside_a_worker_holds_nobody_up_and_can_be_stopped_and_run_again(
    start_worker, tmp_path
):
    count, live = 6000, 100
    alive = make_many(count, live)
    start_worker("--lease", "10")
    command = [sys.executable, str(ROOT / "manage.py"), "purgeworkflows", "--older-than", "1d"]

    def begin(*more):
        return subprocess.Popen(
            [*command, *more], env=process_environment(), cwd=ROOT, stdout=subprocess.PIPE
        )

    def left():
        return WorkflowRun.objects.finished().count()

    waits = []

    def timed(call, *given):
        began = time.monotonic()
        result = call(*given)
        waits.append(time.monotonic() - began)
        return result

    def use():
        """What callers do meanwhile."""
        run = timed(lab.wait_once.start)
        timed(send_message, run, "go", 1)
        timed(send_message, alive[len(waits) % live], "other", 2)
        return run

    process = begin("--batch-size", "50")
    runs = [use()]
    eventually(lambda: left() < count * 0.9)
    process.kill()
    process.wait(20)
    process.stdout.close()
    assert left() > 1, "killed too late to prove anything"

    process = begin()
    while process.poll() is None:
        runs.append(use())
    assert process.stdout.read().decode().endswith("runs deleted.\n")
    process.stdout.close()

    for run in runs:
        assert run.wait(20).result == {"data": 1}
    assert max(waits) < 1.0
    assert WorkflowRun.objects.filter(finished_at__lt=timezone.now() - WEEK / 2).count() == 0
    stayed = WorkflowRun.objects.filter(pk__in=[run.pk for run in alive])
    assert stayed.filter(status="suspended").count() == live
    unread = WorkflowMessage.objects.filter(run__in=stayed, consumed_by=None).count()
    assert unread == 2 * live + len(runs)
    assert WorkflowStep.objects.filter(key="s0").count() == 0


@pytest.mark.django_db
def test_memory_stays_flat_however_many_runs_go():
    make_many(3000, 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    after = None
    while True:
        _count, after = retention.purge_batch(
            timedelta(days=1), after=after, statuses=["completed"], limit=1000
        )
        if after is None:
            break
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert WorkflowRun.objects.finished().count() == 0
    assert grown < 20 * 1024
