"""`approve` and `reject`: who may decide a gate, and which decision stands."""

from datetime import timedelta

import pytest
from django import forms
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction

from django_workflows import (
    ApprovalDenied,
    GateDecided,
    PayloadError,
    RunFinished,
    RunNotFound,
    approve,
    cancel,
    reject,
    send_message,
    workflow,
)
from django_workflows.fields import uuid7
from django_workflows.models import WorkflowMessage
from django_workflows.testing import advance, run_until_idle
from tests.claiming import rolled_back

pytestmark = pytest.mark.django_db


def is_owner(user, run):
    return user.username == run.input["owner"]


def is_broken(user, run):
    raise RuntimeError("the directory is down")


class AmountForm(forms.Form):
    amount = forms.IntegerField(max_value=100)


@pytest.fixture
def ann():
    return User.objects.create_user("ann")


@pytest.fixture
def bob():
    return User.objects.create_user("bob")


@pytest.fixture
def gated():
    """Start a run that is parked at a gate."""

    def start(count=1, owner="ann", **asked):
        @workflow(name="t.gated")
        def body(ctx, owner):
            decisions = [ctx.wait_for_approval("manager", **asked) for _ in range(count)]
            return [None if each is None else each.approved for each in decisions]

        run = body.start(owner=owner)
        run_until_idle(run)
        assert run.status == "suspended", run.error
        return run

    return start


def decided(run):
    run_until_idle(run)
    return run.result


@pytest.mark.parametrize(("decide", "outcome"), [(approve, True), (reject, False)])
def test_a_decision_is_stored_and_ends_the_wait(gated, ann, decide, outcome):
    run = gated()
    message = decide(run, "manager", by=ann, comment="fine", data={"n": 1})

    assert WorkflowMessage.objects.get() == message
    assert not message.deduplicated
    decision = WorkflowMessage.objects.get().data
    assert decision["approved"] is outcome
    assert decision["by"] == {"pk": ann.pk, "text": "ann"}
    assert (decision["comment"], decision["data"]) == ("fine", {"n": 1})
    assert decided(run) == [outcome]


@pytest.mark.parametrize("of", [lambda run: run, lambda run: run.pk, lambda run: str(run.pk)])
def test_a_run_is_named_by_itself_its_id_or_the_ids_text(gated, ann, of):
    run = gated()
    approve(of(run), "manager", by=ann)
    assert decided(run) == [True]


def test_a_django_permission_is_asked_for(gated, ann, bob):
    run = gated(permission="lab.change_thing")
    bob.user_permissions.add(Permission.objects.get(codename="change_thing"))

    with pytest.raises(ApprovalDenied) as caught:
        approve(run, "manager", by=ann)
    assert (caught.value.gate, str(caught.value)) == (
        "manager",
        "Gate 'manager' can't be decided so: ann lacks the permission 'lab.change_thing'.",
    )
    assert not WorkflowMessage.objects.exists()

    approve(run, "manager", by=bob)
    assert decided(run) == [True]


@pytest.mark.parametrize(
    "permission", [is_owner, "tests.store.test_approvals.is_owner", f"{__name__}:is_owner"]
)
def test_a_callable_of_user_and_run_is_asked(gated, ann, bob, permission):
    run = gated(permission=permission, owner="bob")

    with pytest.raises(ApprovalDenied, match="ann lacks the permission"):
        reject(run, "manager", by=ann)
    reject(run, "manager", by=bob)

    assert decided(run) == [False]


def test_a_check_that_breaks_is_the_callers_to_see_and_stores_nothing(gated, ann):
    run = gated(permission=is_broken)
    with pytest.raises(RuntimeError, match="the directory is down"):
        approve(run, "manager", by=ann)
    assert not WorkflowMessage.objects.exists()


def test_approvers_are_users_pks_groups_or_names_of_groups(gated, ann, bob):
    staff = Group.objects.create(name="staff")
    bob.groups.add(staff)
    for given in (bob, bob.pk, "staff", staff, [ann.pk + bob.pk, "staff"], ["nobody", bob]):
        run = gated(approvers=given)
        with pytest.raises(ApprovalDenied, match="ann is not among its approvers"):
            approve(run, "manager", by=ann)
        approve(run, "manager", by=bob)
        assert decided(run) == [True]


