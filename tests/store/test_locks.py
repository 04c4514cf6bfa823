"""The ways into a transaction: what they lock, and that a refusal harms no caller's transaction."""

import sqlite3
from contextlib import suppress
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, connections, transaction

from django_workflows import LeaseLost, RunNotFound
from django_workflows.db.dialects import dialect
from django_workflows.store import locks
from tests.claiming import claim, claim_and_lose
from tests.lab import workflows as lab
from tests.lab.models import Thing

pytestmark = pytest.mark.django_db

MODES = ("for_update", "for_no_key_update", "for_key_share")


@pytest.fixture
def run():
    return lab.steps.start()


@pytest.mark.parametrize("mode", MODES)
def test_a_locked_run_tells_its_status_and_claim(run, mode):
    with locks.locked_run(dialect(), run.pk, mode) as found:
        assert found == ("pending", None)
    claimed = claim(run)
    with locks.locked_run(dialect(), run.pk, mode) as found:
        assert found == ("running", claimed.token)


def test_a_run_that_is_not_there_leaves_the_callers_transaction_usable():
    with transaction.atomic():
        with pytest.raises(RunNotFound), locks.locked_run(dialect(), uuid4(), "for_update"):
            pytest.fail("entered")
        Thing.objects.create(name="after")
    assert Thing.objects.count() == 1


def test_what_a_block_wrote_goes_when_it_raises_and_the_caller_goes_on(run):
    with transaction.atomic():
        Thing.objects.create(name="before")
        with suppress(IntegrityError), locks.locked_run(dialect(), run.pk, "for_update"):
            Thing.objects.create(name="within")
            Thing.objects.create(pk=Thing.objects.get(name="within").pk)
        Thing.objects.create(name="after")
    assert set(Thing.objects.values_list("name", flat=True)) == {"before", "after"}


def test_the_fence_lets_the_holder_in_and_nobody_else(run):
    zombie, claimed = claim_and_lose(run)
    with locks.fenced(dialect(), run.pk, claimed.token) as status:
        assert status == "running"
    for token in (zombie.token, uuid4()):
        with pytest.raises(LeaseLost), locks.fenced(dialect(), run.pk, token):
            pytest.fail("entered")
    with pytest.raises(LeaseLost), locks.fenced(dialect(), uuid4(), claimed.token):
        pytest.fail("entered")


@pytest.mark.sqlite("the one database without row locks")
@pytest.mark.django_db(transaction=True)
def test_a_transaction_is_the_only_writer_before_it_looks_also_where_it_is_deferred(
    run, monkeypatch
):
    monkeypatch.setattr(connections["default"], "transaction_mode", None)
    other = sqlite3.connect(connection.settings_dict["NAME"], timeout=0, isolation_level=None)
    try:
        with (
            locks.transaction(dialect()),
            pytest.raises(sqlite3.OperationalError, match="database is locked"),
        ):
            other.execute("BEGIN IMMEDIATE")
        other.execute("BEGIN IMMEDIATE")
    finally:
        other.close()


@pytest.mark.postgresql("its four row locks")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("held", "wanted", "waits"),
    [
        ("for_key_share", "for_key_share", False),
        ("for_key_share", "for_no_key_update", False),
        ("for_key_share", "for_update", True),
        ("for_no_key_update", "for_key_share", False),
        ("for_no_key_update", "for_no_key_update", True),
        ("for_no_key_update", "for_update", True),
        ("for_update", "for_key_share", True),
        ("for_update", "for_no_key_update", True),
    ],
)
def test_which_locks_wait_for_which(run, held, wanted, waits):
    other = connection.copy()
    try:
        with locks.locked_run(dialect(), run.pk, held), other.cursor() as cursor:
            text = dialect().text(
                f"SELECT id FROM {{run}} WHERE id = %(run)s {{{wanted}}} {{skip_locked}}"
            )
            cursor.execute(text, {"run": run.pk})
            assert (cursor.fetchone() is None) is waits
    finally:
        other.close()
