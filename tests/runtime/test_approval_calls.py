"""`ctx.wait_for_approval`: what the gate asks, early decisions, timeouts."""

from dataclasses import dataclass
from datetime import timedelta

import pytest
from django import forms
from django.contrib.auth.models import Permission, User
from django.utils import timezone

from django_workflows import (
    Approval,
    GateDecided,
    StepFailed,
    approve,
    cancel,
    payloads,
    reject,
    send_message,
    workflow,
)
from django_workflows.store import approvals, leases
from django_workflows.telemetry import subscribed
from django_workflows.testing import advance, run_until_idle
from tests.claiming import claim
from tests.runtime.crashes import WorkerDied, execute_until_death

pytestmark = pytest.mark.django_db


class AmountForm(forms.Form):
    amount = forms.IntegerField(max_value=100)


@dataclass
class Amount:
    amount: int


def at_most_ten(data):
    if data["amount"] > 10:
        raise ValueError("at most ten")
    return data["amount"]


def is_broken(user, run):
    raise RuntimeError("the directory is down")


@pytest.fixture
def ann():
    return User.objects.create_user("ann")


@pytest.fixture
def bob():
    return User.objects.create_user("bob")


def gated(first="start", **asked):
    """A run that waits for a message, then at a gate, and is replayed once more at its end."""

    @workflow(name="t.gated")
    def body(ctx):
        ctx.wait_for_message(first)
        decision = ctx.wait_for_approval("manager", **asked)
        ctx.sleep(1)
        return None if decision is None else (decision.approved, decision.by.text, decision.data)

    run = body.start()
    run_until_idle(run)
    return run


def reach_gate(run):
    send_message(run, "start")
    run_until_idle(run)
    return run


def finish(run):
    run_until_idle(run)
    advance(timedelta(seconds=2))
    run_until_idle(run)
    return run.result


def test_a_gate_parks_and_tells_what_it_asks_and_shows(ann, bob):
    run = reach_gate(
        gated(
            permission="lab.change_thing",
            approvers=[ann, "staff"],
            exclude=bob,
            form=AmountForm,
            title="Pay?",
            description="500 to ACME",
        )
    )

    assert (run.status, run.available_at, run.waiting_names) == ("suspended", None, ["manager"])
    step = run.steps.last()
    assert (step.kind, step.status, step.name, step.wake_at) == (
        "approval",
        "waiting",
        "manager",
        None,
    )
    assert payloads.load_json(step.details)["gate"] == {
        "permission": "lab.change_thing",
        "approvers": {"users": [str(ann.pk)], "groups": ["staff"]},
        "exclude": {"users": [str(bob.pk)]},
        "form": "tests.runtime.test_approval_calls:AmountForm",
        "title": "Pay?",
        "description": "500 to ACME",
    }


def test_the_body_is_told_who_what_when_and_why_the_same_on_every_replay(ann):
    seen = []

    @workflow(name="t.tell")
    def tell(ctx):
        seen.append(ctx.wait_for_approval("manager"))
        ctx.sleep(1)

    run = tell.start()
    run_until_idle(run)
    approve(run, "manager", by=ann, comment="fine", data=(1, 2))
    finish(run)

    first, again = seen
    assert first == again
    assert isinstance(first, Approval)
    assert (first.approved, first.by.pk, first.by.text) == (True, ann.pk, "ann")
    assert (first.comment, first.data) == ("fine", (1, 2))
    assert timezone.is_aware(first.decided_at)


def test_a_decision_is_dated_by_the_workflow_clock(ann):
    run = reach_gate(gated())
    advance(timedelta(days=3))
    message = approve(run, "manager", by=ann)

    decided_at = approvals.to_approval(message.data).decided_at
    assert timedelta(0) <= message.created_at - decided_at < timedelta(seconds=5)
    assert decided_at - run.created_at > timedelta(days=2)


def test_a_gate_times_out_with_none_and_stays_so(ann):
    run = reach_gate(gated(timeout=timedelta(days=7)))
    advance(timedelta(days=7, seconds=1))
    run_until_idle(run)

    assert (run.steps.all()[1].status, run.steps.all()[1].result) == ("completed", None)
    assert finish(run) is None


def test_a_decision_beats_a_timeout_that_is_not_recorded_yet(ann):
    run = reach_gate(gated(timeout=60))
    advance(timedelta(seconds=61))
    approve(run, "manager", by=ann)

    assert finish(run) == (True, "ann", None)


def test_what_the_gate_showed_stays_with_it_when_decided(ann):
    run = reach_gate(gated(title="Pay?", description="500"))
    approve(run, "manager", by=ann)
    finish(run)

    details = payloads.load_json(run.steps.all()[1].details)
    assert (details["gate"]["title"], details["gate"]["description"]) == ("Pay?", "500")


def test_an_early_decision_is_kept_and_passes_the_gate_without_parking(ann):
    run = gated()
    approve(run, "manager", by=ann, comment="ahead of time")
    send_message(run, "start")

    assert finish(run) == (True, "ann", None)
    assert run.messages.pending().count() == 0


