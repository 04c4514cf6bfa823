"""The patterns of the helpdesk, each of them replayed from the top after every step."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.urls import reverse

from django_workflows import (
    ApprovalDenied,
    GateDecided,
    RunFinished,
    approve,
    get_run,
    reject,
    send_message,
    signal_with_start,
)
from django_workflows.models import WorkflowMessage, WorkflowRun
from django_workflows.testing import advance, replay_every_step, run_until_idle, workflow_clock
from testproject.helpdesk import signatures
from testproject.helpdesk.models import Note, ServiceRequest, Ticket
from testproject.helpdesk.workflows import (
    approve_credit,
    collect_diagnostics,
    collect_diagnostics_in_one_step,
    handle_ticket,
    replace_device,
    tell_customer,
    tell_customers,
    watch_sla,
)

pytestmark = pytest.mark.django_db

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture(autouse=True)
def _replayed_after_every_step():
    with workflow_clock(), replay_every_step():
        yield


def go_on(run: WorkflowRun, later: timedelta | None = None) -> WorkflowRun:
    if later:
        advance(later)
    run_until_idle(run)
    return run


def requests() -> list[tuple[str, str, str]]:
    return list(ServiceRequest.objects.values_list("service", "action", "key"))


def person(name: str, *, may_approve: bool = False, group: str = "") -> object:
    user = get_user_model().objects.create(username=name)
    if may_approve:
        user.user_permissions.add(Permission.objects.get(codename="approve_credit"))
    if group:
        user.groups.add(Group.objects.get_or_create(name=group)[0])
    return user


# --- an entity, fed by a webhook


def event(number: int, kind: str = "reply", ticket: str = "T1", text: str = "") -> dict[str, str]:
    return {"id": f"evt-{number}", "ticket": ticket, "type": kind, "author": "ada", "text": text}


def post(client, body: object, signature: str | None = None):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(
        reverse("helpdesk:webhook"),
        data,
        content_type="application/json",
        headers={signatures.HEADER: signatures.sign(data) if signature is None else signature},
    )


def test_the_first_event_starts_the_tickets_run_and_later_ones_reach_the_same(client):
    first = post(client, event(1, "opened", text="It's broken.")).json()
    second = post(client, event(2, text="Still.")).json()

    assert (first["started"], second["started"]) == (True, False)
    assert first["run"] == second["run"]
    run = go_on(get_run(workflow_id="ticket-T1"))
    assert (run.status, run.state) == ("suspended", {"events": 2, "closed": False})
    assert list(Note.objects.values_list("text", flat=True)) == ["It's broken.", "Still."]


def test_an_event_that_is_delivered_twice_counts_once(client):
    post(client, event(1, "opened"))
    again = post(client, event(1, "opened"))

    assert (again.status_code, again.json()["repeated"]) == (200, True)
    go_on(get_run(workflow_id="ticket-T1"))
    assert Note.objects.count() == 1


def test_a_webhook_that_is_retried_after_the_ticket_closed_does_not_reopen_it(client):
    opened = post(client, event(1, "opened")).json()
    post(client, event(2, "closed"))
    run = go_on(get_run(workflow_id="ticket-T1"))
    assert (run.status, Ticket.objects.get().status) == ("suspended", "closed")
    go_on(run, later=HOUR)
    assert (run.status, run.result) == ("completed", {"events": 2})

    retried = [post(client, event(1, "opened")).json(), post(client, event(2, "closed")).json()]

    assert retried == [{"run": opened["run"], "started": False, "repeated": True}] * 2
    assert WorkflowRun.objects.count() == 1
    assert (Ticket.objects.get().status, Note.objects.count()) == ("closed", 2)


def test_a_reply_soon_after_the_close_reopens_the_ticket_in_the_same_run(client):
    for body in (event(1, "opened"), event(2, "closed")):
        post(client, body)
    run = go_on(get_run(workflow_id="ticket-T1"))
    advance(HOUR / 2)

    post(client, event(3, text="Not quite."))
    go_on(run)

    assert (run.status, Ticket.objects.get().status) == ("suspended", "open")
    assert go_on(run, later=HOUR * 10).status == "suspended"


def test_a_new_event_after_the_run_has_ended_starts_another_with_the_same_ticket(client):
    for body in (event(1, "opened"), event(2, "closed")):
        post(client, body)
    first = go_on(get_run(workflow_id="ticket-T1"))
    go_on(first, later=HOUR)

    assert post(client, event(3, text="Again!")).json()["started"] is True

    second = go_on(get_run(workflow_id="ticket-T1"))
    assert (second.pk != first.pk, second.state["events"]) == (True, 1)
    assert (Ticket.objects.get().status, Note.objects.count()) == ("open", 3)


@pytest.mark.parametrize("signature", ["", "0" * 64, "ünicode"])
def test_a_webhook_with_a_bad_signature_is_refused_and_stores_nothing(client, signature):
    response = post(client, event(1), signature=signature)

    assert (response.status_code, response.json()) == (401, {"error": "bad signature"})
    assert not WorkflowRun.objects.exists()


def test_without_a_secret_every_webhook_is_refused(client, settings):
    settings.HELPDESK_WEBHOOK_SECRET = ""

    assert post(client, event(1)).status_code == 401


@pytest.mark.parametrize(
    "body", [b"{", b"\xff", b"[]", b"null", {"id": "evt-1"}, event(1, "eaten")]
)
def test_a_webhook_that_makes_no_sense_is_refused_and_stores_nothing(client, body):
    assert post(client, body).status_code == 400
    assert not WorkflowRun.objects.exists()


def test_a_webhook_needs_no_csrf_token():
    from django.test import Client

    assert post(Client(enforce_csrf_checks=True), event(1)).status_code == 200


# --- an SLA timer that each reply resets


def watched() -> WorkflowRun:
    Ticket.objects.create(number="T1")
    return go_on(watch_sla.using(workflow_id="sla-T1").start(number="T1"))


def test_each_reply_starts_the_time_anew():
    run = watched()
    for _ in range(3):
        go_on(run, later=3 * HOUR)
        send_message(run, "reply")
        go_on(run)

    assert run.status == "suspended"
    assert go_on(run, later=3 * HOUR).status == "suspended"
    assert go_on(run, later=HOUR).result == {"status": "escalated", "replies": 3}
    assert Ticket.objects.get().escalated_at is not None
    assert requests() == [("mail", "escalation", "T1")]


def test_a_ticket_that_is_closed_in_time_is_not_escalated():
    run = watched()
    send_message(run, "closed")

    assert go_on(run).result == {"status": "closed", "replies": 0}
    assert (Ticket.objects.get().escalated_at, requests()) == (None, [])


def test_a_reply_in_time_counts_although_no_worker_was_up():
    run = watched()
    send_message(run, "reply")
    go_on(run, later=5 * HOUR)

    assert (run.status, Ticket.objects.get().escalated_at) == ("suspended", None)


# --- an approval with reminders and escalation


def wanted(**more) -> tuple[WorkflowRun, object]:
    Ticket.objects.create(number="T1")
    ada = person("ada", may_approve=True, group="Heads of support")
    run = approve_credit.start(number="T1", amount=Decimal("12.50"), requested_by=ada.pk, **more)
    return go_on(run), ada


def test_a_lead_who_decides_at_once_gets_no_reminder():
    run, _ = wanted()
    approve(run, "lead", by=person("grace", may_approve=True), comment="Fair.")

    assert go_on(run).result == {"approved": True, "by": "grace", "why": "Fair."}
    assert (Ticket.objects.get().credit, requests()) == (Decimal("12.50"), [])


def test_a_lead_is_reminded_and_may_still_decide():
    run, _ = wanted()
    go_on(run, later=DAY)
    assert requests() == [("mail", "reminder", "T1/1")]

    reject(run, "lead", by=person("grace", may_approve=True))

    assert go_on(run).result["approved"] is False
    assert Ticket.objects.get().credit == 0


def test_when_no_lead_decides_a_head_does():
    run, _ = wanted()
    for _ in range(3):
        go_on(run, later=DAY)
    assert requests() == [
        ("mail", "reminder", "T1/1"),
        ("mail", "reminder", "T1/2"),
        ("mail", "escalation", "T1"),
    ]
    lead, head = person("grace", may_approve=True), person("alan", group="Heads of support")
    with pytest.raises(ApprovalDenied):
        approve(run, "head", by=lead)

    approve(run, "head", by=head)

    assert go_on(run, later=100 * DAY).result["by"] == "alan"
    assert Ticket.objects.get().credit == Decimal("12.50")


def test_whoever_wants_the_credit_cannot_approve_it_at_either_gate():
    run, ada = wanted(reminders=0)
    with pytest.raises(ApprovalDenied, match="four eyes"):
        approve(run, "lead", by=ada)
    go_on(run, later=DAY)
    with pytest.raises(ApprovalDenied, match="four eyes"):
        approve(run, "head", by=ada)

    assert not WorkflowMessage.objects.exists()


def test_a_page_from_before_the_reminder_can_no_longer_decide_but_a_name_can():
    run, _ = wanted()
    old = run.steps.get(kind="approval")
    go_on(run, later=DAY)
    grace = person("grace", may_approve=True)

    with pytest.raises(GateDecided, match="no longer open"):
        approve(run, old, by=grace)
    approve(run, "lead", by=grace)

    assert go_on(run).result["approved"] is True


# --- fan-out


def test_each_customer_is_told_by_a_child_run_and_a_bad_address_stops_nobody():
    emails = ["a@example.org", "nobody@example.org", "c@example.org"]
    run = go_on(tell_customers.start(incident="I1", emails=emails))

    assert run.status == "completed"
    assert run.result["told"] == ["a@example.org", "c@example.org"]
    assert list(run.result["failed"]) == ["nobody@example.org"]
    assert "doesn't exist" in run.result["failed"]["nobody@example.org"]
    assert run.state == {"done": 3, "total": 3}
    assert run.children.count() == 3
    assert requests() == [("mail", "incident", f"I1/{name}@example.org") for name in "ac"]


def test_one_customer_is_told_without_a_parent():
    run = go_on(tell_customer.start(incident="I1", email="a@example.org"))

    assert (run.result, run.parent) == ("a@example.org", None)


# --- a saga


def test_a_device_is_replaced():
    run = go_on(replace_device.start(number="T1", address="1 Main Street"))

    assert run.result == {"status": "sent"}
    assert requests() == [("warehouse", "reserve", "T1"), ("courier", "book", "T1")]


def test_what_was_arranged_is_undone_last_first_when_a_step_fails():
    run = go_on(replace_device.start(number="T1", address="PO box 7"))

    assert run.result == {"status": "undone", "reason": "no delivery to PO box 7"}
    assert requests() == [
        ("warehouse", "reserve", "T1"),
        ("courier", "cancel", "T1"),
        ("warehouse", "release", "T1"),
    ]
    assert Note.objects.get().text == "No new device: no delivery to PO box 7."


# --- polling


def test_the_lab_is_asked_less_and_less_often_until_it_is_done():
    run = go_on(collect_diagnostics.start(number="T1"))
    assert go_on(run, later=timedelta(minutes=1)).status == "suspended"
    assert go_on(run, later=timedelta(minutes=1)).status == "suspended"

    go_on(run, later=timedelta(minutes=1))

    assert run.result == {"status": "ready", "export": "export-T1", "looks": 3}


def test_polling_ends_when_it_has_taken_too_long():
    run = collect_diagnostics.start(number="T1", gives_up_after=timedelta(0))

    assert go_on(run).result == {"status": "given up", "looks": 1}


def test_polling_in_one_step_leaves_one_record():
    run = go_on(collect_diagnostics_in_one_step.start(number="T1"))
    for _ in range(2):
        assert run.status == "suspended"
        go_on(run, later=timedelta(minutes=1))

    assert run.result == "export-T1"
    assert [(step.name, step.attempts) for step in run.steps.all()] == [
        ("request", 1),
        ("await-export", 3),
    ]


def test_polling_in_one_step_ends_with_the_runs_timeout():
    run = go_on(collect_diagnostics_in_one_step.start(number="T1"))

    go_on(run, later=timedelta(hours=6))

    assert (run.status, run.error["type"]) == ("failed", "DeadlineExceeded")


# --- all of them


@pytest.mark.parametrize("model", ["ticket", "servicerequest"])
def test_the_admin_lists_the_models_of_the_helpdesk(client, model):
    go_on(
        signal_with_start(
            handle_ticket,
            workflow_id="ticket-T1",
            name="event",
            data=event(1),
            input={"number": "T1"},
        ).run
    )
    go_on(replace_device.start(number="T1", address="1 Main Street"))
    client.force_login(
        get_user_model().objects.create(username="admin", is_staff=True, is_superuser=True)
    )

    page = client.get(reverse(f"admin:helpdesk_{model}_changelist"))

    assert (page.status_code, "T1" in page.content.decode()) == (200, True)


def test_a_closed_tickets_run_takes_no_message_of_its_own(client):
    for body in (event(1, "opened"), event(2, "closed")):
        post(client, body)
    run = go_on(get_run(workflow_id="ticket-T1"))
    go_on(run, later=HOUR)

    with pytest.raises(RunFinished):
        send_message(run, "event", event(3))
