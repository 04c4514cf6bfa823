"""What people do, from the first click to the last, in a real browser."""

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from django_workflows import get_run, workflow
from django_workflows.models import WorkflowMessage, WorkflowRun
from django_workflows.testing import run_until_idle
from testproject.shop.models import Order
from tests.browser.conftest import APPROVER, STAFF, has_stayed, stay
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

INBOX = "/admin/django_workflows/approvalgate/"


def place_order(page, customer="Ada"):
    page.goto("/orders/new/")
    page.get_by_label("Deliver to").fill(customer)
    page.get_by_label("Product").select_option(index=1)
    page.get_by_role("button", name="Place the order").click()
    expect(page.get_by_role("heading", name="Order ")).to_be_visible()
    return Order.objects.latest("pk")


def gate_of(order):
    run = get_run(workflow_id=order.workflow_id)
    return eventually(lambda: run.steps.filter(kind="approval", status="waiting").first())


def gate_page(step):
    return reverse("admin:django_workflows_approvalgate_change", args=[step.pk])


@pytest.fixture
def gate(make_person, gated):
    """A gate that is open, without a worker that would take its decision."""
    return gated()


@pytest.fixture
def gated(transactional_db):
    @workflow(name="tests.gated")
    def gated(ctx):
        decision = ctx.wait_for_approval("manager", title="Ship it?", description="A teapot.")
        return decision.approved

    def start():
        run = gated.start()
        run_until_idle(run)
        return run.steps.get(kind="approval")

    return start


def test_an_order_is_placed_approved_in_the_admin_and_watched_to_its_end_without_a_reload(
    make_person, open_page, teapot, workers
):
    make_person("customer")
    make_person("manager", *STAFF, is_staff=True)
    inbox = open_page("manager", INBOX)
    expect(inbox.get_by_text("Nothing waits for you.")).to_be_visible()
    stay(inbox)
    shop = open_page("customer")
    order = place_order(shop)
    run = get_run(workflow_id=order.workflow_id)

    expect(inbox.get_by_role("link", name=f"Ship order {order.number}?").first).to_be_visible()
    assert has_stayed(inbox)
    watched = inbox.context.new_page()
    watched.goto(reverse("admin:django_workflows_workflowrun_change", args=[run.pk]))
    expect(watched.get_by_text("Waits for approval “manager”").first).to_be_visible()
    stay(watched)

    inbox.get_by_role("link", name=f"Ship order {order.number}?").first.click()
    inbox.get_by_label("Comment").fill("Looks good")
    inbox.get_by_role("button", name="Approve").click()
    expect(inbox.get_by_text(f"You approved “Ship order {order.number}?”")).to_be_visible()
    expect(inbox.get_by_text("by manager")).to_be_visible()

    expect(watched.locator(".wf-standing")).to_contain_text("Completed")
    expect(watched.get_by_text("Approved by manager. “Looks good”")).to_be_visible()
    assert has_stayed(watched)
    expect(shop.locator("#progress")).to_have_attribute("data-order-status", "shipped")
    run.refresh_from_db()
    assert run.status == "completed"


