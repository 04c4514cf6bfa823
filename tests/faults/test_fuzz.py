"""Anything through the public API: a named error and nothing written, or it is stored as given."""

import math
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_workflows import (
    RunNotFound,
    WorkflowError,
    approve,
    cancel,
    get_run,
    list_messages,
    payloads,
    send_message,
    send_signal,
    signal_with_start,
    start,
    workflow,
)
from django_workflows.conf import config
from django_workflows.models import WorkflowMessage, WorkflowRun, WorkflowSignal, WorkflowStep
from django_workflows.registry import registry
from django_workflows.testing import run_until_idle

pytestmark = pytest.mark.django_db

NAMED = (TypeError, ValueError, WorkflowError)
fuzzed = settings(
    deadline=None,
    max_examples=60,
    # Each example ends in a rollback of its own.
    suppress_health_check=list(HealthCheck),
)

texts = st.one_of(
    st.text(max_size=30),
    st.text(st.characters(categories=["Cs", "Cc", "Lu"]), max_size=5),
    st.sampled_from(["", " ", "\x00", "a\x00b", "\ud800", "x" * 200, "x" * 201, "é" * 256, "%s"]),
)  # fmt: skip
odd = st.one_of(
    texts, st.none(), st.integers(), st.floats(), st.booleans(), st.binary(max_size=5),
    st.sampled_from([object(), [], {}, math.inf, -math.inf, math.nan, 2**70, uuid4()]),
)  # fmt: skip
times = st.one_of(
    odd, st.timedeltas(), st.datetimes(), st.datetimes(timezones=st.timezones()),
    st.sampled_from([datetime.max, datetime.min, timedelta.max, timedelta.min]),
)  # fmt: skip
data = st.recursive(
    st.one_of(odd, st.decimals(), st.dates(), st.times(), st.timedeltas(), st.uuids()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(texts, st.integers()), inner, max_size=4),
        st.tuples(inner),
    ),
    max_leaves=8,
)


@pytest.fixture(autouse=True)
def flow():
    @workflow(name="t.fuzzed")
    def fuzzed_flow(ctx, value=None):
        return ctx.wait_for_message("go").data

    return fuzzed_flow


class _Undone(Exception):
    pass


def counts():
    tables = (WorkflowRun, WorkflowStep, WorkflowMessage, WorkflowSignal)
    return [table.objects.count() for table in tables]


def attempt(call, *arguments, **options):
    """Call in a transaction of its own, which has to be usable whatever comes of it."""
    outcome = refused = None
    try:
        with transaction.atomic():
            before = counts()
            try:
                outcome = call(*arguments, **options)
            except NAMED as error:
                refused = error
            if refused is not None:
                # One that the database's driver raises isn't ours.
                assert str(refused)
                assert not isinstance(refused, UnicodeError)
                assert counts() == before, "refused, and something was written"
            # Not broken: the caller's own writes go on.
            User.objects.create(username=str(uuid4()))
            if outcome is not None and hasattr(outcome, "refresh_from_db"):
                outcome.refresh_from_db()
            raise _Undone
    except _Undone:
        return outcome


@fuzzed
@given(texts, st.one_of(st.none(), st.dictionaries(texts, data, max_size=2)), st.data())
def test_a_start_takes_anything(name, given_input, draw):
    attempt(
        start,
        draw.draw(st.sampled_from(["t.fuzzed", name])),
        draw.draw(st.sampled_from([given_input, {"value": draw.draw(data)}])),
        workflow_id=draw.draw(odd),
        queue_name=draw.draw(st.one_of(st.none(), texts, odd)),
        run_after=draw.draw(times),
        deadline=draw.draw(times),
        priority=draw.draw(st.one_of(st.integers(), odd)),
    )


@fuzzed
@given(odd, texts, data, st.one_of(st.none(), texts, odd), st.booleans())
def test_a_send_takes_anything(flow, target, name, value, key, is_real):
    run = flow.start()
    message = attempt(send_message, run if is_real else target, name, value, idempotency_key=key)
    assert message is None or message.name == name


@fuzzed
@given(odd, texts, data, st.one_of(st.none(), odd), st.one_of(st.none(), data))
def test_a_signal_with_start_takes_anything(flow, workflow_id, name, value, key, more):
    attempt(
        signal_with_start,
        flow,
        workflow_id=workflow_id,
        name=name,
        data=value,
        idempotency_key=key,
        input=more,
    )


