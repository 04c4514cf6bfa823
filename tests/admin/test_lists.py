"""The lists: what they show and find, and what they don't load."""

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from django_workflows import cancel, send_message, send_signal, workflow
from django_workflows.admin.filters import first_id
from django_workflows.fields import uuid7
from django_workflows.models import WorkflowMessage, WorkflowRun, WorkflowWorker
from django_workflows.testing import run_until_idle
from tests.admin.conftest import VIEW, listing, run_page

pytestmark = pytest.mark.django_db

RUNS = "workflowrun"
PAYLOADS = ("input", "result", "error", "data")


def found(client, model=RUNS, **query):
    response = client.get(listing(model), query)
    assert response.status_code == 200, response.headers.get("Location")
    return [row.pk for row in response.context["cl"].result_list]


@pytest.mark.parametrize(
    "model",
    [
        "workflowrun",
        "workflowmessage",
        "workflowsignal",
        "workflowstep",
        "workflowworker",
        "approvalgate",
    ],
)
def test_every_list_opens_for_viewers_and_for_nobody_else(
    viewer, make_user, sign_in, waiting, model
):
    run = waiting.start()
    send_message(run, "go", 1)
    run_until_idle(run)
    assert viewer.get(listing(model)).status_code == 200
    assert sign_in(make_user()).get(listing(model)).status_code == 403


@pytest.mark.parametrize(
    "model", ["workflowrun", "workflowmessage", "workflowsignal", "workflowstep", "workflowworker"]
)
def test_nothing_can_be_added_changed_or_deleted_by_hand(boss, waiting, model):
    run = waiting.start()
    assert boss.get(reverse(f"admin:django_workflows_{model}_add")).status_code == 403
    delete = reverse(f"admin:django_workflows_{model}_delete", args=[run.pk])
    assert boss.post(delete, {"post": "yes"}).status_code in (302, 403)
    assert WorkflowRun.objects.filter(pk=run.pk).exists()


def test_a_run_is_found_by_the_beginning_of_its_workflow_id_and_by_its_id(viewer, waiting):
    runs = {
        name: waiting.using(workflow_id=name).start().pk for name in ("a_b", "axb", "a_c", "A_b")
    }
    assert found(viewer, q="a_b") == [runs["a_b"]]
    assert set(found(viewer, q="a_")) == {runs["a_b"], runs["a_c"]}
    assert found(viewer, q="_b") == []
    assert found(viewer, q=str(runs["axb"])) == [runs["axb"]]
    assert found(viewer, q=f" {runs['axb']} ") == [runs["axb"]]
    assert found(viewer, q="%") == []


def test_runs_are_filtered_by_status_workflow_version_and_queue(viewer, waiting):
    first = waiting.start()
    second = waiting.using(queue_name="slow").start()
    cancel(second)
    assert found(viewer, status__exact="canceled") == [second.pk]
    assert found(viewer, queue="slow") == [second.pk]
    assert set(found(viewer, workflow="tests.waiting")) == {first.pk, second.pk}
    assert found(viewer, workflow="tests.other") == []
    assert found(viewer, workflow="tests.waiting", version="2") == []


def test_runs_that_wait_longer_than_a_time_are_found(viewer, waiting):
    run = waiting.start()
    sleeper = waiting.using(run_after=timedelta(days=1)).start()
    run_until_idle(run)
    assert found(viewer, waiting="any") == [run.pk]
    assert found(viewer, waiting="1h") == []
    for age, key in ((2, "1h"), (30, "1d"), (8 * 24, "7d")):
        since = timezone.now() - timedelta(hours=age)
        WorkflowRun.objects.filter(pk=run.pk).update(waiting_since=since)
        assert found(viewer, waiting=key) == [run.pk]
    page = viewer.get(listing(RUNS), {"waiting": "7d"}).content.decode()
    assert "message “go”" in page
    assert "1\xa0week" in page
    run.refresh_from_db()
    assert run.status == "suspended"
    assert sleeper.pk not in found(viewer, waiting="any")


