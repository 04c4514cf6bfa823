"""Workflows of the storm. Plain steps leave a line in a file, atomic ones a row."""

import json
import os
import random
import time
from datetime import timedelta

from django_workflows import RetryPolicy, step, workflow
from tests.lab.models import Effect

SHAKY = RetryPolicy(
    max_attempts=0, initial_interval=timedelta(milliseconds=30), max_interval=timedelta(seconds=1)
)


def write_line(path, told):
    """One line in one system call, so that a kill leaves all of it or nothing."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, json.dumps(told).encode() + b"\n")
    finally:
        os.close(file)


def mark(run, key):
    """An effect outside of the database, at a time that can be compared with its record's."""
    told = {"run": str(run), "key": key, "at": time.time(), "pid": os.getpid()}
    write_line(os.environ["STORM_LOG"], told)
    return key


def shaky_mark(run, key):
    mark(run, key)
    if random.random() < 0.1:
        raise ConnectionError("try again")
    return key


@step(atomic=True)
def atomic_mark(run, key):
    Effect.objects.create(run=str(run), name=key, pid=os.getpid())
    return key


@workflow(name="storm.talk")
def talk(ctx, names):
    """Messages of several names in a given order, and work after each."""
    got = []
    for n, name in enumerate(names):
        got.append([name, ctx.wait_for_message(name).data["n"]])
        ctx.step(f"plain-{n}", step(shaky_mark, retry=SHAKY), ctx.run_id, f"plain-{n}")
        ctx.step(f"atomic-{n}", atomic_mark, ctx.run_id, f"atomic-{n}")
        if n % 3 == 2:
            ctx.sleep(0.03)
    return got


@workflow(name="storm.bulk")
def bulk(ctx, names):
    """The same without work in between: messages are read ahead and taken together."""
    got = [[name, ctx.wait_for_message(name).data["n"]] for name in names]
    ctx.step("atomic-0", atomic_mark, ctx.run_id, "atomic-0")
    return got


@workflow(name="storm.leaf")
def leaf(ctx, count):
    for n in range(count):
        ctx.step(f"plain-{n}", mark, ctx.run_id, f"plain-{n}")
    return count


@workflow(name="storm.family")
def family(ctx, children):
    handles = [ctx.start_child(leaf, {"count": 2}) for _ in range(children)]
    ctx.step("atomic-0", atomic_mark, ctx.run_id, "atomic-0")
    return [handle.result() for handle in handles]


@workflow(name="storm.gate")
def gate(ctx):
    decision = ctx.wait_for_approval("gate")
    ctx.step("plain-0", mark, ctx.run_id, "plain-0")
    return decision.data


@workflow(name="storm.bell")
def bell(ctx):
    rung = ctx.wait_for_signal("bell")
    ctx.step("plain-0", mark, ctx.run_id, "plain-0")
    return rung.data


@workflow(name="storm.ticket")
def ticket(ctx):
    """Notes until one of them closes it; started by whoever sends the first."""
    count = 0
    while True:
        note = ctx.wait_for_message("note").data
        ctx.step(f"plain-{count}", mark, ctx.run_id, f"plain-{count}")
        count += 1
        if note["close"]:
            return count
