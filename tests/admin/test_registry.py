"""The registry's page, the warning on the index, and starting a run by hand."""

import datetime as dt
from decimal import Decimal
from enum import Enum
from typing import Literal

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from django_workflows import cancel, workflow
from django_workflows.models import WorkflowRun
from tests.admin.conftest import run_page
from tests.admin.test_lists import worker

pytestmark = pytest.mark.django_db


class Speed(Enum):
    SLOW = 1
    FAST = 2


@pytest.fixture
def typed(db):
    @workflow(name="tests.typed", version=3)
    def typed(
        ctx,
        number: int,
        price: Decimal,
        day: dt.date,
        speed: Speed,
        size: Literal["s", "m"] = "s",
        note: str = "none",
        loud: bool = False,
        tags: list[str] | None = None,
        **extra,
    ):
        """Takes a bit of everything."""

    return typed


def start_url(name, version="3"):
    return reverse("admin:django_workflows_start") + f"?workflow={name}&version={version}"


GIVEN = {
    "input_number": "7",
    "input_price": "9.90",
    "input_day": "2026-05-01",
    "input_speed": "FAST",
    "input_size": "",
    "input_note": "",
    "input_tags": '["a"]',
    "input_extra": "",
    "workflow_id": "",
    "reason": "",
}


def test_a_run_is_started_from_a_form_made_of_the_signature(boss, typed):
    page = boss.get(start_url("tests.typed")).content.decode()
    for name in ("number", "price", "day", "speed", "size", "note", "loud", "tags", "extra"):
        assert f'name="input_{name}"' in page
    given = {**GIVEN, "workflow_id": "by/hand", "reason": "a test"}
    answer = boss.post(start_url("tests.typed"), given)
    run = WorkflowRun.objects.get(workflow_id="by/hand")
    assert answer.headers["Location"] == run_page(run)
    assert (run.workflow_name, run.version) == ("tests.typed", "3")
    assert run.input == {
        "number": 7,
        "price": Decimal("9.90"),
        "day": dt.date(2026, 5, 1),
        "speed": Speed.FAST,
        "loud": False,
        "tags": ["a"],
    }
    entry = LogEntry.objects.get(object_id=str(run.pk))
    assert entry.change_message == "Started in the admin. Why: a test"
    again = boss.post(start_url("tests.typed"), given, follow=True)
    assert "is there already" in again.content.decode()
    assert WorkflowRun.objects.count() == 1


def test_what_does_not_fit_is_told_beside_its_field(boss, typed):
    bad = {**GIVEN, "input_number": "seven", "input_tags": "[", "input_extra": "[1]"}
    page = boss.post(start_url("tests.typed"), bad).content.decode()
    assert "Enter a whole number." in page
    assert "Enter a valid JSON." in page
    assert "Give an object" in page
    assert not WorkflowRun.objects.exists()


def test_starting_needs_its_permission(viewer, typed):
    assert viewer.get(start_url("tests.typed")).status_code == 403
    assert viewer.post(start_url("tests.typed"), GIVEN).status_code == 403
    page = viewer.get(reverse("admin:django_workflows_registry")).content.decode()
    assert "tests.typed" in page
    assert start_url("tests.typed").replace("&", "&amp;") not in page


def test_an_unknown_workflow_cannot_be_started(boss):
    assert boss.get(start_url("tests.unknown")).status_code == 404


def test_the_registry_counts_runs_by_version_and_status(boss, waiting):
    waiting.start()
    cancel(waiting.start())
    response = boss.get(reverse("admin:django_workflows_registry"))
    row = next(row for row in response.context["rows"] if row["name"] == "tests.waiting")
    assert dict(row["counts"]) == {
        "pending": 1,
        "running": 0,
        "suspended": 0,
        "completed": 0,
        "failed": 0,
        "canceled": 1,
    }
    assert "no live worker knows it" in response.content.decode()


def test_runs_that_no_live_worker_knows_are_warned_of_on_the_index(boss, viewer, waiting):
    index = reverse("admin:index")
    assert "no live worker" not in boss.get(index).content.decode()
    waiting.start()
    for client in (boss, viewer):
        page = client.get(index).content.decode()
        assert "1 open run of tests.waiting, version 1, which no live worker has registered" in page
    worker()
    assert "no live worker" not in boss.get(index).content.decode()


def test_the_index_says_nothing_to_those_who_may_not_look(make_user, sign_in, waiting):
    waiting.start()
    page = sign_in(make_user("shop.view_order")).get(reverse("admin:index")).content.decode()
    assert "no live worker" not in page


def test_the_pages_take_15_queries_at_most(
    make_user, sign_in, waiting, django_assert_max_num_queries
):
    waiting.start()
    user = make_user("view_workflowrun", "add_workflowrun", "decide_approval")
    client = sign_in(user)
    for name in ("index", "django_workflows_registry"):
        with django_assert_max_num_queries(15):
            assert client.get(reverse(f"admin:{name}")).status_code == 200
