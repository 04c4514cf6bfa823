"""Each pattern of the helpdesk with its worker killed in the middle, and another one after it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group

from django_workflows import approve, get_run, send_message, signal_with_start
from django_workflows.models import WorkflowRun
from testproject.helpdesk.models import Note, ServiceRequest, Ticket
from testproject.helpdesk.workflows import (
    approve_credit,
    collect_diagnostics,
    collect_diagnostics_in_one_step,
    handle_ticket,
    replace_device,
    tell_customers,
    watch_sla,
)
from tests.waiting import eventually

LEASE = ("--lease", "1")
SOON = timedelta(seconds=0.2)


@pytest.fixture
def killed_then_healed(start_worker):
    """Have a worker die at the nth event of a name, and start another one."""

    def go(point: str) -> None:
        doomed = start_worker(*LEASE, wait=False, LAB_KILL=point)
        assert doomed.process.wait(60) == -9, doomed.output()
        start_worker(*LEASE)

    return go


def requests() -> list[tuple[str, str, str]]:
    return list(ServiceRequest.objects.values_list("service", "action", "key"))


def has_parked(run: WorkflowRun, name: str) -> bool:
    run.refresh_from_db()
    return run.status == "suspended" and name in run.waiting_names


def event(number: int, kind: str, **more) -> WorkflowRun:
    key = f"evt-{number}"
    return signal_with_start(
        handle_ticket,
        workflow_id="ticket-T1",
        name="event",
        data={"id": key, "ticket": "T1", "type": kind, "author": "ada", "text": key},
        input={"number": "T1", "reopens_within": SOON},
        idempotency_key=key,
    ).run


@pytest.mark.parametrize("point", ["message.consumed:2", "step.recorded:2", "record.writing:2"])
def test_an_entity_survives_and_takes_each_event_once(killed_then_healed, point):
    for number, kind in enumerate(["opened", "reply", "reply", "closed"]):
        run = event(number, kind)

    killed_then_healed(point)

    assert run.wait(30).result == {"events": 4}
    assert list(Note.objects.values_list("text", flat=True)) == [f"evt-{n}" for n in range(4)]
    assert Ticket.objects.get().status == "closed"
    assert event(2, "reply").pk == run.pk
    assert WorkflowRun.objects.count() == 1


@pytest.mark.parametrize("point", ["message.consumed:2", "run.parking:1", "step.recorded:1"])
def test_an_sla_timer_survives_and_escalates_once(killed_then_healed, point):
    Ticket.objects.create(number="T1")
    run = watch_sla.start(number="T1", answer_within=timedelta(seconds=1))
    for _ in range(2):
        send_message(run, "reply")

    killed_then_healed(point)

    assert run.wait(30).result == {"status": "escalated", "replies": 2}
    assert requests() == [("mail", "escalation", "T1")]


@pytest.mark.parametrize("point", ["run.parked:2", "step.recorded:2", "record.writing:2"])
def test_an_approval_with_reminders_survives_and_books_once(killed_then_healed, point):
    Ticket.objects.create(number="T1")
    ada, head = (get_user_model().objects.create(username=name) for name in ("ada", "alan"))
    head.groups.add(Group.objects.create(name="Heads of support"))
    run = approve_credit.start(
        number="T1", amount=Decimal("12.50"), requested_by=ada.pk, reminders=2, patience=SOON
    )

    killed_then_healed(point)
    eventually(lambda: has_parked(run, "head"))
    approve(run, "head", by=head)

    assert run.wait(30).result == {"approved": True, "by": "alan", "why": ""}
    assert Ticket.objects.get().credit == Decimal("12.50")
    assert requests() == [
        ("mail", "reminder", "T1/1"),
        ("mail", "reminder", "T1/2"),
        ("mail", "escalation", "T1"),
    ]


def test_a_decision_survives_a_worker_that_dies_as_it_takes_it(killed_then_healed):
    Ticket.objects.create(number="T1")
    ada, lead = (
        get_user_model().objects.create(username=name, is_superuser=True)
        for name in ("ada", "grace")
    )
    run = approve_credit.start(number="T1", amount=Decimal(5), requested_by=ada.pk)
    approve(run, "lead", by=lead)

    killed_then_healed("gate.passed:1")

    assert run.wait(30).result["by"] == "grace"
    assert (Ticket.objects.get().credit, requests()) == (Decimal(5), [])


@pytest.mark.parametrize("point", ["run.started:2", "run.ended:2", "step.recorded:3"])
def test_a_fan_out_survives_with_one_child_for_each(killed_then_healed, point):
    emails = ["a@example.org", "nobody@example.org", "c@example.org", "d@example.org"]
    run = tell_customers.start(incident="I1", emails=emails)

    killed_then_healed(point)

    assert run.wait(30).result["told"] == [emails[0], emails[2], emails[3]]
    assert list(run.result["failed"]) == [emails[1]]
    assert run.children.count() == len(emails)
    assert sorted(key for *_, key in requests()) == [f"I1/{emails[n]}" for n in (0, 2, 3)]


@pytest.mark.parametrize("point", [f"record.writing:{nth}" for nth in range(1, 6)])
def test_a_saga_survives_and_undoes_all_of_it(killed_then_healed, point):
    run = replace_device.start(number="T1", address="PO box 7")

    killed_then_healed(point)

    assert run.wait(30).result == {"status": "undone", "reason": "no delivery to PO box 7"}
    assert requests() == [
        ("warehouse", "reserve", "T1"),
        ("courier", "cancel", "T1"),
        ("warehouse", "release", "T1"),
    ]
    assert Note.objects.count() == 1


@pytest.mark.parametrize("point", ["step.recorded:4", "run.parked:1", "record.writing:3"])
def test_a_polling_loop_survives_and_goes_on_where_it_was(killed_then_healed, point):
    run = collect_diagnostics.start(number="T1", pause=SOON)

    killed_then_healed(point)

    assert run.wait(30).result["export"] == "export-T1"
    assert ServiceRequest.objects.get(action="export").times == 1
    # A look may be repeated by the crash; it is never skipped.
    assert run.result["looks"] in (2, 3)


def test_polling_in_one_step_survives(killed_then_healed):
    run = collect_diagnostics_in_one_step.start(number="T1")

    killed_then_healed("run.parked:1")

    eventually(lambda: get_run(run.pk).steps.get(name="await-export").attempts == 1)
    assert ServiceRequest.objects.get(action="look").times == 1
    run.refresh_from_db()
    assert run.status == "suspended"
