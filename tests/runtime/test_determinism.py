"""A replay whose calls differ from the record: nothing is done, and the run waits for its code."""

import logging
from datetime import timedelta

import pytest

from django_workflows import NonDeterminismError, send_message, workflow
from django_workflows.models import WorkflowRun
from django_workflows.registry import registry
from django_workflows.testing import advance, run_until_idle

pytestmark = pytest.mark.django_db

NAME = "t.changing"
HINT = "Deploy code that matches the record, or guard the change with ctx.patched()."


class Counter:
    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return self.calls


def deploy(body):
    """Make `body` the code of the one workflow of these tests, as a deploy would."""
    registry.unregister(NAME, "1")
    return workflow(name=NAME)(body)


def original(ctx):
    ctx.step("a", lambda: "a")
    data = ctx.wait_for_message("approval").data
    ctx.sleep(1)
    return data


def at_the_sleep():
    """A run with step "a" and a consumed "approval" in its record, asleep."""
    run = deploy(original).start()
    send_message(run, "approval", {"ok": True})
    run_until_idle(run)
    assert (run.status, run.steps.count()) == ("suspended", 3)
    return run


def wake(run, seconds=2):
    advance(timedelta(seconds=seconds))
    run_until_idle(run)
    return run


# https://github.com/dbos-inc/dbos-transact-py/pull/715
# https://github.com/aws/aws-durable-execution-sdk-python/pull/698
# https://github.com/microsoft/durabletask-mssql/issues/211
def test_a_wait_for_another_name_gets_neither_the_recorded_data_nor_a_message():
    run = at_the_sleep()
    pending = send_message(run, "payment", "p")
    got = []

    @deploy
    def changed(ctx):
        ctx.step("a", lambda: "a")
        got.append(ctx.wait_for_message("payment"))

    wake(run)

    text = (
        "Replay differs from the record at position 1: recorded message 'approval', but the code "
        f"asked for message 'payment'. {HINT}"
    )
    assert (run.status, run.problem, run.error, got) == ("pending", text, None, [])
    pending.refresh_from_db()
    assert pending.consumed_by is None
    assert run.steps.count() == 3


AFTER_A = "Replay differs from the record at position 1: recorded message 'approval', but the code"


def with_another_kind(ctx):
    ctx.step("a", lambda: "a")
    ctx.sleep(5)


def with_another_name(ctx):
    ctx.step("b", lambda: "b")


def with_a_new_step_between(ctx):
    ctx.step("a", lambda: "a")
    ctx.step("check", fresh)


def with_an_end_too_early(ctx):
    return ctx.step("a", lambda: "a")


def with_an_error_too_early(ctx):
    ctx.step("a", lambda: "a")
    raise ValueError("new code")


fresh = Counter()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (with_another_kind, f"{AFTER_A} asked for sleep 'sleep'."),
        (
            with_another_name,
            "Replay differs from the record at position 0: recorded step 'a', but the code asked "
            "for step 'b'.",
        ),
        (with_a_new_step_between, f"{AFTER_A} asked for step 'check'."),
        (with_an_end_too_early, f"{AFTER_A} asked for nothing more."),
        (with_an_error_too_early, f"{AFTER_A} asked for nothing more."),
    ],
)
def test_each_kind_of_difference_names_position_and_both_calls(body, text):
    run = at_the_sleep()
    deploy(body)
    wake(run)

    assert (run.status, run.problem) == ("pending", f"{text} {HINT}")
    assert (run.result, run.error, run.finished_at) == (None, None, None)
    assert fresh.calls == 0
    assert run.steps.count() == 3


def test_a_difference_before_a_wait_that_is_still_open_is_seen_too():
    run = deploy(original).start()
    run_until_idle(run)

    @deploy
    def changed(ctx):
        ctx.step("a", lambda: "a")
        ctx.step("check", fresh)

    send_message(run, "approval", 1)
    run_until_idle(run)

    assert run.problem == f"{AFTER_A} asked for step 'check'. {HINT}"
    assert (fresh.calls, run.messages.pending().count()) == (0, 1)


