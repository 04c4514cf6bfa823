"""The helpers for tests, as a user's tests would use them."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection, transaction
from django.test import TestCase

from django_workflows import PayloadError, send_message, workflow
from django_workflows.db import clock
from django_workflows.models import WorkflowRun
from django_workflows.pytest_plugin import workflows  # noqa: F401 - a fixture
from django_workflows.testing import advance, reset_clock, run_until_idle, workflow_clock
from tests.lab.models import Thing

ROOT = Path(__file__).parent.parent


@pytest.fixture
def flow():
    @workflow(name="t.flow")
    def flow(ctx):
        ctx.sleep(3600)
        return ctx.wait_for_message("go", timeout=60)

    return flow


# https://github.com/pytest-dev/pytest-django/issues/752
class HostProjectTests(TestCase):
    def test_a_run_goes_from_start_to_end_inside_a_plain_test_case(self):
        @workflow(name="t.host")
        def host(ctx, name):
            thing = ctx.step("create", lambda: Thing.objects.create(name=name).pk)
            return [thing, ctx.wait_for_message("go").data]

        with transaction.atomic():
            run = host.start(name="before")
        run_until_idle(run)
        assert run.status == "suspended"
        send_message(run, "go", 7)
        run_until_idle(run)

        thing = Thing.objects.get(name="before")
        assert (run.status, run.result) == ("completed", [thing.pk, 7])
        # The transaction is still there and usable.
        assert connection.in_atomic_block
        Thing.objects.create(name="after")
        assert Thing.objects.count() == 2

    def test_what_another_test_started_is_gone(self):
        assert not WorkflowRun.objects.exists()


# https://github.com/celery/django-celery-results/issues/210
# https://github.com/wagtail/wagtail/pull/12787
@pytest.mark.parametrize("auto_field", ["AutoField", "BigAutoField"])
def test_no_migration_is_missing_whatever_the_hosts_auto_field_is(auto_field):
    code = f"""
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django_workflows"],
    DEFAULT_AUTO_FIELD="django.db.models.{auto_field}",
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
)
import django
django.setup()
from django.core.management import call_command
call_command("makemigrations", "django_workflows", check=True, dry_run=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "No changes detected in app 'django_workflows'\n"


@pytest.mark.django_db
def test_advance_brings_sleeps_and_timeouts_due(flow):
    run = flow.start()
    assert run_until_idle(run) == 1
    assert run_until_idle(run) == 0
    advance(timedelta(minutes=59))
    assert run_until_idle(run) == 0
    advance(timedelta(minutes=2))
    assert run_until_idle(run) == 1
    assert run.waiting_names == ["go"]
    advance(timedelta(minutes=2))
    assert run_until_idle(run) == 1

    assert (run.status, run.result) == ("completed", None)


@pytest.mark.django_db
def test_without_arguments_everything_that_is_due_is_executed(flow):
    @workflow(name="t.other")
    def other(ctx):
        return "done"

    runs = [flow.start(), other.start(), other.start()]
    assert run_until_idle() == 3

    assert [WorkflowRun.objects.get(pk=run.pk).status for run in runs] == [
        "suspended",
        "completed",
        "completed",
    ]
    # Only runs that are named are refreshed.
    assert [run.status for run in runs] == ["pending"] * 3


@pytest.mark.django_db
def test_only_the_runs_that_are_named_are_executed(flow):
    runs = [flow.start() for _ in range(3)]
    assert run_until_idle(*runs[:2]) == 2

    for run in runs:
        run.refresh_from_db()
    assert [run.status for run in runs] == ["suspended", "suspended", "pending"]


@pytest.mark.django_db
def test_runs_that_wake_each_other_are_executed_until_both_are_idle():
    @workflow(name="t.pong")
    def pong(ctx):
        for _ in range(3):
            message = ctx.wait_for_message("ping")
            ctx.send_message(message.data, "pong")

    @workflow(name="t.ping")
    def ping(ctx, other):
        for _ in range(3):
            ctx.send_message(other, "ping", ctx.run_id)
            ctx.wait_for_message("pong")
        return "done"

    second = pong.start()
    first = ping.start(other=second.pk)
    run_until_idle(first, second)

    assert (first.result, second.status) == ("done", "completed")


@pytest.mark.django_db
def test_a_workflow_that_is_not_registered_is_left_alone(flow):
    run = flow.start()
    WorkflowRun.objects.filter(pk=run.pk).update(workflow_name="t.unknown")

    assert run_until_idle() == 0
    run.refresh_from_db()
    assert (run.status, run.claim_count) == ("pending", 0)


@pytest.mark.django_db
def test_helpers_serialize_as_a_worker_does(flow):
    with pytest.raises(PayloadError):
        send_message(flow.start(), "go", Thing())


def test_the_clock_goes_forward_only_and_is_put_back():
    with pytest.raises(ValueError, match=r"^The workflow clock goes forward only; reset_clock\(\)"):
        advance(timedelta(seconds=-1))
    advance(timedelta(hours=1))
    with workflow_clock():
        advance(timedelta(hours=1))
        assert clock.offset() == 7200
    assert clock.offset() == 3600
    reset_clock()

    assert clock.offset() == 0


@pytest.mark.usefixtures("workflows")
class TestWorkflowsFixture:
    def test_it_executes_and_advances(self, workflows, flow):  # noqa: F811 - the fixture
        run = flow.start()
        workflows.run_until_idle(run)
        workflows.advance(timedelta(hours=1, seconds=1))
        workflows.run_until_idle(run)

        assert run.waiting_names == ["go"]
        assert clock.offset() == 3601
