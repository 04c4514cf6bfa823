"""Workflows of the kill matrix, and the callers that fail beside them."""

import os
import signal
import time
from contextlib import suppress
from datetime import timedelta

from django_workflows import (
    NonRetryableError,
    RetryPolicy,
    StepFailed,
    WorkflowAlreadyStarted,
    approve,
    cancel,
    rerun,
    resume,
    send_message,
    send_signal,
    signal_with_start,
    step,
    workflow,
)
from tests.lab.callers import configure, persistently
from tests.lab.models import Effect

QUICK = RetryPolicy(max_attempts=20, initial_interval=timedelta(milliseconds=5), jitter=False)


def leave(run, name):
    """An effect that counts."""
    Effect.objects.create(run=str(run), name=name, pid=os.getpid())
    return name


@step(atomic=True)
def leave_atomically(run, name):
    return leave(run, name)


def fail_once(run):
    leave(run, "flaky")
    if Effect.objects.filter(run=str(run), name="flaky").count() == 1:
        raise NonRetryableError("the first time")


@step(retry=QUICK)
def stumble(run):
    leave(run, "stumble")
    if Effect.objects.filter(run=str(run), name="stumble").count() == 1:
        raise ConnectionError("the first time")


def stop_own_worker(run):
    """Have the worker stopped in order while it is in a step."""
    leave(run, "stopper")
    if Effect.objects.filter(run=str(run), name="stopper").count() == 1:
        os.kill(os.getpid(), signal.SIGTERM)
        # The main thread has to hear of it before this step's run goes on.
        time.sleep(0.5)


@workflow(name="saga.leaf")
def leaf(ctx):
    ctx.step("leaf", leave, ctx.run_id, "leaf")
    return "leaf"


@workflow(name="saga.forever")
def forever(ctx):
    ctx.wait_for_message("never")


@workflow(name="saga.work", retry=QUICK)
def work(ctx):
    """Steps of every kind, and a body that is tried again."""
    ctx.set_state(done=1)
    ctx.step("plain", leave, ctx.run_id, "plain")
    ctx.step("atomic", leave_atomically, ctx.run_id, "atomic")
    try:
        ctx.step("once", step(leave, at_most_once=True), ctx.run_id, "once")
    except StepFailed as failed:
        if failed.type != "OutcomeUnknown":
            raise
    ctx.step("stumble", stumble, ctx.run_id)
    ctx.step("flaky", fail_once, ctx.run_id)
    ctx.sleep(0.01)
    return [ctx.step("last", leave, ctx.run_id, "last"), ctx.patched("change")]


@workflow(name="saga.waits")
def waits(ctx):
    """Waits of every kind."""
    early = ctx.wait_for_message("early").data
    nothing = ctx.receive_message("nothing")
    none = ctx.wait_for_message("nothing", timeout=0)
    late = ctx.wait_for_message("late").data
    rung = ctx.wait_for_signal(f"bell:{ctx.workflow_id}").data
    decision = ctx.wait_for_approval("gate")
    return [early, nothing, none, late, rung, decision.data]


@workflow(name="saga.inbox")
def inbox(ctx, count):
    """Many messages one after the other, which are read ahead and taken together."""
    got = [ctx.wait_for_message("m").data for _ in range(count)]
    ctx.step("last", leave, ctx.run_id, "last")
    return got


@workflow(name="saga.family")
def family(ctx):
    """A child that is waited for, one that is sent to, and one that is closed at the end."""
    open_child = ctx.start_child(forever, {})
    ctx.send_message(open_child.run_id, "note", "from the parent")
    return [ctx.run_child(leaf, {}), str(open_child.run_id)]


@workflow(name="saga.stopped")
def stopped(ctx):
    ctx.step("stopper", stop_own_worker, ctx.run_id)
    ctx.step("last", leave, ctx.run_id, "last")
    return "last"


@workflow(name="saga.wait")
def wait(ctx):
    return ctx.wait_for_message("go").data


@workflow(name="saga.listen")
def listen(ctx):
    return ctx.wait_for_signal("bell").data


@workflow(name="saga.ask")
def ask(ctx):
    return ctx.wait_for_approval("gate").data


@workflow(name="saga.broken")
def broken(ctx, worked=False):
    ctx.step("before", leave, ctx.workflow_id, "before")
    ctx.step("breaks", step(_break, retry=RetryPolicy(max_attempts=1)), ctx.workflow_id)
    return "mended"


def _break(workflow_id):
    leave(workflow_id, "breaks")
    if Effect.objects.filter(run=workflow_id, name="breaks").count() == 1:
        raise ConnectionError("the first time")


# What a careful caller does: the same call again, with the same key, until it has an answer.


def call_start(workflow_id):
    persistently(leaf.using(workflow_id=workflow_id).start)


def call_cancel(run):
    persistently(cancel, run)


def call_wake(run):
    from uuid import UUID

    from django_workflows.store import runs

    persistently(runs.wake, UUID(run))


def call_send(run):
    persistently(send_message, run, "go", 1, idempotency_key="once")


def call_signal(run):
    persistently(send_signal, "bell", 1, idempotency_key=run)


def call_signal_with_start(workflow_id):
    given = {"workflow_id": workflow_id, "name": "go", "data": 1, "idempotency_key": "once"}
    persistently(signal_with_start, wait, **given)


def call_approve(run):
    from django.contrib.auth.models import User

    by = persistently(User.objects.get, username="ann")
    persistently(approve, run, "gate", by=by, data=1, idempotency_key="once")


def call_rerun(run):
    # An open one: nobody heard that the first try was committed.
    with suppress(WorkflowAlreadyStarted):
        persistently(rerun, run)


def call_resume(run):
    # A claim whose answer was lost stays until its lease is over.
    configure(LEASE_SECONDS=1)
    persistently(resume, run)


def call_purge(_run):
    from django.core.management import call_command

    persistently(call_command, "purgeworkflows", "--older-than", "1d", verbosity=0)
