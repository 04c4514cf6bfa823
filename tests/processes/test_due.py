"""Timers and deadlines: when the time comes, whoever runs by then."""

from collections import Counter
from datetime import timedelta

from django.utils import timezone

from django_workflows import send_message
from tests.lab import workflows as lab
from tests.lab.models import Effect
from tests.processes.conftest import effects, status_of, wait_for_mark, wait_until_parked
from tests.waiting import eventually


def test_a_sleep_that_ended_while_no_worker_ran_goes_on_once_one_does(start_worker):
    """Public report: https://github.com/vercel/workflow/issues/679"""
    run = lab.nap.start(seconds=1)
    first = start_worker()
    wait_until_parked(run)
    assert first.stop() == 0
    wake_at = run.steps.get(kind="sleep").wake_at
    eventually(lambda: timezone.now() > wake_at + timedelta(seconds=0.3))
    assert status_of(run) == "suspended"

    start_worker()

    assert run.wait(20).status == "completed"
    assert effects(run) == {"before": 1, "after": 1}
    assert Effect.objects.get(run=run.pk, name="after").at >= wake_at


def test_messages_that_nobody_waits_for_do_not_wake_a_sleeping_run(start_worker):
    """Public report: https://github.com/earendil-works/absurd/issues/34"""
    run = lab.nap.start(seconds=3600)
    worker = start_worker("--poll-interval", "0.05")
    wait_until_parked(run)
    run.refresh_from_db()
    before = (run.available_at, run.claim_count)

    for n in range(10):
        send_message(run, "unused", n)
        # What is done for another run meanwhile shows that polls pass.
        assert lab.steps.start(count=1).wait(20).status == "completed"
    eventually(lambda: not run.messages.filter(routed=False).exists())

    run.refresh_from_db()
    assert (run.available_at, run.claim_count, run.status) == (*before, "suspended")
    assert run.messages.pending().count() == 10
    assert worker.stop() == 0


def test_many_runs_that_sleep_to_the_same_second_are_each_woken_once(start_worker):
    """Public report: https://github.com/pulp/pulpcore/issues/6616"""
    until = timezone.now() + timedelta(seconds=5)
    runs = [lab.nap_until.start(until=until) for _ in range(200)]
    workers = [start_worker() for _ in range(3)]

    def is_done():
        ended = Effect.objects.filter(name="after").count()
        return ended >= 200

    eventually(is_done, timeout=60)
    for run in runs:
        assert run.wait(20).status == "completed"
    calls = Counter(Effect.objects.values_list("run", flat=True))
    assert set(calls.values()) == {1}
    assert len(calls) == 200
    assert Effect.objects.earliest("at").at >= until
    for worker in workers:
        assert worker.stop() == 0
        assert "database.away" not in worker.output()


def test_runs_fail_at_their_deadline_whether_they_are_pending_parked_or_in_a_step(
    start_worker, held_run, go
):
    soon = timezone.now() + timedelta(seconds=3)
    parked = lab.wait_once.using(deadline=soon).start()
    asleep = lab.nap.using(deadline=soon).start(seconds=3600)
    unclaimed = lab.steps.using(deadline=soon, queue_name="other").start()
    scheduled = lab.steps.using(deadline=soon, run_after=soon + timedelta(hours=1)).start()
    running = lab.held.using(deadline=soon).start(path=str(go))
    start_worker("--queue", "default")
    wait_for_mark(running, "first")
    wait_until_parked(parked, asleep)

    for run in (parked, asleep, unclaimed, scheduled, running):
        ended = run.wait(20)
        assert ended.status == "failed"
        assert ended.error["type"].rpartition(".")[2] == "DeadlineExceeded"
        assert ended.finished_at >= soon

    go.touch()
    wait_for_mark(running, "first-done")
    assert lab.steps.start(count=1).wait(20).status == "completed"
    assert effects(running) == {"first": 1, "first-done": 1}
