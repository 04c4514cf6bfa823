"""Claims of what is due, most urgent first; leases, take-over, poison."""

import time
from datetime import timedelta
from uuid import uuid4

import pytest

from django_workflows import fields, send_message, workflow
from django_workflows.models import WorkflowMessage, WorkflowRun, WorkflowWorker
from django_workflows.registry import registry
from django_workflows.store import leases, recorder, runs
from django_workflows.testing import advance, run_until_idle
from tests.claiming import claim, claim_and_lose, claim_batch, entry, fetch, parked, take
from tests.lab import workflows as lab

pytestmark = pytest.mark.django_db

LEASE = timedelta(seconds=30)


@pytest.fixture
def worker():
    worker_id = uuid4()
    register(worker_id)
    return worker_id


def register(worker_id, pairs=()):
    leases.register_worker(
        worker_id,
        name="w",
        host="h",
        pid=1,
        queues=["default"],
        pairs=list(pairs),
        lease=LEASE,
    )


def test_a_claim_tells_all_that_a_pass_needs(worker):
    run = lab.nap.using(workflow_id="x", priority=3, deadline=timedelta(hours=1)).start(seconds=1)
    claimed = claim(run, worker)

    run.refresh_from_db()
    assert (run.status, run.claimed_by, run.claim_token) == ("running", worker, claimed.token)
    assert (run.attempts, run.claim_count, run.available_at) == (1, 1, None)
    assert run.started_at is not None
    assert (claimed.run_id, claimed.workflow_id) == (run.pk, "x")
    assert (claimed.name, claimed.version, claimed.queue_name) == ("tests.lab.nap", "1", "default")
    assert (claimed.priority, claimed.input) == (3, '{"seconds":1}')
    assert abs(claimed.deadline_at - run.deadline_at.timestamp()) < 0.001
    assert abs(claimed.time() - run.started_at.timestamp()) < 5
    assert claimed.is_fresh


def test_each_claim_has_a_token_of_its_own_and_the_first_start_stays():
    run = lab.steps.start()
    first = claim(run)
    run.refresh_from_db()
    started_at = run.started_at
    runs.give_back(first)
    second = claim(run)

    run.refresh_from_db()
    assert second.token != first.token
    assert (run.started_at, run.claim_count, run.attempts) == (started_at, 2, 1)
    assert not second.is_fresh


def test_a_claimed_run_is_not_claimed_again(worker):
    run = lab.steps.start()
    claim(run, worker)
    assert leases.claim_one(run.pk, worker) is None
    assert claim_batch() == []


def test_a_batch_takes_the_most_urgent_and_among_equals_the_longest_due():
    started = [lab.steps.using(priority=p).start() for p in (0, 5, 0, -5, 5, 2)]
    order = [started[n].pk for n in (1, 4, 5, 0, 2, 3)]

    assert [claimed.run_id for claimed in claim_batch(limit=2)] == order[:2]
    assert [claimed.run_id for claimed in claim_batch(limit=2)] == order[2:4]
    assert [claimed.run_id for claimed in claim_batch()] == order[4:]
    assert claim_batch() == []


def test_a_batch_mixes_queues_by_urgency():
    slow = lab.on_slow_queue.using(priority=1).start()
    normal = lab.steps.start()
    urgent = lab.steps.using(queue_name="aaa", priority=2).start()

    order = [claimed.run_id for claimed in claim_batch()]
    assert order == [urgent.pk, slow.pk, normal.pk]


def test_a_batch_takes_only_the_queues_asked_for():
    slow, normal = lab.on_slow_queue.start(), lab.steps.start()
    other = lab.steps.using(queue_name="other").start()

    assert [claimed.run_id for claimed in claim_batch(queues=["slow"])] == [slow.pk]
    assert claim_batch(queues=["slow"]) == []
    taken = {claimed.run_id for claimed in claim_batch(queues=["other", "default"])}
    assert taken == {normal.pk, other.pk}


def test_runs_for_later_do_not_hide_due_ones():
    for _ in range(20):
        lab.steps.using(run_after=timedelta(days=1)).start()
    run = lab.steps.start()
    assert [claimed.run_id for claimed in claim_batch(limit=1)] == [run.pk]


