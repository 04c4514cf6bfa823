"""Replay of records against changed code, before a deploy: `check_replay` and `checkreplay`."""

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_workflows import NonDeterminismError, WorkflowNotRegistered, send_message, workflow
from django_workflows.models import WorkflowMessage, WorkflowRun, WorkflowStep
from django_workflows.registry import registry
from django_workflows.runtime import dry_replay
from django_workflows.testing import (
    check_replay,
    export_history,
    replay_every_step,
    run_until_idle,
)
from tests.failing import once
from tests.lab import workflows as lab

pytestmark = pytest.mark.django_db

NAME = "t.replayed"
calls = []


def work(value):
    calls.append(value)
    return value


def deploy(body, name=NAME, **options):
    """Make `body` the code of the workflow, as a deploy would."""
    registry.unregister(name, "1")
    return workflow(name=name, **options)(body)


def original(ctx, order=1):
    ctx.now()
    ctx.step("charge", work, order)
    ctx.set_state(done=1)
    got = ctx.wait_for_message("go")
    ctx.step("ship", work, got.data)
    ctx.wait_for_message("never")
    return order


def renamed(ctx, order=1):
    ctx.now()
    ctx.step("pay", work, order)


def shortened(ctx, order=1):
    ctx.now()
    ctx.step("charge", work, order)
    return order


def longer(ctx, order=1):
    original(ctx, order)
    ctx.step("more", work, 1)


def inserted(ctx, order=1):
    ctx.now()
    ctx.step("charge", work, order)
    ctx.step("check", work, order)
    ctx.wait_for_message("go")


def guarded(ctx, order=1):
    ctx.now()
    ctx.step("charge", work, order)
    if ctx.patched("check-first"):
        ctx.step("check", work, order)
    got = ctx.wait_for_message("go")
    ctx.step("ship", work, got.data)
    ctx.wait_for_message("never")


def broken(ctx, order=1):
    ctx.now()
    raise LookupError("a fault of the new code")


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


def recorded():
    """A run that waits for the second message, with five entries of its record."""
    run = deploy(original).start(order=7)
    send_message(run, "go", 8)
    run_until_idle(run)
    assert run.status == "suspended"
    calls.clear()
    return run


def snapshot():
    """All that a replay might write."""
    tables = (WorkflowRun, WorkflowStep, WorkflowMessage)
    return [list(table.objects.order_by("pk").values()) for table in tables]


def through_json(run):
    return json.loads(json.dumps(export_history(run)))


@pytest.mark.parametrize("code", [original, longer, guarded])
def test_code_that_goes_on_from_the_record_passes_and_calls_nothing(code):
    run = recorded()
    history, before = through_json(run), snapshot()
    check_replay(deploy(code), history)
    check_replay(NAME, history)
    assert (calls, snapshot()) == ([], before)


@pytest.mark.parametrize(
    ("code", "asked"),
    [(renamed, "pay"), (shortened, "go"), (inserted, "check"), (broken, "charge")],
)
def test_code_that_diverges_is_refused_and_calls_nothing(code, asked):
    run = recorded()
    history, before = through_json(run), snapshot()
    with pytest.raises(NonDeterminismError, match=asked):
        check_replay(deploy(code), history)
    assert (calls, snapshot()) == ([], before)


def test_failed_steps_and_timed_out_waits_replay_as_recorded():
    def body(ctx):
        try:
            ctx.step("fails", once(lambda: 1 / 0))
        except Exception as error:
            assert ctx.wait_for_message("x", timeout=0) is None
            ctx.step("after", work, str(error))
        ctx.wait_for_signal("never")

    run = deploy(body).start()
    run_until_idle(run)
    calls.clear()
    check_replay(NAME, through_json(run))
    assert calls == []


def test_an_ended_run_and_one_that_never_began_replay_too():
    run = lab.steps.start(count=2)
    check_replay(lab.steps, through_json(run))
    run_until_idle(run)
    check_replay(lab.steps, through_json(run))


def test_a_history_of_another_format_is_refused():
    history = {**export_history(recorded()), "format": 99}
    with pytest.raises(ValueError, match=r"is of format 99, not 1\. Export it again\."):
        check_replay(NAME, history)


def test_a_history_of_an_unknown_workflow_is_refused():
    history = export_history(recorded())
    registry.unregister(NAME, "1")
    with pytest.raises(WorkflowNotRegistered):
        check_replay(NAME, history)


def command(*arguments):
    """Exit status and output lines."""
    out = StringIO()
    try:
        call_command("checkreplay", *arguments, stdout=out, no_color=True)
    except SystemExit as ended:
        return ended.code, out.getvalue().splitlines()
    return 0, out.getvalue().splitlines()


def test_the_command_names_each_run_that_would_not_go_on_and_writes_nothing():
    run, well = recorded(), lab.wait_once.start()
    run_until_idle(well)
    ended = lab.steps.start(count=1)
    run_until_idle(ended)
    assert command() == (0, ["2 open runs checked, 0 would not go on."])

    deploy(renamed)
    before = snapshot()
    with CaptureQueriesContext(connection) as queries:
        status, lines = command()
    assert status == 1
    assert lines[-1] == "2 open runs checked, 1 would not go on."
    assert lines[0].startswith(f"{run.pk} ")
    assert "charge" in lines[0]
    assert "pay" in lines[0]
    assert snapshot() == before
    verbs = {query["sql"].split()[0].upper() for query in queries}
    assert verbs <= {"SELECT", "DECLARE", "FETCH", "CLOSE", "SAVEPOINT", "RELEASE"}


def test_the_command_can_be_told_which_workflows_to_look_at():
    recorded()
    deploy(renamed)
    lab.wait_once.start()
    name = lab.wait_once.definition.name
    assert command("--workflow", name) == (0, ["1 open runs checked, 0 would not go on."])
    assert command("--workflow", NAME)[0] == 1


def test_the_command_reports_runs_of_unknown_workflows():
    run = recorded()
    registry.unregister(NAME, "1")
    status, lines = command()
    assert status == 1
    assert str(run.pk) in lines[0]
    assert NAME in lines[0]


def test_one_unreadable_run_does_not_end_the_look_at_the_others():
    run = recorded()
    WorkflowRun.objects.filter(pk=run.pk).update(input=dry_replay.payloads.Encoded("{no json"))
    other = recorded()
    deploy(renamed)
    status, lines = command()
    assert status == 1
    assert {line.split()[0] for line in lines[:-1]} == {str(run.pk), str(other.pk)}


def test_replaying_every_step_finds_a_body_that_isnt_deterministic():
    seen = []

    def drifting(ctx):
        seen.append(1)
        ctx.step(f"step-{len(seen)}", work, 1)
        ctx.step("last", work, 2)

    run = deploy(drifting).start()
    with replay_every_step(), pytest.raises(NonDeterminismError):
        run_until_idle(run)


def test_replaying_every_step_calls_each_step_once_and_ends_the_run():
    run = lab.atomic_steps.start(count=3)
    child_of = deploy(lambda ctx: ctx.run_child(lab.steps, {"count": 2}), name="t.parent").start()
    with replay_every_step():
        run_until_idle(run, child_of)
    assert (run.status, child_of.status) == ("completed", "completed")
    assert lab.Effect.objects.filter(run=run.pk).count() == 3