@pytest.mark.parametrize("decide", [approve, reject])
def test_the_excluded_can_neither_approve_nor_reject_whatever_else_they_may(gated, ann, decide):
    ann.is_superuser = True
    ann.save()
    for given in (ann, ann.pk, [ann]):
        run = gated(exclude=given, approvers=ann, permission="lab.change_thing")
        with pytest.raises(ApprovalDenied, match=r"ann is excluded from deciding it \(four eyes\)"):
            decide(run, "manager", by=ann)
    assert not WorkflowMessage.objects.exists()


def test_an_inactive_user_decides_nothing(gated, ann):
    ann.is_active = False
    ann.save()
    with pytest.raises(ApprovalDenied, match="ann is inactive"):
        approve(gated(), "manager", by=ann)


def test_the_first_decision_wins_and_the_second_is_told_who_what_and_when(gated, ann, bob):
    run = gated()
    first = approve(run, "manager", by=ann, comment="fine")

    with pytest.raises(GateDecided) as caught:
        reject(run, "manager", by=bob)

    stands = caught.value.approval
    assert (stands.approved, stands.by.pk, stands.by.text) == (True, ann.pk, "ann")
    assert stands.comment == "fine"
    assert abs(stands.decided_at - first.created_at) < timedelta(seconds=5)
    assert str(caught.value) == (
        f"Gate 'manager' was approved already, by ann at {stands.decided_at.isoformat()}."
    )
    assert WorkflowMessage.objects.count() == 1
    assert decided(run) == [True]


def test_a_gate_that_has_been_passed_is_decided(gated, ann, bob):
    run = gated(count=1)
    reject(run, "manager", by=ann)
    run_until_idle(run)

    with pytest.raises(GateDecided, match="was rejected already, by ann"):
        approve(run, "manager", by=bob)
    assert run.status == "completed"


def test_a_repeated_key_returns_the_decision_also_after_the_end(gated, ann, bob):
    run = gated()
    first = approve(run, "manager", by=ann, idempotency_key="k")
    again = approve(run, "manager", by=ann, idempotency_key="k")
    run_until_idle(run)
    late = reject(run, "manager", by=bob, idempotency_key="k")

    assert (first.deduplicated, again.deduplicated, late.deduplicated) == (False, True, True)
    assert first == again == late
    assert late.data["approved"] is True


def test_a_second_gate_of_the_name_is_a_gate_of_its_own(gated, ann, bob):
    run = gated(count=2)
    approve(run, "manager", by=ann)
    run_until_idle(run)
    reject(run, "manager", by=bob)

    assert decided(run) == [True, False]


def test_a_page_decides_the_gate_that_it_shows_and_no_later_one(gated, ann, bob):
    run = gated(count=2)
    shown = run.steps.get()
    approve(run, "manager", by=ann)
    run_until_idle(run)

    with pytest.raises(GateDecided, match="was approved already, by ann"):
        approve(run, shown, by=bob)
    run_until_idle(run)
    assert run.status == "suspended"

    approve(run, run.steps.last(), by=bob)
    assert decided(run) == [True, True]


def test_a_page_of_a_gate_whose_time_is_over_is_too_late(gated, ann):
    run = gated(count=2, timeout=60)
    shown = run.steps.get()
    advance(timedelta(seconds=61))
    run_until_idle(run)

    with pytest.raises(GateDecided) as caught:
        approve(run, shown, by=ann)

    assert caught.value.approval is None
    assert str(caught.value) == ("It is too late to decide gate 'manager': it is no longer open.")


def test_a_step_that_is_no_gate_of_the_run_is_refused(gated, ann):
    run, other = gated(), gated()
    with pytest.raises(ValueError, match=r"^Step \d+ is not a gate of run"):
        approve(run, other.steps.get(), by=ann)


