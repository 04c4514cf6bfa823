"""`manage.py workflowsdoctor` and the health view: each kind of fault is found, and only then."""

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_workflows import cancel, send_message
from django_workflows.fields import uuid7
from django_workflows.health import health
from django_workflows.models import WorkflowMessage, WorkflowRun, WorkflowWorker
from django_workflows.registry import registry
from django_workflows.store import leases
from django_workflows.testing import advance, run_until_idle
from tests.claiming import claim
from tests.lab import workflows as lab

pytestmark = pytest.mark.django_db

LONG_AGO = timedelta(minutes=5)


@pytest.fixture(autouse=True)
def _own_runs_only(settings):
    settings.DJANGO_WORKFLOWS = {"MAX_CRASHES": 3}


def live_worker(pairs=None, lease=60):
    worker_id = uuid7()
    leases.register_worker(
        worker_id,
        name="doctor",
        host="here",
        pid=1,
        queues=[],
        pairs=registry.pairs() if pairs is None else pairs,
        lease=timedelta(seconds=lease),
    )
    return worker_id


def doctor(*arguments):
    """Exit status and output."""
    out = StringIO()
    try:
        call_command("workflowsdoctor", *arguments, stdout=out, no_color=True)
    except SystemExit as ended:
        return ended.code, out.getvalue()
    return 0, out.getvalue()


def found():
    """Kind → finding."""
    _status, told = doctor("--json")
    return {finding["kind"]: finding for finding in json.loads(told or "[]")}


def change(run, **columns):
    WorkflowRun.objects.filter(pk=run.pk).update(**columns)


def test_a_database_without_runs_is_well():
    assert doctor() == (0, "All well.\n")
    assert found() == {}


def test_runs_that_wait_sleep_or_have_ended_are_well():
    live_worker()
    lab.wait_once.start()
    lab.nap.start(seconds=3600)
    lab.steps.start(count=1)
    run_until_idle()
    cancel(lab.wait_once.start())
    assert doctor() == (0, "All well.\n")


def test_open_runs_without_a_live_worker_are_an_error():
    run = lab.wait_once.start()
    text = "there are open runs and no live worker; start manage.py runworkflows"
    assert doctor() == (2, f"error [no_worker] 1: {text}\n")
    live_worker()
    assert doctor()[0] == 0
    WorkflowWorker.objects.update(stopped_at=timezone.now())
    assert set(found()) == {"no_worker"}
    cancel(run)
    assert doctor()[0] == 0


def test_a_process_that_only_resumes_runs_is_no_worker():
    lab.wait_once.start()
    live_worker(pairs=[])
    assert set(found()) == {"no_worker"}


def test_runs_of_a_workflow_that_no_worker_knows_are_an_error():
    known, unknown = lab.wait_once.start(), lab.nap.start(seconds=1)
    live_worker(pairs=[(known.workflow_name, known.version)])
    (finding,) = found().values()
    assert finding == {
        "kind": "unknown_workflow",
        "level": "error",
        "text": (
            f"open runs of {unknown.workflow_name!r} version {unknown.version!r}, which no live "
            "worker has registered"
        ),
        "count": 1,
        "examples": [str(unknown.pk)],
    }


def test_a_run_past_its_deadline_that_nobody_ended_is_an_error():
    live_worker()
    run = lab.wait_once.using(deadline=timedelta(seconds=30)).start()
    fresh = lab.wait_once.using(deadline=timedelta(hours=1)).start()
    assert found() == {}
    change(run, deadline_at=timezone.now() - LONG_AGO, available_at=None)
    status, told = doctor()
    assert status == 2
    assert "error [overdue] 1: runs are past their deadline and not ended" in told
    assert str(run.pk) in told
    assert str(fresh.pk) not in told


def test_runs_that_have_been_due_for_minutes_are_a_warning():
    live_worker()
    run = lab.steps.start()
    assert found() == {}
    change(run, available_at=timezone.now() - LONG_AGO)
    status, told = doctor()
    assert status == 1
    assert told.startswith("warning [unclaimed] 1: runs have been due for minutes")


def test_a_run_whose_code_no_longer_matches_is_an_error():
    live_worker()
    run = lab.wait_once.start()
    change(run, problem="position 0: …")
    assert found()["nondeterministic"]["examples"] == [str(run.pk)]
    assert doctor()[0] == 2