def test_a_double_click_approves_once(make_person, open_page, gate):
    make_person("approver", *APPROVER, is_staff=True)
    page = open_page("approver", gate_page(gate))
    posts = []
    page.on("request", lambda request: request.method == "POST" and posts.append(request.url))
    page.get_by_role("button", name="Approve").dblclick()
    expect(page.get_by_text("You approved")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    assert len(posts) == 1
    assert WorkflowMessage.objects.filter(run=gate.run).count() == 1


def test_two_clicks_without_scripts_approve_once_too(make_person, open_page, gate):
    make_person("approver", *APPROVER, is_staff=True)
    page = open_page("approver", gate_page(gate), java_script_enabled=False)
    page.get_by_role("button", name="Approve").dblclick(no_wait_after=True)
    expect(page.get_by_text("You approved")).to_be_visible()
    assert WorkflowMessage.objects.filter(run=gate.run).count() == 1


def test_of_two_reviewers_at_once_the_second_is_told_who_decided(make_person, open_page, gate):
    make_person("anna", *APPROVER, is_staff=True)
    make_person("bert", *APPROVER, is_staff=True)
    # Without live refresh the second page would stay stale, which is the point.
    first = open_page("anna", gate_page(gate))
    second = open_page("bert", gate_page(gate), java_script_enabled=False)
    first.get_by_role("button", name="Reject").click()
    expect(first.get_by_text("You rejected")).to_be_visible()
    second.get_by_role("button", name="Approve").click()
    expect(second.get_by_text("This is rejected already, by anna")).to_be_visible()
    expect(second.get_by_role("button", name="Approve")).to_have_count(0)
    assert WorkflowMessage.objects.filter(run=gate.run).count() == 1


def test_a_gate_decided_by_somebody_else_closes_itself_under_the_eyes_of_a_reviewer(
    make_person, open_page, gate
):
    make_person("anna", *APPROVER, is_staff=True)
    make_person("bert", *APPROVER, is_staff=True)
    watching = open_page("bert", gate_page(gate))
    expect(watching.get_by_role("button", name="Approve")).to_be_visible()
    deciding = open_page("anna", gate_page(gate))
    deciding.get_by_role("button", name="Approve").click()
    expect(watching.get_by_text("by anna")).to_be_visible()
    expect(watching.get_by_role("button", name="Approve")).to_have_count(0)


def test_a_gate_is_decided_with_the_keyboard_alone(make_person, open_page, gate):
    make_person("approver", *APPROVER, is_staff=True)
    page = open_page("approver", "/admin/", through="/admin/login/")

    def tab_to(name):
        for _ in range(60):
            page.keyboard.press("Tab")
            focused = page.evaluate("document.activeElement.textContent.trim()")
            if name in focused:
                outline = page.evaluate(
                    "(() => { const s = getComputedStyle(document.activeElement);"
                    " return s.outlineStyle !== 'none' || s.boxShadow !== 'none'"
                    " || s.textDecorationLine !== 'none'; })()"
                )
                assert outline, f"the focus on {name!r} can't be seen"
                return
        raise AssertionError(f"{name!r} isn't reached with Tab")

    tab_to("Ship it?")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Ship it?")).to_be_visible()
    page.get_by_label("Comment").focus()
    page.keyboard.type("by keyboard")
    tab_to("Approve")
    page.keyboard.press("Enter")
    expect(page.get_by_text("You approved")).to_be_visible()
    assert WorkflowMessage.objects.get().data["comment"] == "by keyboard"


def test_live_refresh_keeps_what_was_opened_and_rests_while_the_tab_is_hidden(
    make_person, open_page, gate
):
    make_person("boss", is_staff=True, is_superuser=True)
    page = open_page(
        "boss", reverse("admin:django_workflows_workflowrun_change", args=[gate.run_id])
    )
    page.clock.install()
    page.reload()
    stay(page)
    page.locator("#wf-data-state summary").click()
    fetched = []
    page.on("request", lambda request: fetched.append(request.url))
    WorkflowRun.objects.filter(pk=gate.run_id).update(problem="a new problem", problem_count=1)
    page.clock.run_for(3_000)
    expect(page.get_by_text("a new problem")).to_be_visible()
    assert page.locator("#wf-data-state").get_attribute("open") is not None
    assert has_stayed(page)

    page.wait_for_load_state("networkidle")
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    seen = len(fetched)
    page.clock.run_for(120_000)
    assert len(fetched) == seen
    with page.expect_request("**/workflowrun/**"):
        page.evaluate(
            "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))"
        )
    page.wait_for_load_state("networkidle")
    page.get_by_label("Live").uncheck()
    seen = len(fetched)
    page.clock.run_for(120_000)
    assert len(fetched) == seen


def test_the_pages_obey_a_strict_content_security_policy(make_person, open_page, gate):
    make_person("boss", is_staff=True, is_superuser=True)
    page = open_page("boss", "/admin/")
    refused = []
    page.on("console", lambda message: message.type == "error" and refused.append(message.text))

    def answer(route):
        response = route.fetch()
        policy = {"content-security-policy": "default-src 'self'; img-src 'self' data:"}
        route.fulfill(response=response, headers={**response.headers, **policy})

    page.route("**/admin/**", answer)
    page.route("**/approvals/**", answer)
    for path in (
        "/admin/",
        reverse("admin:django_workflows_workflowrun_changelist"),
        reverse("admin:django_workflows_workflowrun_change", args=[gate.run_id]),
        reverse("admin:django_workflows_workflowrun_send", args=[gate.run_id]),
        INBOX,
        gate_page(gate),
        f"/approvals/{gate.pk}/",
    ):
        page.goto(path)
    assert [text for text in refused if "Security Policy" in text] == []
    bar = "getComputedStyle(document.querySelector('.wf-approve')).backgroundColor"
    assert page.evaluate(bar) == "rgb(27, 110, 60)"


def test_an_approver_may_decide_in_the_sites_own_pages_too(make_person, open_page, teapot, workers):
    make_person("manager", "shop.approve_order")
    page = open_page("manager")
    order = place_order(page)
    gate_of(order)
    page.goto("/approvals/")
    page.get_by_role("link", name=f"Ship order {order.number}?").click()
    page.get_by_role("button", name="Reject").click()
    expect(page.get_by_text("You rejected")).to_be_visible()
    eventually(lambda: Order.objects.filter(pk=order.pk, status="refunded").exists())