def test_early_authority_is_checked_as_it_stands_when_the_gate_is_reached(ann):
    """It lacked the permission when it decided, and has it now."""
    run = gated(permission="lab.change_thing")
    approve(run, "manager", by=ann)
    ann.user_permissions.add(Permission.objects.get(codename="change_thing"))

    assert finish(reach_gate(run))[:2] == (True, "ann")


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        ("permission", "ann lacks the permission 'lab.change_thing'"),
        ("active", "ann is inactive"),
        ("user", "ann is no longer a user"),
    ],
)
def test_an_early_decision_that_no_longer_holds_is_kept_as_refused_and_the_gate_waits(
    ann, bob, lost, why
):
    for user in (ann, bob):
        user.user_permissions.add(Permission.objects.get(codename="change_thing"))
    run = gated(permission="lab.change_thing")
    early = approve(run, "manager", by=ann)
    if lost == "permission":
        ann.user_permissions.clear()
    elif lost == "active":
        User.objects.filter(pk=ann.pk).update(is_active=False)
    else:
        ann.delete()
    reach_gate(run)

    early.refresh_from_db()
    assert (run.status, early.refused) == ("suspended", why)
    assert early.consumed_by == run.steps.last()

    reject(run, "manager", by=bob)
    assert finish(run)[:2] == (False, "bob")
    early.refresh_from_db()
    assert early.refused == why


def test_an_early_decision_of_the_excluded_or_of_a_stranger_does_not_hold(ann, bob):
    for asked in ({"exclude": ann}, {"approvers": bob}):
        run = gated(**asked)
        approve(run, "manager", by=ann)
        reach_gate(run)
        assert run.status == "suspended"
        approve(run, "manager", by=bob)
        assert finish(run)[:2] == (True, "bob")


@pytest.mark.parametrize(
    ("asked", "data", "why"),
    [
        ({"form": AmountForm}, {"amount": 500}, "amount"),
        ({"permission": is_broken}, None, "the check raised RuntimeError: the directory is down"),
    ],
)
def test_an_early_decision_that_cannot_be_checked_or_does_not_fit_is_refused(ann, asked, data, why):
    run = gated(**asked)
    early = approve(run, "manager", by=ann, data=data)
    reach_gate(run)

    early.refresh_from_db()
    assert run.status == "suspended"
    assert why in early.refused


def test_the_oldest_early_decision_that_holds_is_taken(ann, bob):
    run = gated(approvers=bob)
    approve(run, "manager", by=ann)
    reach_gate(run)
    approve(run, "manager", by=bob)

    assert finish(run)[:2] == (True, "bob")
    assert [bool(each.refused) for each in run.messages.order_by("id")[:3]] == [True, False, False]


def test_an_early_decision_waits_for_the_gate_and_does_not_end_a_later_one(ann, bob):
    @workflow(name="t.two")
    def two(ctx):
        return [ctx.wait_for_approval("manager").by.text for _ in range(2)]

    run = two.start()
    approve(run, "manager", by=ann)
    run_until_idle(run)
    assert run.status == "suspended"
    approve(run, "manager", by=bob)
    run_until_idle(run)

    assert run.result == ["ann", "bob"]


def test_forms_dataclasses_and_callables_shape_the_data(ann):
    for form, got in (
        (AmountForm, {"amount": 7}),
        (Amount, Amount(7)),
        (at_most_ten, 7),
    ):
        seen = []

        @workflow(name="t.shaped")
        def shaped(ctx, form=form, seen=seen):
            seen.append(ctx.wait_for_approval("manager", form=form).data)

        run = shaped.start()
        run_until_idle(run)
        approve(run, "manager", by=ann, data={"amount": 7})
        run_until_idle(run)
        assert seen[-1] == got, run.error


def test_data_that_no_longer_fits_fails_the_gates_step_in_the_body(ann):
    """Accepted by the form of the code that parked; another is deployed when it is taken."""

    def start(form):
        @workflow(name="t.changed")
        def changed(ctx):
            try:
                return ctx.wait_for_approval("manager", form=form).data
            except StepFailed as failed:
                return [failed.step, failed.type]

        return changed

    run = start(AmountForm).start()
    run_until_idle(run)
    approve(run, "manager", by=ann, data={"amount": 50})
    start(at_most_ten)
    run_until_idle(run)

    assert run.result == ["manager", "ValueError"]


def test_a_worker_that_dies_once_it_has_the_decision_leaves_it_to_the_replay(ann, bob):
    run = reach_gate(gated())
    approve(run, "manager", by=ann)

    def die(event, fields):
        raise WorkerDied

    with subscribed("gate.passed", die):
        execute_until_death(run)
    with pytest.raises(GateDecided):
        reject(run, "manager", by=bob)

    assert finish(run)[:2] == (True, "ann")


def test_a_canceled_run_takes_no_decision(ann):
    run = reach_gate(gated())
    approve(run, "manager", by=ann)
    leases.route()
    claimed = claim(run)
    cancel(run)
    waiting = leases.reload_history(run.pk)[-1]

    looked = approvals.take(claimed, waiting, None, approvals.asked_of(waiting.details))

    assert (looked.run_status, looked.taken) == ("canceled", None)
    assert run.messages.pending().count() == 1


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"gate": ""}, "A gate's name must not be empty."),
        ({"gate": "x" * 181}, "A gate's name must have at most 180 characters"),
        ({"permission": "approve"}, "permission must be 'app_label.codename' or a callable"),
        ({"permission": lambda user, run: True}, "permission must be importable"),
        ({"form": lambda data: data}, "form must be importable"),
        ({"approvers": User(username="new")}, "approvers names a user that isn't saved: new"),
        ({"timeout": -1}, "A wait's timeout must be zero or more, got -1"),
    ],
)
def test_a_gate_that_is_asked_for_wrongly_fails_the_run_with_a_clear_text(asked, text):
    @workflow(name="t.wrong")
    def wrong(ctx):
        ctx.wait_for_approval(**{"gate": "manager", **asked})

    run = wrong.start()
    run_until_idle(run)

    assert run.status == "failed"
    assert text in run.error["message"]
    assert not run.steps.exists()
