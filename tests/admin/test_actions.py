"""Cancel, rerun, wake and send, one by one and for many, with their permissions."""

import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from django_workflows import RetryPolicy, cancel, send_message, step, workflow
from django_workflows.models import WorkflowRun
from django_workflows.testing import run_until_idle
from tests.admin.conftest import VIEW, action_page, listing, run_page

pytestmark = pytest.mark.django_db

PERMISSIONS = {
    "cancel": "cancel_workflowrun",
    "rerun": "rerun_workflowrun",
    "wake": "wake_workflowrun",
    "send": "send_message",
}


@pytest.fixture
def operator(make_user, sign_in):
    return sign_in(make_user(*VIEW, *PERMISSIONS.values(), "add_workflowrun", username="op"))


def log_of(run):
    entries = LogEntry.objects.filter(object_id=str(run.pk)).order_by("pk")
    return [(entry.user.username, entry.change_message) for entry in entries]


def send_fields(client, run, **given):
    page = client.get(action_page(run, "send")).content.decode()
    nonce = re.search(r'name="page" value="(\w+)"', page)[1]
    return {"page": nonce, "reason": "", **given}


def test_cancel_asks_first_and_logs_who_and_why(operator, waiting):
    run = waiting.start()
    run_until_idle(run)
    asked = operator.get(action_page(run, "cancel"))
    assert "Cancel this run?" in asked.content.decode()
    run.refresh_from_db()
    assert run.status == "suspended"
    answer = operator.post(action_page(run, "cancel"), {"reason": "a <typo>"}, follow=True)
    run.refresh_from_db()
    assert run.status == "canceled"
    assert run.error["message"] == "a <typo>"
    assert log_of(run) == [("op", "Canceled. Why: a <typo>")]
    assert "a &lt;typo&gt;" in answer.content.decode()


def test_cancel_of_a_completed_run_says_that_it_has_ended(operator, waiting):
    run = waiting.start()
    send_message(run, "go")
    run_until_idle(run)
    for _ in range(2):
        answer = operator.post(action_page(run, "cancel"), {"reason": ""}, follow=True)
        assert "has already ended as &#x27;completed&#x27;" in answer.content.decode()
    run.refresh_from_db()
    assert run.status == "completed"
    assert log_of(run) == []


def test_rerun_goes_on_from_where_it_stopped_or_from_the_start(operator, waiting):
    run = waiting.start()
    run_until_idle(run)
    cancel(run)
    for begin, copied in (("failed", ["prepare"]), ("start", [])):
        answer = operator.post(action_page(run, "rerun"), {"begin": begin, "reason": "again"})
        new = WorkflowRun.objects.filter(rerun_of=run).latest()
        assert answer.headers["Location"] == run_page(new)
        assert [row.key for row in new.steps.all()] == copied
    assert [who for who, _what in log_of(run)] == ["op", "op"]


def test_rerun_of_an_open_run_is_refused_in_words(operator, waiting):
    run = waiting.start()
    answer = operator.post(action_page(run, "rerun"), {"begin": "start"}, follow=True)
    assert "only an ended run can be rerun" in answer.content.decode()


def test_wake_tries_a_step_that_backs_off_at_once(operator):
    calls = []

    def fail():
        calls.append(1)
        raise OSError("away")

    policy = RetryPolicy(
        max_attempts=5,
        initial_interval=timedelta(hours=1),
        max_interval=timedelta(hours=1),
        jitter=False,
    )

    @workflow(name="tests.backing_off")
    def backing_off(ctx):
        ctx.step("call", step(fail, retry=policy))

    run = backing_off.start()
    run_until_idle(run)
    run_until_idle(run)
    assert len(calls) == 1
    operator.post(action_page(run, "wake"), {"reason": "it is back"})
    run_until_idle(run)
    assert len(calls) == 2
    assert log_of(run) == [("op", "Woken. Why: it is back")]


def test_wake_makes_a_run_that_was_put_off_due_and_cuts_no_sleep_short(operator, waiting):
    run = waiting.using(run_after=timedelta(days=1)).start()
    run_until_idle(run)
    assert run.status == "pending"
    operator.post(action_page(run, "wake"), {})
    run_until_idle(run)
    assert run.status == "suspended"

    @workflow(name="tests.sleeper")
    def sleeper(ctx):
        ctx.sleep(timedelta(days=1))

    asleep = sleeper.start()
    run_until_idle(asleep)
    due = asleep.available_at
    operator.post(action_page(asleep, "wake"), {})
    run_until_idle(asleep)
    assert (asleep.status, asleep.available_at) == ("suspended", due)


def test_wake_of_an_ended_run_says_so(operator, waiting):
    run = waiting.start()
    cancel(run)
    answer = operator.post(action_page(run, "wake"), {}, follow=True)
    assert "has already ended" in answer.content.decode()