def test_runs_that_failed_in_the_last_day_are_found(viewer, flaky):
    assert found(viewer, attention="failed") == []
    WorkflowRun.objects.filter(pk=flaky.pk).update(status="failed", finished_at=timezone.now())
    assert found(viewer, attention="failed") == [flaky.pk]
    before = timezone.now() - timedelta(days=2)
    WorkflowRun.objects.filter(pk=flaky.pk).update(finished_at=before)
    assert found(viewer, attention="failed") == []


def test_stuck_runs_are_found_and_say_why(viewer, waiting):
    run = waiting.start()
    WorkflowRun.objects.filter(pk=run.pk).update(problem="Replay <differs>", problem_count=3)
    assert found(viewer, attention="stuck") == [run.pk]
    assert "Replay &lt;differs&gt;" in viewer.get(listing(RUNS)).content.decode()
    assert "Replay &lt;differs&gt;" in viewer.get(run_page(run)).content.decode()


def started(waiting, when):
    run = waiting.start()
    key = first_id(when)
    WorkflowRun.objects.filter(pk=run.pk).delete()
    return WorkflowRun.objects.create(
        pk=key,
        workflow_id=str(key),
        workflow_name="tests.waiting",
        input={},
        state={},
        created_at=when,
    )


def test_the_date_drills_down_from_years_to_days(viewer, waiting):
    def at(*day):
        return timezone.make_aware(datetime(*day, 12))

    old = started(waiting, at(2024, 2, 29))
    newer = started(waiting, at(2024, 3, 1))
    assert set(found(viewer, started="2024")) == {old.pk, newer.pk}
    assert found(viewer, started="2024-02") == [old.pk]
    assert found(viewer, started="2024-03-01") == [newer.pk]
    assert found(viewer, started="2023") == []
    page = viewer.get(listing(RUNS), {"started": "2024-02"}).content.decode()
    assert "?started=2024-02-29" in page
    assert "?started=2025" in page
    for nonsense in ("x", "2024-13", "2024-02-30", "0", "99999", "2024-1-1-1"):
        assert viewer.get(listing(RUNS), {"started": nonsense}).status_code == 200


