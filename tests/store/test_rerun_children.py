"""Reruns of parents: what becomes of the children that the old run has started."""

import pytest

from django_workflows import rerun, send_message, workflow
from django_workflows.models import WorkflowRun
from django_workflows.testing import run_until_idle
from tests.failing import Effects, once

pytestmark = pytest.mark.django_db


@pytest.fixture
def effects():
    return Effects()


@pytest.fixture
def family(effects):
    """A parent of two children, of which the second does what `effects` says."""

    @workflow(name="t.child")
    def child(ctx, name):
        return ctx.step(name, once(effects.do), name, name)

    @workflow(name="t.parent")
    def parent(ctx):
        got = [ctx.run_child(child, {"name": name}) for name in ("first", "second")]
        ctx.step("ship", once(effects.do), "ship")
        return got

    return parent


def test_a_child_that_failed_is_started_again_and_one_that_completed_is_not(family, effects):
    effects.broken = {"second"}
    run = family.start()
    run_until_idle()
    run.refresh_from_db()
    assert run.error["type"] == "ChildFailed"
    effects.broken = set()
    effects.calls.clear()
    again = rerun(run)
    run_until_idle()
    again.refresh_from_db()

    assert (again.status, again.result) == ("completed", ["first", "second"])
    assert effects.calls == ["second", "ship"]
    assert (run.children.count(), again.children.count()) == (2, 1)


def test_results_of_children_are_copied(family, effects):
    effects.broken = {"ship"}
    run = family.start()
    run_until_idle()
    effects.broken = set()
    effects.calls.clear()
    again = rerun(run)
    run_until_idle()
    again.refresh_from_db()

    assert (again.result, effects.calls) == (["first", "second"], ["ship"])
    assert not again.children.exists()


@pytest.mark.parametrize("policy", ["cancel", "abandon"])
def test_a_child_that_was_started_and_not_awaited_yet_still_gives_its_result(effects, policy):
    @workflow(name="t.child")
    def child(ctx):
        return ctx.wait_for_message("go").data

    @workflow(name="t.parent")
    def parent(ctx):
        ctx.step("charge", effects.do, "charge")
        handle = ctx.start_child(child, on_parent_close=policy)
        ctx.step("pack", effects.do, "pack")
        ctx.step("ship", once(effects.do), "ship")
        return handle.result()

    effects.broken = {"ship"}
    run = parent.start()
    run_until_idle()
    effects.broken = set()
    again = rerun(run)
    run_until_idle()
    send_message(WorkflowRun.objects.filter(workflow_name="t.child").open().get(), "go", 7)
    run_until_idle()
    again.refresh_from_db()

    assert (again.status, again.result) == ("completed", 7)
    assert effects.calls == ["charge", "pack", "ship", "ship"]


def test_children_of_a_fan_out_go_on_and_none_does_its_completed_steps_again(effects):
    @workflow(name="t.child")
    def child(ctx, name):
        ctx.step("begin", effects.do, f"{name} begins")
        return ctx.step("end", once(effects.do), f"{name} ends", name)

    @workflow(name="t.parent")
    def parent(ctx):
        handles = [ctx.start_child(child, {"name": name}) for name in "abc"]
        return [handle.result() for handle in handles]

    effects.broken = {"b ends"}
    run = parent.start()
    run_until_idle()
    old = list(run.children.order_by("id"))
    assert [each.status for each in old] == ["completed", "failed", "completed"]
    effects.broken = set()
    effects.calls.clear()
    again = rerun(run)
    run_until_idle()
    again.refresh_from_db()

    assert (again.status, again.result, effects.calls) == ("completed", list("abc"), ["b ends"])
    assert again.children.get().rerun_of == old[1]
    assert run.children.count() == 3


def test_two_reruns_of_one_run_do_not_share_an_open_child(effects):
    @workflow(name="t.child")
    def child(ctx):
        return ctx.wait_for_message("go").data

    @workflow(name="t.parent")
    def parent(ctx):
        handle = ctx.start_child(child, on_parent_close="abandon")
        ctx.step("ship", once(effects.do), "ship")
        return handle.result()

    effects.broken = {"ship"}
    run = parent.start()
    run_until_idle()
    effects.broken = set()
    reruns = [rerun(run), rerun(run)]
    run_until_idle()
    for n, again in enumerate(reruns):
        send_message(again.children.get(), "go", n)
    run_until_idle(*reruns)

    assert [again.result for again in reruns] == [0, 1]
