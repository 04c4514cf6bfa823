"""`now`, `uuid4`, `random`, `patched`, `set_state` and what else a body reads of its run."""

import logging
from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from django_workflows import send_message, workflow
from django_workflows.models import WorkflowRun
from django_workflows.testing import advance, run_until_idle
from tests.runtime.crashes import WorkerDied, execute_until_death

pytestmark = pytest.mark.django_db


def wake(run):
    advance(timedelta(minutes=1))
    run_until_idle(run)
    return run


def test_time_and_random_values_are_recorded_and_the_same_on_replay():
    seen = []

    @workflow(name="t.values")
    def values(ctx):
        seen.append([ctx.now(), ctx.uuid4(), ctx.random(), ctx.now(), ctx.uuid4(), ctx.random()])
        ctx.sleep(1)

    run = values.start()
    run_until_idle(run)
    wake(run)

    first, second = seen
    assert first == second
    assert len(set(map(repr, first))) == 6
    assert [type(each) for each in second] == [type(each) for each in first]
    assert isinstance(second[1], UUID)
    assert second[1].version == 4
    assert 0 <= second[2] < 1
    assert [(each.kind, each.key, each.status) for each in run.steps.all()][:6] == [
        ("now", "now:now", "completed"),
        ("uuid", "uuid:uuid", "completed"),
        ("random", "random:random", "completed"),
        ("now", "now:now:1", "completed"),
        ("uuid", "uuid:uuid:1", "completed"),
        ("random", "random:random:1", "completed"),
    ]


@pytest.mark.parametrize("use_tz", [True, False])
def test_now_is_the_workflow_clocks_time_aware_per_use_tz(settings, use_tz):
    settings.USE_TZ = use_tz
    settings.TIME_ZONE = "Asia/Tokyo"
    seen = []

    @workflow(name="t.now")
    def now(ctx):
        seen.append(ctx.now())
        ctx.sleep(3600)
        seen.append(ctx.now())

    run = now.start()
    before = timezone.now()
    run_until_idle(run)
    advance(timedelta(hours=2))
    run_until_idle(run)

    first, replayed, second = seen
    assert first == replayed
    assert [timezone.is_aware(each) for each in seen] == [use_tz] * 3
    assert abs(first - before) < timedelta(seconds=30)
    assert timedelta(hours=2) <= second - first < timedelta(hours=2, seconds=30)


@pytest.mark.parametrize("use_tz", [True, False])
def test_times_of_a_run_its_steps_and_messages_follow_use_tz(settings, use_tz):
    settings.USE_TZ = use_tz
    settings.TIME_ZONE = "Asia/Tokyo"
    seen = []

    @workflow(name="t.times")
    def times(ctx):
        seen.append(ctx.wait_for_message("go", timeout=60).sent_at)
        ctx.sleep_until(ctx.now() + timedelta(seconds=30))

    deadline = timezone.now() + timedelta(days=1)
    run = times.using(deadline=deadline).start()
    assert run.deadline_at == deadline
    run_until_idle(run)
    message = send_message(run, "go")
    run_until_idle(run)
    parked_until = run.available_at
    wake(run)

    assert run.status == "completed"
    sleep = run.steps.get(kind="sleep")
    message.refresh_from_db()
    every = [
        *(run.created_at, run.started_at, run.finished_at, run.deadline_at, parked_until),
        *(sleep.created_at, sleep.wake_at, sleep.finished_at),
        *(message.created_at, message.consumed_at, seen[0]),
    ]
    assert {timezone.is_aware(each) for each in every} == {use_tz}
    assert all(abs(each - deadline) < timedelta(days=1, minutes=5) for each in every)
    assert seen[0] == message.created_at
    assert WorkflowRun.objects.get(deadline_at=deadline).pk == run.pk


def test_patched_is_true_for_a_new_run_and_stays_true():
    seen = []

    @workflow(name="t.patched")
    def body(ctx):
        seen.append((ctx.patched("v2"), ctx.patched("v2"), ctx.patched("v3")))
        ctx.sleep(1)
        return "done"

    run = body.start()
    run_until_idle(run)
    wake(run)

    assert seen == [(True, True, True)] * 2
    assert run.result == "done"
    assert [each.name for each in run.steps.filter(kind="patch")] == ["v2", "v3"]


def test_patched_is_false_for_a_run_whose_record_is_past_it_and_stays_false():
    seen = []

    @workflow(name="t.patched")
    def before(ctx):
        ctx.wait_for_message("go")
        ctx.wait_for_message("go")

    run = before.start()
    run_until_idle(run)

    @workflow(name="t.patched")
    def after(ctx):
        seen.append(ctx.patched("v2"))
        ctx.wait_for_message("go")
        # Past the record now, yet the same change must not be half in force.
        seen.append(ctx.patched("v2"))
        seen.append(ctx.patched("v3"))
        ctx.wait_for_message("go")

    send_message(run, "go")
    run_until_idle(run)
    send_message(run, "go")
    run_until_idle(run)

    assert run.status == "completed"
    assert seen == [False, False, True] * 2


def test_a_call_of_patched_may_be_removed_once_every_run_has_it():
    @workflow(name="t.patched")
    def with_patch(ctx):
        assert ctx.patched("v2")
        ctx.step("new", lambda: None)
        ctx.sleep(1)

    run = with_patch.start()
    run_until_idle(run)

    @workflow(name="t.patched")
    def without(ctx):
        ctx.step("new", lambda: None)
        ctx.sleep(1)
        return "done"

    assert wake(run).result == "done"