def test_a_day_is_that_of_the_projects_time_zone(viewer, waiting, settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    timezone.get_default_timezone.cache_clear()
    evening = timezone.make_aware(datetime(2024, 5, 1, 23, 30))
    run = started(waiting, evening)
    assert found(viewer, started="2024-05-01") == [run.pk]
    assert found(viewer, started="2024-05-02") == []


def test_pages_follow_one_another_without_a_count(viewer, waiting):
    now = timezone.now()
    WorkflowRun.objects.bulk_create(
        WorkflowRun(
            id=(key := uuid7()),
            workflow_id=str(key),
            workflow_name="tests.waiting",
            input={},
            state={},
            created_at=now,
        )
        for _ in range(105)
    )
    with CaptureQueriesContext(
        connection,
    ) as queries:
        first = viewer.get(listing(RUNS))
    assert not any("COUNT(" in query["sql"].upper() for query in queries)
    assert len(first.context["cl"].result_list) == 50
    assert "?p=2" in first.content.decode()
    seen = {row.pk for row in first.context["cl"].result_list}
    for page, size in ((2, 50), (3, 5)):
        rows = found(viewer, p=page)
        assert len(rows) == size
        seen |= set(rows)
    assert len(seen) == 105
    last = viewer.get(listing(RUNS), {"p": 3}).content.decode()
    assert "?p=4" not in last
    assert viewer.get(listing(RUNS), {"p": 9}).status_code == 302
    for nonsense in ("x", "-1", "9" * 30):
        assert viewer.get(listing(RUNS), {"p": nonsense}).status_code in (200, 302)
    assert len(found(viewer, all="")) == 50


@pytest.mark.parametrize(
    ("model", "query"),
    [
        ("workflowrun", {}),
        ("workflowrun", {"status__exact": "suspended", "workflow": "tests.waiting"}),
        ("workflowrun", {"q": "order"}),
        ("workflowmessage", {}),
        ("workflowmessage", {"state": "all", "age": "1h"}),
        ("workflowsignal", {}),
        ("workflowstep", {}),
        ("workflowworker", {}),
    ],
)
def test_a_list_takes_15_queries_at_most_loads_no_payload_and_joins_no_messages(
    make_user, sign_in, waiting, model, query
):
    client = sign_in(make_user(*VIEW, "cancel_workflowrun"))
    for n in range(10):
        run = waiting.using(workflow_id=f"order/{n}").start()
        send_message(run, "go", n)
        send_message(run, "other", n)
    run_until_idle()
    with CaptureQueriesContext(connection) as queries:
        assert client.get(listing(model), query).status_code == 200
    assert len(queries) <= 15
    for sql in (query["sql"] for query in queries):
        assert not any(f'"{column}"' in sql for column in PAYLOADS), sql
        assert "COUNT(*)" not in sql
        if model == "workflowrun":
            assert "workflowmessage" not in sql


def test_progress_is_shown_where_the_state_tells_it(viewer, waiting):
    run = waiting.start()
    run_until_idle(run)
    page = viewer.get(listing(RUNS)).content.decode()
    assert '<progress class="wf-progress" value="1.0" max="4.0" aria-label="Progress">' in page
    WorkflowRun.objects.filter(pk=run.pk).update(state={"done": 1, "total": 2, "log": "x" * 10_000})
    assert "<progress" not in viewer.get(listing(RUNS)).content.decode()


@pytest.mark.parametrize(
    "state",
    [
        {"done": "1", "total": 2},
        {"done": 5, "total": 0},
        {"done": True, "total": 3},
        {"done": 10**400},
    ],
)
def test_a_state_that_is_no_progress_breaks_nothing(viewer, waiting, state):
    run = waiting.start()
    WorkflowRun.objects.filter(pk=run.pk).update(state=state)
    assert "<progress" not in viewer.get(listing(RUNS)).content.decode()
    assert viewer.get(run_page(run)).status_code == 200


def test_messages_that_nobody_took_are_listed_oldest_first(viewer, waiting):
    run = waiting.start()
    first, second = send_message(run, "b", 1), send_message(run, "a", 2)
    taken = send_message(run, "go", 3)
    run_until_idle(run)
    assert found(viewer, "workflowmessage") == [first.pk, second.pk]
    assert found(viewer, "workflowmessage", state="consumed") == [taken.pk]
    assert found(viewer, "workflowmessage", state="all") == [first.pk, second.pk, taken.pk]
    assert found(viewer, "workflowmessage", name="a") == [second.pk]
    assert found(viewer, "workflowmessage", q="b") == [first.pk]
    assert found(viewer, "workflowmessage", q=str(run.pk)) == [first.pk, second.pk]
    assert found(viewer, "workflowmessage", run=str(run.pk)) == [first.pk, second.pk]
    assert found(viewer, "workflowmessage", run="nonsense") == []
    assert found(viewer, "workflowmessage", age="1h") == []
    old = timezone.now() - timedelta(hours=2)
    WorkflowMessage.objects.filter(pk=first.pk).update(created_at=old)
    assert found(viewer, "workflowmessage", age="1h") == [first.pk]


def test_a_message_leads_to_its_run_and_to_the_step_that_took_it(viewer, waiting):
    run = waiting.start()
    message = send_message(run, "go", {"a": "<b>"}, idempotency_key="key-1")
    run_until_idle(run)
    step = run.steps.get(kind="message")
    url = reverse("admin:django_workflows_workflowmessage_change", args=[message.pk])
    page = viewer.get(url).content.decode()
    assert f"{run_page(run)}?step={step.seq}#step-{step.seq}" in page
    assert "&lt;b&gt;" in page
    assert "key-1" in page
    download = reverse("admin:django_workflows_workflowmessage_data", args=[message.pk])
    assert viewer.get(download).json() == {"a": "<b>"}
    for key in ("0", "x", "9" * 30):
        gone = reverse("admin:django_workflows_workflowmessage_change", args=[key])
        assert viewer.get(gone).headers["Location"] == listing("workflowmessage")


def test_signals_are_listed_with_whom_they_reached(viewer):
    @workflow(name="tests.listener")
    def listener(ctx):
        return ctx.wait_for_signal("news").data

    run = listener.start()
    run_until_idle(run)
    send_signal("news", {"n": "<b>"})
    signal = run.signals.get()
    assert found(viewer, "workflowsignal") == [signal.pk]
    assert found(viewer, "workflowsignal", q="news") == [signal.pk]
    assert found(viewer, "workflowsignal", q="new") == []
    url = reverse("admin:django_workflows_workflowsignal_change", args=[signal.pk])
    page = viewer.get(url).content.decode()
    assert run_page(run) in page
    assert "&lt;b&gt;" in page
    run_until_idle(run)
    assert "Took “news”" in viewer.get(run_page(run)).content.decode()


def test_steps_lead_to_their_place_on_the_runs_page(viewer, waiting):
    run = waiting.start()
    run_until_idle(run)
    step = run.steps.get(name="prepare")
    assert step.pk in found(viewer, "workflowstep")
    assert found(viewer, "workflowstep", status__exact="failed") == []
    url = reverse("admin:django_workflows_workflowstep_change", args=[step.pk])
    expected = f"{run_page(run)}?step={step.seq}#step-{step.seq}"
    assert viewer.get(url).headers["Location"] == expected


def test_the_report_names_the_slowest_and_the_most_failing_steps(viewer, waiting, flaky):
    run_until_idle()
    flaky.steps.update(status="failed", attempts=3, finished_at=timezone.now())
    run = waiting.start()
    run_until_idle(run)
    now = timezone.now()
    run.steps.filter(name="prepare").update(started_at=now - timedelta(seconds=90), finished_at=now)
    page = viewer.get(reverse("admin:django_workflows_workflowstep_report")).content.decode()
    slowest, _, failing = page.partition("Most failing")
    assert slowest.index("prepare") < slowest.index("connect")
    assert "1\xa0minute" in slowest
    assert "1 (100 %)" in failing
    assert "prepare" not in failing


def worker(**given):
    now = timezone.now()
    return WorkflowWorker.objects.create(
        **{
            "name": "w<1>",
            "host": "host",
            "pid": 4242,
            "version": "0.1.0",
            "queues": [],
            "workflows": [["tests.waiting", "1"]],
            "started_at": now,
            "heartbeat_at": now,
            "lease_until": now + timedelta(seconds=30),
            **given,
        }
    )


def test_workers_are_live_stale_or_stopped(viewer, waiting):
    run = waiting.start()
    now = timezone.now()
    doing = [{"run": str(run.pk), "step": "prepare", "seconds": 3.5}]
    live = worker(doing=doing)
    stale = worker(name="old", lease_until=now - timedelta(seconds=1))
    stopped = worker(name="gone", stopped_at=now, lease_until=now)
    WorkflowRun.objects.filter(pk=run.pk).update(status="running", claimed_by=live.pk)
    page = viewer.get(listing("workflowworker")).content.decode()
    for word in ("live", "no sign of life", "stopped", "w&lt;1&gt;", "1 (prepare)", "0.1.0"):
        assert word in page
    assert found(viewer, "workflowworker", life="live") == [live.pk]
    assert found(viewer, "workflowworker", life="stale") == [stale.pk]
    assert found(viewer, "workflowworker", life="stopped") == [stopped.pk]
    one = viewer.get(reverse("admin:django_workflows_workflowworker_change", args=[live.pk]))
    assert run_page(run) in one.content.decode()
    assert "tests.waiting" in one.content.decode()
    assert "Worker: w&lt;1&gt;." in viewer.get(run_page(run)).content.decode()
