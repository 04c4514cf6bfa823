"""What each dialect makes of instants, ids and lists; and the clock."""

import time
from datetime import timedelta
from uuid import uuid4

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections

from django_workflows.db import clock
from django_workflows.db.base import At, Later
from django_workflows.db.dialects import dialect
from django_workflows.models import WorkflowRun
from django_workflows.testing import advance
from tests.lab import workflows as lab

pytestmark = pytest.mark.django_db


def one(template, **params):
    return dialect().one(template, **params)[0]


def now():
    return dialect().epoch(one("SELECT {epoch_now}"))


def test_the_dialect_is_that_of_the_configured_database(settings):
    assert dialect().vendor == connection.vendor
    assert dialect().alias == "default"
    assert dialect() is dialect("default")


def test_another_kind_of_database_is_refused_with_its_name(monkeypatch):
    monkeypatch.setattr(connections["default"], "vendor", "oracle")
    with pytest.raises(ImproperlyConfigured) as raised:
        dialect()
    assert str(raised.value) == (
        "django_workflows can't use 'oracle' (database 'default'). Name a PostgreSQL or SQLite "
        "database in DJANGO_WORKFLOWS['DATABASE']."
    )


@pytest.mark.parametrize("epoch", [0.0, 1.5, 1767322245.000006, 4102444800.25, -86400.0])
def test_an_instant_survives_the_database_to_the_microsecond(epoch):
    run = lab.steps.start()
    dialect().execute(
        "UPDATE {run} SET deadline_at = {at[when]} WHERE id = %(run)s", when=At(epoch), run=run.pk
    )
    stored = one("SELECT {epoch[deadline_at]} FROM {run} WHERE id = %(run)s", run=run.pk)

    assert abs(dialect().epoch(stored) - epoch) < 1e-6
    run.refresh_from_db()
    assert abs(run.deadline_at.timestamp() - epoch) < 1e-6


def test_no_instant_is_null():
    run = lab.steps.start()
    assert dialect().epoch(one("SELECT {epoch[deadline_at]} FROM {run}")) is None
    dialect().execute("UPDATE {run} SET available_at = {at[when]}", when=None)
    run.refresh_from_db()
    assert run.available_at is None


def test_now_is_the_databases_and_moves_within_a_transaction():
    first = now()
    assert abs(first - time.time()) < 5
    assert now() > first


def test_later_counts_from_now():
    run = lab.steps.start()
    before = now()
    dialect().execute("UPDATE {run} SET deadline_at = {later[delay]}", delay=Later(60))
    run.refresh_from_db()
    assert before + 60 <= run.deadline_at.timestamp() <= now() + 60


def test_the_offset_of_tests_moves_every_now():
    before = now()
    advance(timedelta(days=1))
    assert clock.offset() == 86400
    assert 86400 <= now() - before < 86410
    assert 86400 <= lab.steps.start().created_at.timestamp() - before < 86410

    clock.set_offset(0)
    assert now() - before < 10


def test_ids_and_lists_are_adapted():
    first, second = lab.steps.start(), lab.steps.start()
    rows = dialect().fetch(
        "SELECT id FROM {run} WHERE id {any[ids]} ORDER BY id", ids=[second.pk, first.pk, uuid4()]
    )
    assert [dialect().uid(row[0]) for row in rows] == [first.pk, second.pk]
    assert dialect().fetch("SELECT id FROM {run} WHERE id {any[ids]}", ids=[]) == []
    assert dialect().uid(None) is None


def test_text_with_quotes_percent_signs_and_braces_is_a_parameter_like_any():
    text = "100% {run} '\"; DROP TABLE x -- %s %(run)s"
    assert one("SELECT {text[it]}", it=text) == text


@pytest.mark.parametrize(
    ("names", "name", "waits"),
    [
        ('["go"]', "go", True),
        ('["stop","go"]', "go", True),
        ('["go"]', "g", False),
        ('["go"]', "Go", False),
        ('["a\\"b%"]', 'a"b%', True),
        ("", "go", False),
    ],
)
def test_a_wait_is_matched_by_exactly_its_names(names, name, waits):
    lab.steps.start()
    WorkflowRun.objects.update(waiting_for=names)
    text = "SELECT count(*) FROM {run} r, (SELECT {text[it]} AS name) m WHERE {waits_for[m.name]}"
    assert one(text, it=name) == waits


def test_statements_of_the_package_are_seen_by_djangos_instrumentation():
    seen = []

    def wrapper(execute, sql, params, many, context):
        seen.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(wrapper):
        one("SELECT {epoch_now}")
    assert len(seen) == 1


@pytest.mark.sqlite("it stores instants as text")
def test_instants_are_stored_as_text_that_sorts_by_time():
    lab.steps.start()
    texts = []
    for epoch in (-1.0, 0.0, 0.5, 1767322245.0, 1767322245.000001):
        dialect().execute("UPDATE {run} SET deadline_at = {at[when]}", when=At(epoch))
        texts.append(one("SELECT CAST(deadline_at AS text) FROM {run}"))
    assert texts == sorted(texts)
