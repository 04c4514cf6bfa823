"""The workflows of the benchmark: no-op steps, one wait, a consumer, a long run."""

import json
import time

from django_workflows import workflow


def noop(value):
    return value


@workflow(name="three")
def three(ctx, n):
    for i in range(3):
        ctx.step(f"s{i}", noop, i)
    return n


@workflow(name="wait")
def wait(ctx):
    return ctx.wait_for_message("go").data


@workflow(name="consume")
def consume(ctx, m):
    for i in range(m):
        assert ctx.wait_for_message("m").data == i
    return m


@workflow(name="long")
def long(ctx, n):
    marks = [time.monotonic()]
    for i in range(n):
        ctx.step(f"s{i}", noop, i)
        if (i + 1) % 50 == 0:
            marks.append(time.monotonic())
    print(json.dumps({"marks": marks}), flush=True)
    ctx.wait_for_message("go")
    return n
