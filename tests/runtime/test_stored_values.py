"""Payloads and errors on their way through runs, messages, steps and results."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.utils.translation import gettext_lazy

from django_workflows import (
    NonRetryableError,
    PayloadError,
    RetryPolicy,
    StepFailed,
    send_message,
    step,
    workflow,
)
from django_workflows.models import WorkflowMessage, WorkflowRun
from django_workflows.testing import advance, run_until_idle
from tests.lab.models import Thing

pytestmark = pytest.mark.django_db

NASTY = "a\x00b \U0001f680 \ud800 \u2028"


def through_everything(value):
    """What comes back of `value` as input, message, step result and run result, by place."""
    seen = {}

    @workflow(name="t.places")
    def body(ctx, given):
        seen["input"] = given
        seen["message"] = ctx.wait_for_message("go").data
        seen["step"] = ctx.step("step", lambda: value)
        ctx.set_state(state=value)
        return value

    run = body.start(given=value)
    send_message(run, "go", value)
    run_until_idle(run)
    assert run.status == "completed", run.error
    run = WorkflowRun.objects.get(pk=run.pk)
    return {
        **seen,
        "run.input": run.input["given"],
        "run.messages": run.messages.get().data,
        "run.steps": run.steps.get(key="step").result,
        "run.state": run.state["state"],
        "run.result": run.result,
    }


# https://github.com/kestra-io/kestra/pull/10653
# https://github.com/osbuild/osbuild-composer/pull/4779
# https://github.com/RealOrangeOne/django-tasks/issues/118
# https://github.com/django/django-rest-framework/issues/747
@pytest.mark.parametrize(
    "value",
    [
        {"log": NASTY, NASTY: NASTY},
        Decimal("1.10"),
        datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        UUID(int=5),
        b"\x00\xff",
        {1, 2},
        [math.inf, -math.inf, -0.0, 1e16, 2**70],
        [{"z": 1, "a": (2, frozenset({3}))}],
        # What looks like a tag of the format is a value like any other.
        {"$": "decimal", "v": "1"},
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_a_value_comes_back_equal_and_of_the_same_type_from_every_place(value):
    for place, got in through_everything(value).items():
        assert (got, type(got), repr(got)) == (value, type(value), repr(value)), place


# https://github.com/ZJU-REAL/Polaris/issues/287
def test_not_a_number_comes_back_as_such():
    assert all(math.isnan(got) for got in through_everything(math.nan).values())


@dataclass
class Amount:
    amount: Decimal


def deep():
    value = []
    for _ in range(5000):
        value = [value]
    return value


def cyclic():
    value = []
    value.append(value)
    return value


REFUSED = {
    "lazy text": (lambda: {"a": [gettext_lazy("yes")]}, "a[0]: a lazy text can't be stored"),
    "model": (lambda: {"a": Thing(name="x")}, "a: a Thing instance can't be stored; pass its pk"),
    "dataclass": (lambda: {"a": Amount(Decimal(1))}, "a: an Amount instance can't be stored"),
    "deep": (deep, ""),
    "cyclic": (cyclic, ""),
    "object": (object, ""),
}


# https://github.com/RealOrangeOne/django-tasks/issues/23
# https://github.com/dbos-inc/dbos-transact-py/pull/744
@pytest.mark.parametrize("kind", REFUSED)
def test_at_start_and_send_a_value_that_cannot_be_stored_is_raised_and_nothing_stored(kind):
    make, text = REFUSED[kind]

    @workflow(name="t.refused")
    def body(ctx, given=None):
        return None

    with pytest.raises(PayloadError) as at_start:
        body.start(given=make())
    assert not WorkflowRun.objects.exists()
    run = body.start()
    with pytest.raises(PayloadError) as at_send:
        send_message(run, "go", make())

    assert not WorkflowMessage.objects.exists()
    assert f"input.given{'.' + text if text else ''}" in str(at_start.value)
    assert f"data{'.' + text if text else ''}" in str(at_send.value)
    run_until_idle(run)
    assert run.status == "completed"


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("where", ["step", "run"])
def test_as_a_result_it_fails_the_run_after_one_call(kind, where):
    make, text = REFUSED[kind]
    calls = []

    def made():
        calls.append(1)
        return make()

    @workflow(name="t.refused")
    def body(ctx):
        return made() if where == "run" else ctx.step("made", made)

    run = body.start()
    run_until_idle(run)
    advance(timedelta(hours=1))
    run_until_idle(run)

    assert (run.status, run.result, len(calls)) == ("failed", None, 1)
    assert run.error["type"] == ("PayloadError" if where == "run" else "StepFailed")
    place = "result of the workflow" if where == "run" else "result of step 'made'"
    assert f"{place}{'.' + text if text else ''}" in run.error["message"]
    assert len(run.error["message"]) < 5000


def test_a_payload_over_the_limit_is_refused_before_anything_is_written(settings):
    settings.DJANGO_WORKFLOWS = {"MAX_PAYLOAD_BYTES": 100}

    @workflow(name="t.large")
    def body(ctx, given=""):
        return None

    with pytest.raises(PayloadError, match=r"^input: .* MAX_PAYLOAD_BYTES \(100\)"):
        body.start(given="x" * 100)
    run = body.start()
    with pytest.raises(PayloadError, match=r"^data: "):
        send_message(run, "go", "x" * 100)

    assert not run.messages.exists()


class Coded(Exception):
    def __init__(self, code, *, why):
        self.code, self.why = code, why
        super().__init__(code)

    def __str__(self):
        return f"{self.code}: {self.why}"


class Unprintable(Exception):
    def __str__(self):
        raise LookupError("no text")


# https://github.com/dbos-inc/dbos-transact-py/pull/371
@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: Coded(7, why="declined"), "Coded", "7: declined"),
        (Unprintable, "Unprintable", "<Unprintable.__str__ raised LookupError>"),
        (
            lambda: ValueError("x" * 1_000_000),
            "ValueError",
            "x" * 10_000 + "… (cut; 1,000,000 characters in all)",
        ),
        (lambda: ValueError(NASTY), "ValueError", "a\ufffdb \U0001f680 \ufffd \u2028"),
    ],
    ids=["own init", "unprintable", "huge", "nasty"],
)
@pytest.mark.parametrize("where", ["step", "body", "caught"])
def test_an_exception_is_kept_as_readable_text_whatever_it_is(make, kind, message, where):
    calls = []

    def fail():
        calls.append(1)
        raise make()

    @workflow(name="t.fails")
    def body(ctx):
        if where == "body":
            fail()
        try:
            ctx.step("fail", step(fail, retry=RetryPolicy(max_attempts=1)))
        except StepFailed as failed:
            if where == "step":
                raise
            return [failed.type, failed.message]

    run = body.start()
    run_until_idle(run)
    run = WorkflowRun.objects.get(pk=run.pk)

    if where == "caught":
        assert run.result == [kind, message]
        error = run.steps.get().error
    else:
        assert run.status == "failed"
        error = run.steps.get().error if where == "step" else run.error
    assert (error["type"], error["message"]) == (kind, message)
    assert "in fail" in error["traceback"]
    assert len(error["traceback"]) < 60_000
    # A page must be able to send all of it.
    assert all(text.encode() for each in filter(None, (run.error, error)) for text in each.values())
    assert len(calls) == 1


def test_a_run_that_failed_with_a_nasty_error_does_not_stop_the_next():
    @workflow(name="t.nasty")
    def nasty(ctx):
        raise Unprintable

    @workflow(name="t.next")
    def following(ctx):
        return "done"

    runs = [nasty.start(), following.start()]
    run_until_idle()

    assert [WorkflowRun.objects.get(pk=run.pk).status for run in runs] == ["failed", "completed"]


def test_the_mended_text_of_a_failed_step_is_the_same_on_replay():
    seen = []

    def fail():
        raise NonRetryableError(NASTY)

    @workflow(name="t.nasty_step")
    def body(ctx):
        try:
            ctx.step("fail", fail)
        except StepFailed as failed:
            seen.append(str(failed))
        ctx.sleep(1)

    run = body.start()
    run_until_idle(run)
    advance(timedelta(seconds=2))
    run_until_idle(run)

    assert run.status == "completed"
    assert seen[0] == seen[1]
    assert seen[0].endswith("NonRetryableError: a\ufffdb \U0001f680 \ufffd \u2028")
