"""Workflows for tests with real worker processes, which can't see a test's own functions."""

import ctypes
import os
import time
from datetime import timedelta
from pathlib import Path

from django_workflows import ChildFailed, RetryPolicy, StepFailed, step, workflow
from tests.lab.models import Effect
from tests.lab.races import announce


def effect(run, name, value="", seconds=0.0):
    """Leave a mark, then take some time."""
    Effect.objects.create(run=str(run), name=name, value=str(value), pid=os.getpid())
    if seconds:
        time.sleep(seconds)
    return value


@step(atomic=True)
def atomic_effect(run, name, value="", seconds=0.0):
    return effect(run, name, value, seconds)


def until_file(run, name, path):
    """Leave a mark, then wait for a file: a step that a test can hold."""
    effect(run, name)
    give_up = time.monotonic() + 60
    while not Path(path).exists() and time.monotonic() < give_up:
        time.sleep(0.01)
    effect(run, f"{name}-done")


def hold_interpreter(run, seconds):
    """Native code that holds the interpreter lock."""
    effect(run, "held")
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def spin(run, seconds):
    """Busy Python code."""
    effect(run, "spun")
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        pass


@workflow
def steps(ctx, count=3, seconds=0.0):
    return [ctx.step("step", effect, ctx.run_id, f"step-{n}", n, seconds) for n in range(count)]


@workflow
def atomic_steps(ctx, count=3, seconds=0.0):
    return [
        ctx.step("step", atomic_effect, ctx.run_id, f"step-{n}", n, seconds) for n in range(count)
    ]


@workflow
def wait_once(ctx, name="go", timeout=None, warm_up=0.0):
    if warm_up:
        ctx.step("warm-up", effect, ctx.run_id, "warm-up", "", warm_up)
    message = ctx.wait_for_message(name, timeout=timeout)
    return None if message is None else {"data": message.data}


@workflow
def wait_for_all(ctx, names):
    return [ctx.wait_for_message(name).data for name in names]


@workflow
def wait_many(ctx, count, name="go"):
    got = []
    for n in range(count):
        message = ctx.wait_for_message(name)
        got.append(message.data)
        ctx.step("took", effect, ctx.run_id, f"took-{n}", message.data)
    return got


@workflow
def nap(ctx, seconds):
    ctx.step("before", effect, ctx.run_id, "before")
    ctx.sleep(seconds)
    ctx.step("after", effect, ctx.run_id, "after")


@workflow
def held(ctx, path):
    """One step held by a file, and two after it."""
    ctx.step("first", until_file, ctx.run_id, "first", path)
    ctx.step("second", effect, ctx.run_id, "second")
    ctx.step("third", effect, ctx.run_id, "third")
    return "done"


@workflow
def busy(ctx, seconds, how):
    fn = {"spin": spin, "hold": hold_interpreter, "sleep": _sleep}[how]
    ctx.step("busy", fn, ctx.run_id, seconds)
    return how


def _sleep(run, seconds):
    effect(run, "slept", "", seconds)


def die(run):
    effect(run, "died")
    os.kill(os.getpid(), 9)


@workflow
def deadly(ctx, policy=None):
    """A step that kills its worker."""
    options = {} if policy is None else {"retry": RetryPolicy(max_attempts=policy)}
    ctx.step("die", step(die, **options), ctx.run_id)


@workflow
def deadly_once(ctx):
    ctx.step("die", step(die, at_most_once=True), ctx.run_id)


@workflow(timeout=timedelta(seconds=1))
def short_lived(ctx):
    ctx.wait_for_message("never")


@workflow(queue_name="slow")
def on_slow_queue(ctx):
    return ctx.step("step", effect, ctx.run_id, "step", "slow")


@workflow
def announced_wait(ctx, port):
    ctx.step("announce", announce, ctx.run_id, port)
    ctx.wait_for_message("go")


@workflow
def ticket(ctx):
    """Takes what has come, and ends."""
    said = [ctx.wait_for_message("reply").data]
    while (message := ctx.receive_message("reply")) is not None:
        said.append(message.data)
    return said


@workflow
def listen(ctx, name="news", timeout=None):
    delivery = ctx.wait_for_signal(name, timeout=timeout)
    return None if delivery is None else delivery.data


@workflow
def gate(ctx, timeout=None, exclude=None):
    decision = ctx.wait_for_approval("manager", timeout=timeout, exclude=exclude)
    return None if decision is None else [decision.approved, decision.by.text]


@workflow
def parent_of_one(ctx, policy="cancel"):
    """Awaits a child that awaits a message."""
    try:
        return ctx.run_child(wait_once, on_parent_close=policy)
    except ChildFailed as failed:
        return failed.status


@workflow
def nap_until(ctx, until):
    ctx.sleep_until(until)
    ctx.step("after", effect, ctx.run_id, "after")


@workflow
def late(ctx, seconds, timeout):
    """A step that takes longer than it may."""
    options = step(_sleep, timeout=timeout, retry=RetryPolicy(max_attempts=1))
    try:
        ctx.step("late", options, ctx.run_id, seconds)
    except StepFailed as failed:
        return failed.type


def die_once(run):
    effect(run, "begun")
    if Effect.objects.filter(run=str(run), name="begun").count() == 1:
        os.kill(os.getpid(), 9)
    return "survived"


@workflow
def shaken(ctx):
    """A step in which its first worker dies."""
    return ctx.step("die", die_once, ctx.run_id)


if "LAB_WITHOUT_RARE" not in os.environ:

    @workflow
    def rare(ctx):
        return ctx.step("step", effect, ctx.run_id, "rare", "done")