def die_on(run, times):
    for _ in range(times):
        claim(run, uuid7())
        leases.take_over_dead()


def test_a_run_given_up_as_poison_is_an_error_for_a_day():
    run = lab.steps.start()
    die_on(run, 3)
    run.refresh_from_db()
    assert (run.status, run.error["type"]) == ("failed", "PoisonRun")
    assert found()["poison"]["examples"] == [str(run.pk)]
    change(run, finished_at=timezone.now() - timedelta(days=2))
    assert found() == {}


def test_a_run_that_failed_by_itself_after_a_crash_is_not_called_poison():
    run = lab.wait_for_all.start(names=[""])
    die_on(run, 2)
    run_until_idle(run)
    assert (run.status, run.error["type"]) == ("failed", "ValueError")
    assert found() == {}


def test_a_limit_of_one_crash_is_poison_too(settings):
    settings.DJANGO_WORKFLOWS = {"MAX_CRASHES": 1}
    die_on(lab.steps.start(), 1)
    run = lab.wait_for_all.start(names=[""])
    run_until_idle(run)
    assert run.status == "failed"
    assert found()["poison"]["count"] == 1


def test_a_worker_that_died_is_a_warning_and_one_that_stopped_is_not():
    leases.stop_worker(live_worker())
    assert doctor()[0] == 0
    dead = live_worker()
    WorkflowWorker.objects.filter(pk=dead).update(lease_until=timezone.now() - LONG_AGO)
    assert doctor()[0] == 1
    assert found()["stale_worker"]["examples"] == [str(dead)]
    WorkflowWorker.objects.filter(pk=dead).update(heartbeat_at=timezone.now() - timedelta(days=2))
    assert doctor()[0] == 0


def test_messages_that_nobody_routes_are_an_error_and_consumed_ones_are_not():
    live_worker()
    run = lab.wait_once.start()
    message = send_message(run, "go")
    assert found() == {}
    WorkflowMessage.objects.update(created_at=timezone.now() - LONG_AGO)
    assert found()["unrouted"]["examples"] == [str(message.pk)]
    run_until_idle(run)
    WorkflowMessage.objects.update(routed=False)
    assert found() == {}


def test_a_missing_index_is_an_error():
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX workflows_run_due")
    finding = found()["missing_index"]
    assert (finding["level"], finding["examples"]) == ("error", ["workflows_run_due"])


def test_a_wrong_setting_is_an_error(settings):
    settings.DJANGO_WORKFLOWS = {"LEASE_SECONDS": "30"}
    finding = found()["settings"]
    assert finding["examples"] == ["django_workflows.E001"]
    assert "DJANGO_WORKFLOWS['LEASE_SECONDS'] is '30'." in finding["text"]


def test_a_moved_clock_is_a_warning():
    advance(timedelta(hours=1))
    assert found()["clock"]["level"] == "warning"
    assert doctor()[0] == 1


def test_counts_and_examples_are_bounded():
    live_worker()
    for _ in range(7):
        change(lab.wait_once.start(), problem="x")
    finding = found()["nondeterministic"]
    assert (finding["count"], len(finding["examples"])) == (7, 5)


def test_looking_writes_nothing():
    lab.steps.start()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        doctor()
    verbs = {query["sql"].split()[0].upper() for query in queries}
    assert verbs <= {"SELECT", "PRAGMA", "WITH"}


def answer(method="get"):
    response = health(getattr(RequestFactory(), method)("/"))
    return response.status_code, response.content and json.loads(response.content or "null")


def test_the_health_view_answers_200_with_warnings_and_503_with_errors():
    assert answer() == (200, {"status": "ok", "findings": []})
    dead = live_worker()
    WorkflowWorker.objects.filter(pk=dead).update(lease_until=timezone.now() - LONG_AGO)
    warning = {"kind": "stale_worker", "level": "warning", "count": 1}
    assert answer() == (200, {"status": "ok", "findings": [warning]})
    lab.wait_once.start(name="secret-name")
    error = {"kind": "no_worker", "level": "error", "count": 1}
    assert answer() == (503, {"status": "error", "findings": [error, warning]})


def test_the_health_view_only_reads_and_isnt_cached():
    response = health(RequestFactory().post("/"))
    assert response.status_code == 405
    assert "no-store" in health(RequestFactory().get("/")).headers["Cache-Control"]