def test_an_empty_change_id_fails_the_run():
    @workflow(name="t.patched")
    def body(ctx):
        ctx.patched("")

    run = body.start()
    run_until_idle(run)

    assert run.error["message"] == "A change id must not be empty."


def test_state_is_merged_kept_while_parked_and_readable_by_callers():
    @workflow(name="t.state")
    def progress(ctx):
        ctx.set_state(done=0, total=3)
        for n in range(3):
            ctx.wait_for_message("go")
            ctx.set_state(done=n + 1)
        ctx.set_state(self="me", note=("a", 1))

    run = progress.start()
    assert run.state == {}
    run_until_idle(run)
    assert WorkflowRun.objects.get(pk=run.pk).state == {"done": 0, "total": 3}
    for n in range(3):
        send_message(run, "go")
        run_until_idle(run)
        assert run.state["done"] == n + 1

    assert run.state == {"done": 3, "total": 3, "self": "me", "note": ("a", 1)}
    assert [each.kind for each in run.steps.all()] == ["message"] * 3


def test_state_is_not_set_back_while_replaying():
    seen = []

    @workflow(name="t.state")
    def progress(ctx):
        ctx.set_state(done=0)
        seen.append(WorkflowRun.objects.get(pk=ctx.run_id).state)
        ctx.step("one", lambda: None)
        ctx.set_state(done=1)
        ctx.sleep(1)

    run = progress.start()
    run_until_idle(run)
    wake(run)

    assert seen == [{"done": 0}, {"done": 1}]


def test_state_that_cannot_be_stored_fails_the_run_and_changes_nothing():
    @workflow(name="t.state")
    def progress(ctx):
        ctx.set_state(done=1)
        ctx.set_state(done=2, who=object())

    run = progress.start()
    run_until_idle(run)

    assert (run.status, run.error["type"]) == ("failed", "PayloadError")
    assert run.error["message"].startswith("state.who: an object instance can't be stored")
    assert run.state == {"done": 1}


def test_the_context_tells_the_run_its_ids_and_its_input_as_given():
    seen = []

    @workflow(name="t.ids")
    def ids(ctx, order_id, note="none"):
        seen.append((ctx.run_id, ctx.workflow_id, ctx.input, order_id, note))

    named = ids.using(workflow_id="order-7").start(order_id=(7, 8))
    plain = ids.start(order_id=7, note="n")
    run_until_idle(named)
    run_until_idle(plain)

    assert seen == [
        (named.pk, "order-7", {"order_id": (7, 8)}, (7, 8), "none"),
        (plain.pk, str(plain.pk), {"order_id": 7, "note": "n"}, 7, "n"),
    ]


def test_what_a_body_does_to_its_input_is_not_seen_by_the_next_pass():
    seen = []

    @workflow(name="t.input")
    def body(ctx, items):
        seen.append(list(items))
        items.append(1)
        ctx.input["items"].append(2)
        ctx.sleep(1)

    run = body.start(items=[0])
    run_until_idle(run)
    wake(run)

    assert seen == [[0], [0]]
    assert WorkflowRun.objects.get(pk=run.pk).input == {"items": [0]}


def test_is_replaying_is_true_until_the_record_ends():
    seen = []

    @workflow(name="t.replaying")
    def body(ctx):
        one = ctx.is_replaying
        ctx.step("one", lambda: None)
        two = ctx.is_replaying
        ctx.sleep(1)
        seen.append((one, two, ctx.is_replaying))
        ctx.sleep(1)

    run = body.start()
    run_until_idle(run)
    wake(run)
    wake(run)

    assert seen == [(True, True, False), (True, True, True)]


def test_the_logger_is_silent_while_replaying_and_names_run_workflow_and_step(caplog):
    @workflow(name="t.logging")
    def body(ctx):
        ctx.logger.info("begun %s", 1)
        ctx.step("charge", lambda: ctx.logger.warning("charging", extra={"amount": 3}))
        ctx.logger.info("charged")
        ctx.sleep(1)
        ctx.logger.info("slept")
        assert ctx.logger.isEnabledFor(logging.INFO)

    run = body.using(workflow_id="order-7").start()
    with caplog.at_level(logging.INFO, "django_workflows.run"):
        run_until_idle(run)
        wake(run)

    assert run.status == "completed"
    told = [record for record in caplog.records if record.name == "django_workflows.run"]
    assert [record.getMessage() for record in told] == ["begun 1", "charging", "charged", "slept"]
    assert [record.step for record in told] == [None, "charge", None, None]
    assert {(record.run_id, record.workflow_id, record.workflow) for record in told} == {
        (str(run.pk), "order-7", "t.logging")
    }
    assert told[1].amount == 3


def test_a_recorded_value_outlives_the_worker_that_recorded_it():
    seen = []
    deaths = [WorkerDied]

    @workflow(name="t.lost")
    def body(ctx):
        seen.append(ctx.uuid4())
        if deaths:
            raise deaths.pop()

    run = body.start()
    execute_until_death(run)
    run_until_idle(run)

    assert run.status == "completed"
    assert seen[0] == seen[1]
