"""The inbox of approvals and the page on which one is decided."""

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from django_workflows import approve, cancel, payloads, reject
from django_workflows.testing import advance, run_until_idle
from tests.admin.conftest import gate_page, listing

pytestmark = pytest.mark.django_db

INBOX = "approvalgate"


@pytest.fixture
def approver(make_user, sign_in):
    return sign_in(make_user("decide_approval", username="approver"))


def hidden(response):
    """The hidden field that tells one page's clicks from another's."""
    return re.search(r'name="page" value="(\w+)"', response.content.decode())[1]


def post(client, gate, decision, **given):
    page = client.get(gate_page(gate))
    data = {"page": hidden(page), "comment": "", "decision": decision, **given}
    return client.post(gate_page(gate), data, follow=True)


def text(response):
    assert response.status_code == 200
    return response.content.decode()


def test_an_approver_finds_an_open_gate_and_approves_it(approver, open_gate):
    run, gate = open_gate()
    inbox = text(approver.get(listing(INBOX)))
    assert "Pay the &lt;i&gt;invoice&lt;/i&gt;?" in inbox
    assert gate_page(gate) in inbox
    answer = text(post(approver, gate, "approve", comment="fine <by> me"))
    assert "You approved “Pay the &lt;i&gt;invoice&lt;/i&gt;?”." in answer
    assert "fine &lt;by&gt; me" in answer
    run_until_idle(run)
    assert run.result == [True]
    decided = text(approver.get(gate_page(gate)))
    assert "by approver" in decided
    assert "<button" not in decided.partition("wf-gate-form")[2]


def test_a_gate_can_be_rejected(approver, open_gate):
    run, gate = open_gate()
    assert "You rejected" in text(post(approver, gate, "reject", comment="too dear"))
    run_until_idle(run)
    assert run.result == [False]


def test_a_decided_gate_leaves_the_inbox_before_a_worker_has_taken_the_decision(
    approver, open_gate
):
    _run, gate = open_gate()
    post(approver, gate, "approve")
    for view in ("mine", "open"):
        assert gate_page(gate) not in text(approver.get(listing(INBOX), {"show": view}))
    assert "The run goes on as soon as a worker" in text(approver.get(gate_page(gate)))


def test_waiting_for_me_follows_permission_approvers_and_groups(make_user, sign_in, open_gate):
    user = make_user("decide_approval", "shop.approve_order", groups=["buyers"])
    client = sign_in(user)
    _run, permitted = open_gate(permission="shop.approve_order")
    _run, of_group = open_gate(approvers="buyers")
    _run, of_user = open_gate(approvers=user.pk)
    _run, foreign = open_gate(approvers="sellers")
    _run, forbidden = open_gate(permission="shop.delete_order")
    mine = text(client.get(listing(INBOX)))
    assert all(gate_page(gate) in mine for gate in (permitted, of_group, of_user))
    assert not any(gate_page(gate) in mine for gate in (foreign, forbidden))
    everything = text(client.get(listing(INBOX), {"show": "open"}))
    assert gate_page(foreign) in everything
    page = text(client.get(gate_page(foreign)))
    assert "is not among its approvers" in page
    assert "wf-gate-form" not in page
    assert client.post(gate_page(foreign), {"decision": "approve", "page": "x"}).status_code == 403


def test_deciding_needs_its_permission_in_the_admin(viewer, make_user, sign_in, open_gate):
    run, gate = open_gate()
    page = text(viewer.get(gate_page(gate)))
    assert "wf-gate-form" not in page
    assert viewer.post(gate_page(gate), {"decision": "approve", "page": "x"}).status_code == 403
    assert sign_in(make_user()).get(listing(INBOX)).status_code == 403
    assert sign_in(make_user()).get(gate_page(gate)).status_code == 403
    assert not run.messages.exists()


def test_deciding_needs_a_csrf_token(make_user, sign_in, open_gate):
    run, gate = open_gate()
    client = sign_in(make_user(is_superuser=True), enforce_csrf_checks=True)
    assert client.post(gate_page(gate), {"decision": "approve", "page": "x"}).status_code == 403
    assert not run.messages.exists()


def test_the_form_of_a_gate_is_shown_checked_and_stored(approver, open_gate):
    run, gate = open_gate(with_form=True)
    answer = text(post(approver, gate, "approve", **{"data-amount": "a lot"}))
    assert "Enter a number." in answer
    post(approver, gate, "approve", **{"data-amount": "12.50", "data-urgent": "on"})
    run_until_idle(run)
    assert run.status == "completed"
    stored = run.messages.get().data["data"]
    assert stored == {"amount": Decimal("12.50"), "urgent": True}
    assert "12.50" in text(approver.get(gate_page(gate)))


def test_a_rejection_needs_no_form(approver, open_gate):
    run, gate = open_gate(with_form=True)
    assert "You rejected" in text(post(approver, gate, "reject", **{"data-amount": ""}))
    run_until_idle(run)
    assert run.result == [False]


def test_the_second_click_of_one_page_is_the_same_decision(approver, open_gate):
    run, gate = open_gate()
    data = {"decision": "approve", "page": hidden(approver.get(gate_page(gate)))}
    for _ in range(2):
        answer = text(approver.post(gate_page(gate), data, follow=True))
        assert "You approved" in answer
    assert run.messages.count() == 1
    data["decision"] = "reject"
    assert "This is approved already, by approver" in text(
        approver.post(gate_page(gate), data, follow=True)
    )