# https://github.com/chrisguidry/docket/issues/437
def test_a_worker_leaves_a_workflow_that_it_does_not_know():
    run, other = lab.nap.start(seconds=0), lab.steps.start()
    known = [pair for pair in registry.pairs() if pair[0] != "tests.lab.nap"]

    taken = [claim_batch(pairs=known) for _ in range(10)]

    assert [claimed.run_id for batch in taken for claimed in batch] == [other.pk]
    run.refresh_from_db()
    assert (run.status, run.attempts, run.claim_count, run.crashes) == ("pending", 0, 0, 0)
    run_until_idle(run)
    assert run.status == "completed"


def test_a_worker_leaves_a_version_that_it_does_not_know():
    @workflow(name="t.versioned", version="2")
    def versioned(ctx):
        pass

    run = versioned.start()
    assert claim_batch(pairs=[("t.versioned", "1")]) == []
    assert claim_batch(pairs=[("t.versioned2", ""), ("t", "versioned2"), ("t.versioned", "")]) == []
    assert claim_batch(pairs=[]) == []
    assert [claimed.run_id for claimed in claim_batch(pairs=[("t.versioned", "2")])] == [run.pk]


def test_an_overdue_run_is_not_claimed_but_failed():
    pending = lab.nap.using(deadline=timedelta(seconds=10)).start(seconds=1)
    waiting = parked(lab.wait_once.using(deadline=timedelta(seconds=10)).start(), "go")
    running = lab.steps.using(deadline=timedelta(seconds=10)).start()
    claimed = claim(running)
    fine = lab.steps.using(deadline=timedelta(hours=1)).start()
    assert leases.fail_overdue() == 0

    advance(timedelta(seconds=11))
    assert leases.claim_one(pending.pk, None) is None
    assert leases.fail_overdue() == 3

    for run in (pending, waiting, running):
        run.refresh_from_db()
        assert (run.status, run.error["type"]) == ("failed", "DeadlineExceeded")
    assert runs.standing(claimed) == "failed"
    assert claim(fine)


def test_the_records_of_claims_are_loaded_in_one_query(django_assert_num_queries):
    started = [lab.steps.start() for _ in range(3)]
    for run in started[:2]:
        claimed = claim(run)
        for seq in range(3):
            recorder.record(claimed, entry(claimed, f"step:{seq}", seq=2 - seq))
        runs.give_back(claimed)
    claims = claim_batch()

    with django_assert_num_queries(1):
        found = leases.load_histories(claims)

    assert set(found) == {run.pk for run in started[:2]}
    assert [each.seq for each in found[started[0].pk]] == [0, 1, 2]


def test_first_claims_need_no_query_for_their_records(django_assert_num_queries):
    lab.steps.start()
    claims = claim_batch()
    with django_assert_num_queries(0):
        assert leases.load_histories(claims) == {}


def test_a_run_of_a_live_worker_is_left_alone(worker):
    run = lab.steps.start()
    claimed = claim(run, worker)
    advance(timedelta(seconds=29))

    assert not leases.look().dead
    assert leases.take_over_dead() == 0
    assert runs.standing(claimed) == "running"


@pytest.mark.parametrize("how", ["silent", "stopped", "deleted"])
def test_a_run_of_a_dead_worker_is_due_at_once_for_the_next(worker, how):
    run = lab.steps.start()
    claimed = claim(run, worker)
    if how == "silent":
        advance(timedelta(seconds=31))
    elif how == "stopped":
        leases.stop_worker(worker)
    else:
        WorkflowWorker.objects.get(pk=worker).delete()

    assert leases.look().dead
    assert leases.take_over_dead() == 1

    run.refresh_from_db()
    assert (run.status, run.claim_token, run.claimed_by) == ("pending", None, None)
    assert run.crashes == 1
    assert runs.standing(claimed) is None
    assert claim(run).token != claimed.token
    assert leases.take_over_dead() == 0


def test_one_renewal_keeps_every_run_of_the_worker(worker, django_assert_num_queries):
    claims = [claim(lab.steps.start(), worker) for _ in range(5)]
    advance(timedelta(seconds=20))
    with django_assert_num_queries(1):
        assert leases.renew(worker, LEASE, [{"run": "r", "step": "s", "seconds": 1.5}])
    advance(timedelta(seconds=20))

    assert leases.take_over_dead() == 0
    assert {runs.standing(claimed) for claimed in claims} == {"running"}
    row = WorkflowWorker.objects.get()
    assert row.doing == [{"run": "r", "step": "s", "seconds": 1.5}]
    assert row.heartbeat_at < row.lease_until


def test_a_worker_whose_row_was_deleted_is_told_so():
    assert not leases.renew(uuid4(), LEASE, [])