@fuzzed
@given(odd, data, st.one_of(st.none(), odd))
def test_a_signal_takes_anything(name, value, key):
    attempt(send_signal, name, value, idempotency_key=key)


@fuzzed
@given(odd, odd, data, st.one_of(st.none(), odd))
def test_a_decision_takes_anything(flow, gate, comment, value, key):
    run = flow.start()
    by = User.objects.create(username=str(uuid4()))
    attempt(approve, run, gate, by=by, comment=comment, data=value, idempotency_key=key)


@fuzzed
@given(odd, odd)
def test_a_cancel_and_a_look_take_anything(flow, target, reason):
    run = flow.start()
    attempt(cancel, target)
    attempt(get_run, target)
    attempt(get_run, workflow_id=target)
    attempt(list_messages, run, name=target)
    attempt(list_messages, run, state=target, name=reason, limit=reason, cursor=target)
    canceled = attempt(cancel, run, reason=reason)
    assert canceled is None or canceled.status in ("canceled", "pending")


CALLS = {
    "step": lambda ctx, a, b: ctx.step(a, lambda: b),
    "sleep": lambda ctx, a, b: ctx.sleep(b),
    "sleep_until": lambda ctx, a, b: ctx.sleep_until(b),
    "wait": lambda ctx, a, b: ctx.wait_for_message(a, timeout=b),
    "waits": lambda ctx, a, b: ctx.wait_for_message([a, b], timeout=0),
    "schema": lambda ctx, a, b: ctx.wait_for_message(a, timeout=0, schema=b),
    "receive": lambda ctx, a, b: ctx.receive_message(a),
    "signal": lambda ctx, a, b: ctx.wait_for_signal(a, timeout=b),
    "send": lambda ctx, a, b: ctx.send_message(a, "name", b),
    "send_name": lambda ctx, a, b: ctx.send_message(ctx.run_id, a, b),
    "send_signal": lambda ctx, a, b: ctx.send_signal(a, b),
    "approval": lambda ctx, a, b: ctx.wait_for_approval(a, timeout=b, title=a),
    "child": lambda ctx, a, b: ctx.start_child("t.fuzzed", {"value": b}, workflow_id=a),
    "child_name": lambda ctx, a, b: ctx.start_child(a, b),
    "patched": lambda ctx, a, b: ctx.patched(a),
    "state": lambda ctx, a, b: ctx.set_state(value=b),
    "result": lambda ctx, a, b: b,
}
# What a body may fail with; an error of the database isn't among it.
BODY_ERRORS = {
    "TypeError", "ValueError", "PayloadError", "StepFailed", "WorkflowNotRegistered",
    "RunNotFound", "OverflowError", "ContextMisuse", "WorkflowAlreadyStarted",
}  # fmt: skip


@settings(fuzzed, max_examples=200)
@given(st.sampled_from(sorted(CALLS)), st.one_of(texts, odd), st.one_of(data, times))
def test_a_body_may_hand_anything_to_its_context(name, a, b):
    registry.unregister("t.body", "1")

    @workflow(name="t.body")
    def body(ctx):
        CALLS[name](ctx, a, b)
        return ctx.step("after", lambda: "well")

    try:
        with transaction.atomic():
            run = body.start()
            run_until_idle(run)
            if run.status == "failed":
                assert run.error["type"] in BODY_ERRORS, run.error
            else:
                assert run.status in ("completed", "suspended"), run.problem
            raise _Undone
    except _Undone:
        pass


@pytest.mark.parametrize("surplus", [-100, -1, 0, 1, 100])
@pytest.mark.parametrize("letter", ["x", "é", '"', "\x00"])
def test_a_payload_is_stored_up_to_the_limit_and_refused_beyond_it(flow, surplus, letter):
    run = flow.start()
    limit = config().max_payload_bytes
    empty = len(payloads.encode("").encode())
    per_letter = len(payloads.encode(letter).encode()) - empty
    count = (limit - empty) // per_letter + surplus
    message = attempt(send_message, run, "go", letter * count)
    assert (message is not None) == (empty + count * per_letter <= limit)
    assert counts()[2] == 0


def test_ids_of_every_shape_are_looked_up_or_refused(flow):
    run = flow.start()
    for given_id in (run.pk, str(run.pk), run.pk.hex, str(run.pk).upper(), f"{{{run.pk}}}"):
        assert get_run(given_id) == run
    for given_id in (str(run.pk)[:-1], f"{run.pk}0", "None", "1; DROP TABLE"):
        with pytest.raises(RunNotFound):
            get_run(given_id)
    assert connection.is_usable()