def test_send_offers_the_name_that_is_waited_for_and_checks_the_json(operator, waiting):
    run = waiting.start(name="a/b ü")
    run_until_idle(run)
    page = operator.get(action_page(run, "send")).content.decode()
    assert 'value="a/b ü"' in page
    bad = send_fields(operator, run, name="a/b ü", **{"data-value": "{"})
    assert "Enter a valid JSON." in operator.post(action_page(run, "send"), bad).content.decode()
    assert not run.messages.exists()
    good = {**bad, "data-value": '{"n": 1}', "reason": "lost"}
    for _ in range(2):
        operator.post(action_page(run, "send"), good)
    assert [message.data for message in run.messages.all()] == [{"n": 1}]
    assert len(log_of(run)) == 1
    run_until_idle(run)
    assert run.result == {"n": 1}


def test_send_shows_the_form_that_the_wait_asks_for(operator, waiting):
    run = waiting.start(with_form=True)
    run_until_idle(run)
    page = operator.get(action_page(run, "send")).content.decode()
    assert 'name="data-street"' in page
    data = send_fields(operator, run, name="go", **{"data-street": "Lane", "data-number": "0"})
    answer = operator.post(action_page(run, "send"), data)
    assert "greater than or equal to 1" in answer.content.decode()
    operator.post(action_page(run, "send"), {**data, "data-number": "7"})
    run_until_idle(run)
    assert run.result == {"street": "Lane", "number": 7}


def test_send_refuses_names_of_our_own_and_ended_runs(operator, waiting):
    run = waiting.start()
    run_until_idle(run)
    given = send_fields(operator, run, name="$approval:x", **{"data-value": "1"})
    answer = operator.post(action_page(run, "send"), given).content.decode()
    assert "are reserved" in answer
    cancel(run)
    answer = operator.post(action_page(run, "send"), {**given, "name": "go"}, follow=True)
    assert "has already ended" in answer.content.decode()


@pytest.mark.parametrize("name", PERMISSIONS)
def test_each_action_needs_its_own_permission(make_user, sign_in, waiting, name):
    run = waiting.start()
    others = [value for key, value in PERMISSIONS.items() if key != name]
    client = sign_in(make_user(*VIEW, *others))
    assert client.get(action_page(run, name)).status_code == 403
    assert client.post(action_page(run, name), {}).status_code == 403
    assert f"wf-action-{name}" not in client.get(run_page(run)).content.decode()
    run.refresh_from_db()
    assert (run.status, run.messages.count(), run.reruns.count()) == ("pending", 0, 0)


@pytest.mark.parametrize("name", PERMISSIONS)
def test_each_action_needs_a_csrf_token(make_user, sign_in, waiting, name):
    run = waiting.start()
    client = sign_in(make_user(is_superuser=True), enforce_csrf_checks=True)
    assert client.post(action_page(run, name), {"reason": ""}).status_code == 403


@pytest.mark.parametrize("name", PERMISSIONS)
def test_an_unknown_run_is_not_found(boss, name):
    url = reverse(
        f"admin:django_workflows_workflowrun_{name}", args=["01890000-0000-7000-8000-000000000000"]
    )
    assert boss.get(url).status_code == 404


def test_many_runs_are_canceled_after_a_page_that_lists_them(operator, waiting):
    runs = [waiting.using(workflow_id=f"many/{n}").start() for n in range(3)]
    done = waiting.start()
    send_message(done, "go")
    run_until_idle()
    chosen = {"action": "cancel_selected", "_selected_action": [run.pk for run in (*runs, done)]}
    asked = operator.post(listing("workflowrun"), chosen).content.decode()
    assert "many/0" in asked
    assert "1 selected run is left out" in asked
    assert WorkflowRun.objects.filter(status="canceled").count() == 0
    answer = operator.post(
        listing("workflowrun"), {**chosen, "confirmed": "yes", "reason": "all wrong"}, follow=True
    )
    assert "3 runs: done." in answer.content.decode()
    assert WorkflowRun.objects.filter(status="canceled").count() == 3
    assert log_of(runs[0]) == [("op", "Canceled. Why: all wrong")]


def test_many_runs_are_rerun(operator, waiting):
    runs = [waiting.start() for _ in range(2)]
    for run in runs:
        cancel(run)
    chosen = {"action": "rerun_selected", "_selected_action": [run.pk for run in runs]}
    assert (
        "Where it stopped".lower()
        in operator.post(listing("workflowrun"), chosen).content.decode().lower()
    )
    operator.post(
        listing("workflowrun"), {**chosen, "confirmed": "yes", "begin": "failed", "reason": ""}
    )
    assert WorkflowRun.objects.filter(rerun_of__in=runs).count() == 2


def test_bulk_actions_are_neither_offered_nor_obeyed_without_permission(viewer, waiting):
    run = waiting.start()
    page = viewer.get(listing("workflowrun")).content.decode()
    assert "cancel_selected" not in page
    given = {"action": "cancel_selected", "_selected_action": [run.pk], "confirmed": "yes"}
    assert viewer.post(listing("workflowrun"), given).status_code == 403
    run.refresh_from_db()
    assert run.status == "pending"


def test_select_across_never_reaches_beyond_the_page(operator, waiting):
    runs = [waiting.start() for _ in range(3)]
    given = {
        "action": "cancel_selected",
        "_selected_action": [runs[0].pk],
        "select_across": "1",
        "confirmed": "yes",
        "reason": "",
    }
    operator.post(listing("workflowrun"), given)
    assert WorkflowRun.objects.filter(status="canceled").count() == 1
