"""Ids, payloads and instants as columns."""

import datetime as dt
import threading
from decimal import Decimal

import pytest
from django.core import serializers
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from django_workflows import PayloadError
from django_workflows.fields import to_epoch, to_local, uuid7
from django_workflows.models import WorkflowRun
from tests.lab import workflows as lab

UTC = dt.UTC
VALUES = [
    None,
    {"b": 1, "a": 2},
    [1e16, -0.0],
    "NUL \x00 and \ud800",
    "",
    (1, {2}),
    Decimal("1.10"),
    dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    b"x",
    7,
]


def test_ids_are_version_7_and_increase_also_over_threads():
    made, lock = [], threading.Lock()

    def make():
        mine = [uuid7() for _ in range(500)]
        assert mine == sorted(mine)
        with lock:
            made.extend(mine)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(made)) == 2000
    assert {(each.version, each.variant) for each in made} == {(7, "specified in RFC 4122")}
    assert uuid7() > max(made)


def test_an_id_tells_when_it_was_made():
    before = dt.datetime.now(UTC).timestamp()
    milliseconds = uuid7().int >> 80
    assert before - 0.01 <= milliseconds / 1000 <= dt.datetime.now(UTC).timestamp() + 0.01


def test_ids_increase_when_the_clock_goes_back(monkeypatch):
    first = uuid7()
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000)
    assert uuid7() > first


@pytest.mark.django_db
@pytest.mark.parametrize("value", VALUES)
def test_a_payload_comes_back_as_it_went(value):
    run = lab.steps.start()
    run.input = value
    run.save()

    again = WorkflowRun.objects.get()
    assert again.input == value
    assert repr(again.input) == repr(value)


@pytest.mark.django_db
def test_null_and_the_payload_none_are_both_none():
    run = lab.steps.start()
    assert WorkflowRun.objects.get().result is None
    WorkflowRun.objects.update(result=None)
    assert WorkflowRun.objects.filter(pk=run.pk, result__isnull=True).exists()


@pytest.mark.django_db
def test_a_payload_is_decoded_when_it_is_looked_at(django_assert_num_queries):
    lab.wait_once.start(name="x")
    run = WorkflowRun.objects.defer("input").get()
    with django_assert_num_queries(1):
        assert run.input == {"name": "x"}
    with django_assert_num_queries(0):
        assert run.input is run.input


@pytest.mark.django_db
def test_a_broken_payload_spoils_no_list_that_does_not_show_it():
    lab.steps.start()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_workflows_workflowrun SET result = 'not json'")
    run = WorkflowRun.objects.get()
    assert run.status == "pending"
    with pytest.raises(PayloadError, match="the stored text can't be read"):
        _ = run.result


@pytest.mark.django_db
def test_a_value_that_cannot_be_stored_names_the_field():
    run = lab.steps.start()
    run.result = {"order": object()}
    with pytest.raises(PayloadError, match=r"^result\['order'\]|^result"):
        run.save()


@pytest.mark.django_db
@pytest.mark.parametrize("form", ["json", "xml", "jsonl"])
@pytest.mark.parametrize("value", VALUES)
def test_payloads_survive_dumpdata_and_loaddata(form, value):
    run = lab.steps.start()
    run.input = value
    run.save()
    text = serializers.serialize(form, WorkflowRun.objects.all())
    run.delete()

    for loaded in serializers.deserialize(form, text):
        loaded.save()
    again = WorkflowRun.objects.get()
    assert repr(again.input) == repr(value)
    assert again.result is None
    # Django's own JSON encoder cuts instants to milliseconds.
    assert abs(again.created_at - run.created_at) < dt.timedelta(milliseconds=1)


@pytest.mark.django_db
def test_validation_leaves_a_text_as_it_is():
    run = lab.steps.start()
    run.input = WorkflowRun._meta.get_field("input").clean("no json", run)
    run.save()
    assert WorkflowRun.objects.get().input == "no json"


@pytest.mark.django_db
@pytest.mark.parametrize("use_tz", [True, False])
def test_instants_survive_the_hour_that_comes_twice(use_tz):
    # 05:30 and 06:30 UTC are both 01:30 in New York that night.
    instants = [dt.datetime(2026, 11, 1, hour, 30, tzinfo=UTC).timestamp() for hour in (5, 6)]
    run = lab.steps.start()
    with override_settings(USE_TZ=use_tz, TIME_ZONE="America/New_York"):
        for instant in instants:
            run.available_at = to_local(instant)
            if not use_tz:
                assert (run.available_at.hour, run.available_at.tzinfo) == (1, None)
                run.available_at = run.available_at.replace(fold=int(instant == instants[1]))
            run.save()
            again = WorkflowRun.objects.get().available_at
            assert timezone.is_aware(again) is use_tz
            if use_tz or connection.vendor == "sqlite":
                assert stored_epoch() == instant


def stored_epoch():
    from django_workflows.db.dialects import dialect

    return dialect().epoch(dialect().one("SELECT {epoch[available_at]} FROM {run}")[0])


# https://github.com/rq/rq/pull/1258
@pytest.mark.django_db
@pytest.mark.parametrize("use_tz", [True, False])
def test_a_day_of_sleep_over_the_end_of_summer_time_is_86400_seconds(use_tz, monkeypatch):
    from django_workflows.testing import advance, run_until_idle

    with override_settings(USE_TZ=use_tz, TIME_ZONE="America/New_York"):
        noon = dt.datetime(2026, 10, 31, 16, tzinfo=UTC).timestamp()
        run = lab.nap.start(seconds=86400)
        advance(dt.timedelta(seconds=max(0.0, noon - run_epoch_now())))
        run_until_idle(run)
        slept_from = run.steps.get(kind="sleep").created_at

        assert abs(stored_epoch() - to_epoch(slept_from) - 86400) < 0.001
        advance(dt.timedelta(seconds=86390))
        assert run_until_idle(run) == 0
        advance(dt.timedelta(seconds=11))
        run_until_idle(run)
        assert run.status == "completed"


def run_epoch_now():
    from django_workflows.db.dialects import dialect

    return dialect().epoch(dialect().one("SELECT {epoch_now}")[0])


@pytest.mark.parametrize("use_tz", [True, False])
def test_epochs_and_datetimes_are_converted_both_ways(use_tz):
    with override_settings(USE_TZ=use_tz, TIME_ZONE="Asia/Kolkata"):
        given = to_local(1767322245.000006)
        assert timezone.is_aware(given) is use_tz
        assert given.microsecond == 6
        assert abs(to_epoch(given) - 1767322245.000006) < 1e-6