def test_data_is_checked_by_the_gates_form_before_anything_is_stored(gated, ann):
    run = gated(form=AmountForm)
    with pytest.raises(ValueError, match="amount"):
        approve(run, "manager", by=ann, data={"amount": 500})
    with pytest.raises(ValueError, match="AmountForm takes a dict"):
        approve(run, "manager", by=ann)
    assert not WorkflowMessage.objects.exists()

    approve(run, "manager", by=ann, data={"amount": "50"})
    assert decided(run) == [True]


def test_a_rejection_need_not_fill_in_the_form_but_what_it_fills_in_must_fit(gated, ann):
    run = gated(form=AmountForm)
    with pytest.raises(ValueError, match="amount"):
        reject(run, "manager", by=ann, data={"amount": 500})
    reject(run, "manager", by=ann)

    assert decided(run) == [False]


def test_an_unknown_or_ended_run_is_refused(gated, ann):
    with pytest.raises(RunNotFound):
        approve(uuid7(), "manager", by=ann)
    run = gated()
    cancel(run)
    with pytest.raises(RunFinished) as caught:
        approve(run, "manager", by=ann)

    assert caught.value.status == "canceled"
    assert not WorkflowMessage.objects.exists()


def test_a_decision_goes_with_the_callers_transaction(gated, ann, bob):
    run = gated()
    with rolled_back():
        approve(run, "manager", by=ann)
    with transaction.atomic():
        reject(run, "manager", by=bob)
        with pytest.raises(GateDecided):
            approve(run, "manager", by=ann)
        User.objects.create_user("written after the refusal")

    assert decided(run) == [False]
    assert User.objects.filter(username__startswith="written").exists()


def test_a_second_early_decision_is_refused_like_any_second_one(ann, bob):
    @workflow(name="t.early")
    def early(ctx):
        return ctx.wait_for_approval("manager").by.text

    run = early.start()
    approve(run, "manager", by=ann)
    with pytest.raises(GateDecided, match="was approved already, by ann"):
        reject(run, "manager", by=bob)

    assert decided(run) == "ann"


def test_gates_of_other_names_and_runs_are_not_touched(gated, ann):
    run, other = gated(), gated()
    approve(run, "other", by=ann)
    approve(other, "manager", by=ann)
    run_until_idle(run, other)

    assert (run.status, other.status) == ("suspended", "completed")


def test_nobody_decides_by_a_message(gated):
    run = gated()
    with pytest.raises(ValueError, match=r"made by approve\(\) and reject\(\)"):
        send_message(run, "$approval:manager", {"approved": True})


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"gate": ""}, ValueError, "A gate's name must not be empty."),
        ({"by": None}, TypeError, "by= needs a saved user, not None."),
        ({"by": User(username="new")}, TypeError, "by= needs a saved user"),
        ({"comment": None}, TypeError, "comment must be a str, not NoneType."),
        ({"idempotency_key": ""}, ValueError, "An idempotency key must not be empty."),
        ({"data": object()}, PayloadError, "decision.data: an object instance"),
    ],
)
@pytest.mark.parametrize("decide", [approve, reject])
def test_a_bad_argument_is_refused_and_nothing_is_stored(
    gated, ann, decide, arguments, error, text
):
    run = gated()
    given = {"run": run, "gate": "manager", "by": ann, **arguments}
    with pytest.raises(error) as caught:
        decide(**given)

    assert text in str(caught.value)
    assert not WorkflowMessage.objects.exists()


def test_a_comment_of_any_text_is_kept(gated, ann):
    run = gated()
    approve(run, "manager", by=ann, comment="a\x00b \ud800 ✓")
    assert decided(run) == [True]


def test_who_when_and_why_stay_readable_when_run_and_user_are_gone(gated, ann):
    run = gated()
    approve(run, "manager", by=ann, comment="fine")
    run_until_idle(run)
    ann.delete()

    step = run.steps.get()
    assert step.result["by"]["text"] == "ann"
    assert step.result["comment"] == "fine"
    assert run.messages.get().consumed_by == step