def test_a_body_that_catches_the_error_gets_it_again_and_nothing_is_done():
    run = at_the_sleep()
    caught = []

    @deploy
    def catching(ctx):
        calls = [
            lambda: ctx.step("b", fresh),
            lambda: ctx.step("a", fresh),
            lambda: ctx.sleep(0),
            lambda: ctx.now(),
            lambda: ctx.uuid4(),
            lambda: ctx.random(),
            lambda: ctx.patched("p"),
            lambda: ctx.set_state(a=1),
            lambda: ctx.wait_for_message("approval"),
            lambda: ctx.receive_message("approval"),
            lambda: ctx.send_message(ctx.run_id, "approval"),
        ]
        for call in calls:
            try:
                call()
            except NonDeterminismError as error:
                caught.append((error.position, error.recorded, error.asked))
        return "done"

    wake(run)

    assert caught == [(0, "step 'a'", "step 'b'")] * 11
    assert (run.status, run.result, run.state, fresh.calls) == ("pending", None, {}, 0)
    assert (run.messages.count(), run.steps.count()) == (1, 3)


def test_the_run_backs_off_less_and_less_often_and_goes_on_with_matching_code(caplog):
    run = at_the_sleep()
    deploy(with_another_name)
    for _ in range(12):
        before = run.claim_count
        wake(run, 400)
        assert run.claim_count == before + 1
    assert run.problem_count == 12
    assert [run.pk] == [each.pk for each in WorkflowRun.objects.stuck()]
    records = [each for each in caplog.records if "run.nondeterministic" in each.getMessage()]
    assert len(records) == 12
    assert {each.levelno for each in records} == {logging.ERROR}

    deploy(original)
    wake(run, 400)

    assert (run.status, run.result) == ("completed", {"ok": True})
    assert (run.problem, run.problem_count, run.attempts) == ("", 0, 1)
    assert not WorkflowRun.objects.stuck().exists()


def test_the_back_off_starts_at_a_second_and_ends_at_five_minutes():
    run = at_the_sleep()
    deploy(with_another_name)
    wake(run)
    for delay in (1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300):
        claims = run.claim_count
        wake(run, delay - 0.9)
        assert run.claim_count == claims
        wake(run, 1)
        assert run.claim_count == claims + 1


def test_a_new_step_guarded_by_patched_is_skipped_by_old_runs_and_run_once_by_new_ones():
    guarded = Counter()

    def changed(ctx):
        ctx.step("a", lambda: "a")
        if ctx.patched("check"):
            ctx.step("check", guarded)
        data = ctx.wait_for_message("approval").data
        ctx.sleep(1)
        return data

    old = at_the_sleep()
    new = deploy(changed).start()
    send_message(new, "approval", "new")
    run_until_idle(new)
    wake(old)
    wake(new)

    assert (old.result, new.result, guarded.calls) == ({"ok": True}, "new", 1)
    assert not old.steps.filter(kind="patch").exists()


def test_new_calls_after_the_end_of_the_record_are_no_difference():
    run = at_the_sleep()

    @deploy
    def longer(ctx):
        data = original(ctx)
        return [data, ctx.step("more", lambda: "more")]

    assert wake(run).result == [{"ok": True}, "more"]


def test_a_step_may_do_something_else_under_its_name():
    run = at_the_sleep()

    @deploy
    def changed(ctx):
        got = ctx.step("a", fresh)
        ctx.wait_for_message("approval")
        ctx.sleep(500)
        return got

    assert wake(run).result == "a"
    assert fresh.calls == 0


def test_the_error_carries_what_it_says():
    error = NonDeterminismError(3, None, "step 'b'")

    assert (error.position, error.recorded, error.asked) == (3, None, "step 'b'")
    assert str(error) == (
        "Replay differs from the record at position 3: recorded nothing more, but the code asked "
        f"for step 'b'. {HINT}"
    )
