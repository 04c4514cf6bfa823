"""Workers that come back from the dead, and workers whose clock is wrong."""

import signal
from datetime import timedelta

import pytest

from django_workflows import send_message
from django_workflows.models import WorkflowRun, WorkflowStep, WorkflowWorker
from tests.faults.cases import begin_orphan
from tests.lab import workflows as lab
from tests.lab.models import Effect
from tests.waiting import eventually


def start_worker(zygote, lease=2.0, **environment):
    worker = zygote.fork("tests.lab.actors:worker", lease, 4, **environment)
    eventually(lambda: WorkflowWorker.objects.filter(pid=worker.pid).exists())
    return worker


def row_of(worker):
    return WorkflowWorker.objects.get(pid=worker.pid)


# https://github.com/brendanlong/lion-reader/pull/917
@pytest.mark.parametrize("names", ["their own names", "one name for both"])
def test_a_worker_that_was_stopped_past_its_lease_changes_nothing_when_it_goes_on(
    zygote, tmp_path, names
):
    go = tmp_path / "go"
    zombie = start_worker(zygote)
    run = lab.held.start(path=str(go))
    eventually(lambda: Effect.objects.filter(run=run.pk, name="first").exists())
    zombie.send(signal.SIGSTOP)
    other = start_worker(zygote)
    if names == "one name for both":
        WorkflowWorker.objects.update(name="one:1")
    eventually(lambda: Effect.objects.filter(run=run.pk, name="first", pid=other.pid).exists())
    go.touch()
    assert run.wait(20).result == "done"
    before = list(WorkflowStep.objects.filter(run=run).order_by("seq").values())

    zombie.send(signal.SIGCONT)
    eventually(lambda: "lease.lost" in zombie.output())

    assert list(WorkflowStep.objects.filter(run=run).order_by("seq").values()) == before
    for name in ("second", "third"):
        assert Effect.objects.get(run=run.pk, name=name).pid == other.pid
    run.refresh_from_db()
    assert (run.status, run.result) == ("completed", "done")
    # It is a worker like any other again.
    assert other.stop() == 0
    again = lab.steps.start(count=2)
    assert again.wait(20).result == [0, 1]
    assert set(Effect.objects.filter(run=again.pk).values_list("pid", flat=True)) == {zombie.pid}
    assert zombie.stop() == 0


def test_a_worker_that_was_stopped_before_it_heard_of_its_claim_calls_no_step(zygote):
    """What it hears then is old: the run is another's by now."""
    run = begin_orphan()
    # After a crash the step is recorded as begun before it is called; there it stops.
    point = "freeze:after:1:recorder.record by records.write"
    zombie = start_worker(zygote, LAB_COMMIT=point)
    eventually(lambda: WorkflowStep.objects.filter(run=run, status="running").exists())
    other = start_worker(zygote)
    assert run.wait(20).status == "completed"

    zombie.send(signal.SIGCONT)
    eventually(lambda: "lease.lost" in zombie.output())

    assert zombie.stop() == 0
    assert list(Effect.objects.filter(run=run.pk).values_list("pid", flat=True)) == [other.pid]


# https://github.com/kagkarlsson/db-scheduler/issues/433
@pytest.mark.postgresql("SQLite has no clock but the machine's")
@pytest.mark.parametrize("seconds", [600, -600])
def test_a_worker_whose_clock_is_wrong_takes_no_live_run_and_fires_no_timer_early(
    zygote, tmp_path, seconds
):
    go = tmp_path / "go"
    healthy = start_worker(zygote, lease=30.0)
    held = lab.held.start(path=str(go))
    asleep, waiting = lab.nap.start(seconds=120), lab.wait_once.start(timeout=120)
    late = lab.wait_once.using(deadline=timedelta(seconds=120)).start(name="never")
    eventually(lambda: Effect.objects.filter(run=held.pk, name="first").exists())
    eventually(lambda: WorkflowRun.objects.filter(status="suspended").count() == 3)

    wrong = start_worker(zygote, lease=30.0, LAB_CLOCK=str(seconds))
    healthy.send(signal.SIGSTOP)
    # The wrong one is alone now, and looks at all there is again and again.
    short = [lab.nap.start(seconds=0.5) for _ in range(3)]
    for run in short:
        assert run.wait(20).status == "completed"
        slept = run.steps.get(kind="sleep")
        assert slept.finished_at - slept.created_at >= timedelta(seconds=0.5)
        assert set(Effect.objects.filter(run=run.pk).values_list("pid", flat=True)) == {wrong.pid}
    overdue = lab.wait_once.using(deadline=timedelta(seconds=0.5)).start(name="never")
    assert overdue.wait(20).error["type"] == "DeadlineExceeded"
    lease = row_of(wrong)
    left = (lease.lease_until - lease.heartbeat_at).total_seconds()
    assert left == pytest.approx(30, abs=1)
    assert abs((lease.heartbeat_at - row_of(healthy).heartbeat_at).total_seconds()) < 60
    healthy.send(signal.SIGCONT)

    for run in (asleep, waiting, late):
        run.refresh_from_db()
        assert run.status == "suspended"
    held.refresh_from_db()
    assert (held.status, held.claimed_by, held.crashes) == ("running", row_of(healthy).pk, 0)
    go.touch()
    assert held.wait(20).result == "done"
    send_message(waiting, "go", 1)
    assert waiting.wait(20).result == {"data": 1}
    assert Effect.objects.filter(run=held.pk, name="first").count() == 1