def test_a_workers_row_tells_who_it_is_and_what_it_knows():
    worker_id = uuid4()
    register(worker_id, [("a.b", "1"), ("a.b", "2")])
    row = WorkflowWorker.objects.get()

    assert (row.pk, row.name, row.host, row.pid, str(row)) == (worker_id, "w", "h", 1, "w")
    assert (row.queues, row.workflows) == (["default"], [["a.b", "1"], ["a.b", "2"]])
    assert row.lease_until - row.started_at >= LEASE - timedelta(seconds=1)
    assert row.stopped_at is None
    leases.stop_worker(worker_id)
    row.refresh_from_db()
    assert row.stopped_at is not None


def test_a_run_that_kills_its_workers_fails_as_poison():
    run = lab.steps.start()
    for crashes in range(1, 5):
        claim(run, uuid4())
        assert leases.take_over_dead() == 1
        run.refresh_from_db()
        assert (run.status, run.crashes) == ("pending", crashes)
    claim(run, uuid4())
    leases.take_over_dead()

    run.refresh_from_db()
    assert (run.status, run.error["type"]) == ("failed", "PoisonRun")
    assert run.error["message"].startswith(
        f"Run {run.pk} was given up: its worker died 5 times in a row without a new record."
    )


def test_a_new_record_forgets_earlier_crashes():
    run = lab.steps.start()
    _, claimed = claim_and_lose(run)
    assert claimed.crashes == 1

    recorder.record(claimed, entry(claimed, status="running", result=None))
    run.refresh_from_db()
    assert run.crashes == 1, "a step that only began may be the one that kills"

    recorder.record(claimed, entry(claimed, "done", seq=1))
    run.refresh_from_db()
    assert (run.crashes, claimed.crashes) == (0, 0)


def test_a_run_that_was_ended_meanwhile_is_not_given_up():
    run = lab.steps.start()
    claimed = claim(run, uuid4())
    WorkflowRun.objects.update(crashes=4)
    runs.finish(claimed, status="completed", result="1", error=None)

    assert leases.take_over_dead() == 0
    run.refresh_from_db()
    assert run.status == "completed"


def test_a_look_tells_what_there_is_to_do():
    idle = leases.look()
    assert (idle.due_in, idle.unrouted, idle.dead, idle.overdue_in) == (None, (), False, None)

    lab.steps.using(run_after=timedelta(minutes=10), deadline=timedelta(minutes=20)).start()
    run = lab.wait_once.start()
    claim(run, uuid4())
    send_message(run, "go")

    look = leases.look()
    assert 590 < look.due_in <= 600
    assert 1190 < look.overdue_in <= 1200
    assert look.unrouted == ("message",)
    assert look.dead


# https://github.com/kagkarlsson/db-scheduler/issues/433
@pytest.mark.postgresql("SQLite has no clock but the machine's")
def test_a_process_clock_that_runs_ahead_takes_no_live_lease_and_fires_no_timer_early(
    worker, monkeypatch
):
    held = claim(lab.steps.start(), worker)
    asleep = lab.nap.start(seconds=300)
    run_until_idle(asleep)
    due = lab.steps.using(deadline=timedelta(seconds=300)).start()

    # What was handed out under the false clock must not count for later tests.
    monkeypatch.setattr(fields, "_last", fields._last)
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + 600)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + 600 * 10**9)

    assert not leases.look().dead
    assert leases.take_over_dead() == 0
    assert leases.fail_overdue() == 0
    assert [claimed.run_id for claimed in claim_batch()] == [due.pk]
    assert runs.standing(held) == "running"
    later = lab.steps.using(run_after=timedelta(seconds=60)).start()
    assert abs((later.available_at - asleep.created_at).total_seconds() - 60) < 30


def test_the_router_marks_what_it_saw_and_no_consumed_message():
    run = lab.wait_once.start()
    claimed = claim(run)
    send_message(run, "go")
    take(claimed, "go")
    assert leases.route() == 0

    send_message(run, "other")
    assert leases.route() == 1
    assert leases.route() == 0
    assert fetch("SELECT name FROM {message} WHERE routed ORDER BY id") == [("other",)]


def test_routing_goes_run_by_run_up_to_its_limit():
    started = [lab.wait_once.start() for _ in range(5)]
    for run in started:
        send_message(run, "go", 1)
        send_message(run, "go", 2)

    assert leases.route(limit=3) == 3
    assert leases.route(limit=3) == 2
    assert WorkflowMessage.objects.filter(routed=False).count() == 0