def test_whoever_comes_second_is_told_the_decision_that_stands(
    make_user, sign_in, approver, open_gate
):
    run, gate = open_gate()
    other = sign_in(make_user("decide_approval", username="other"))
    page = hidden(other.get(gate_page(gate)))
    post(approver, gate, "approve")
    answer = other.post(gate_page(gate), {"decision": "reject", "page": page}, follow=True)
    assert "This is approved already, by approver: " in text(answer)
    run_until_idle(run)
    answer = other.post(gate_page(gate), {"decision": "reject", "page": page}, follow=True)
    assert "This is approved already, by approver: " in text(answer)


def test_a_stale_page_cannot_decide_a_later_gate_of_the_same_name(
    make_user, sign_in, approver, open_gate
):
    run, first = open_gate(times=2)
    stale = hidden(approver.get(gate_page(first)))
    approve(run, "manager", by=make_user("decide_approval"))
    run_until_idle(run)
    approver.post(gate_page(first), {"decision": "reject", "page": stale})
    run_until_idle(run)
    assert run.steps.get(status="waiting").key == "approval:manager:1"
    assert run.messages.count() == 1


def test_too_late_is_told_as_too_late(approver, open_gate):
    run, gate = open_gate()
    page = hidden(approver.get(gate_page(gate)))
    cancel(run)
    answer = approver.post(gate_page(gate), {"decision": "approve", "page": page}, follow=True)
    assert "Too late" in text(answer)
    timed, gate = open_gate(timeout=60)
    page = hidden(approver.get(gate_page(gate)))
    advance(timedelta(minutes=2))
    run_until_idle(timed)
    answer = approver.post(gate_page(gate), {"decision": "approve", "page": page}, follow=True)
    assert "Too late" in text(answer)
    assert "Nobody decided in time." in text(answer)


def test_gates_of_ended_runs_are_not_open(approver, open_gate):
    run, gate = open_gate()
    cancel(run)
    assert gate_page(gate) not in text(approver.get(listing(INBOX), {"show": "open"}))
    assert "ended without a decision" in text(approver.get(gate_page(gate)))


def test_decided_gates_tell_who_when_and_why(approver, make_user, open_gate):
    run, gate = open_gate()
    reject(run, "manager", by=make_user("decide_approval", username="carla"), comment="no way")
    run_until_idle(run)
    page = text(approver.get(listing(INBOX), {"show": "decided"}))
    assert "by carla" in page
    assert "no way" in page
    assert gate_page(gate) in page


def test_an_early_decision_that_did_not_hold_is_shown_with_the_reason(approver, make_user, gated):
    run = gated.start(approvers="buyers")
    reject(run, "manager", by=make_user(username="eve"))
    run_until_idle(run)
    gate = run.steps.get(kind="approval")
    page = text(approver.get(gate_page(gate)))
    assert "eve" in page
    assert "is not among its approvers" in page


def test_a_decision_is_logged_in_the_admins_history_with_who_and_why(
    approver, make_user, open_gate
):
    run, gate = open_gate()
    post(approver, gate, "approve", comment="because")
    entry = LogEntry.objects.get(object_id=str(run.pk))
    assert entry.user.username == "approver"
    assert entry.change_message == "Approved gate “manager”. Why: because"


def test_a_form_that_this_process_does_not_know_is_told(approver, open_gate):
    _run, gate = open_gate(with_form=True)
    details = payloads.load_json(gate.details)
    details["gate"]["form"] = "tests.gone:Form"
    gate.details = payloads.dump_json(details)
    gate.save()
    page = text(approver.get(gate_page(gate)))
    assert "form can't be shown" in page
    answer = text(post(approver, gate, "approve"))
    assert "Nothing was decided" in answer


def test_a_permission_check_that_raises_is_told_and_hides_no_other_gate(boss, open_gate):
    _run, broken = open_gate(permission="tests.admin.checks:broken")
    _run, fine = open_gate()
    mine = text(boss.get(listing(INBOX), {"show": "mine"}))
    assert gate_page(fine) in mine
    assert gate_page(broken) not in mine
    assert "the check raised" in text(boss.get(gate_page(broken)))


def test_unknown_gates_lead_back_to_the_inbox(boss):
    for key in ("0", "999999", "abc", "9" * 40):
        url = reverse("admin:django_workflows_approvalgate_change", args=[key])
        assert boss.get(url).headers["Location"] == listing(INBOX)


def test_the_pages_take_15_queries_at_most(
    make_user, sign_in, open_gate, django_assert_max_num_queries
):
    client = sign_in(make_user("decide_approval", "view_workflowrun", groups=["buyers"]))
    for _ in range(5):
        _run, gate = open_gate(approvers="buyers")
    for url in (listing(INBOX), f"{listing(INBOX)}?show=decided", gate_page(gate)):
        with django_assert_max_num_queries(15):
            assert client.get(url).status_code == 200


def test_an_approver_who_may_nothing_else_finds_the_way_from_the_index(approver, open_gate):
    _run, gate = open_gate()
    index = text(approver.get(reverse("admin:index")))
    assert "Waiting for your approval" in index
    assert gate_page(gate) in index
    assert listing(INBOX) in index
    assert "You don’t have permission" not in index
    page = text(approver.get(gate_page(gate)))
    assert "/workflowrun/" not in page.partition('id="content"')[2]
