"""Number of statements of the hot paths: a feature must add none to a run that doesn't use it."""

import re

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_workflows import send_message
from django_workflows.store import leases
from django_workflows.testing import run_until_idle
from tests.claiming import claim, claim_batch, park
from tests.lab import workflows as lab

pytestmark = pytest.mark.django_db(transaction=True)


def add(n):
    return n + 1


@pytest.fixture
def statements():
    """Statements on our tables, and what begins and ends transactions, in a block."""

    class Statements(CaptureQueriesContext):
        @property
        def heads(self):
            texts = [query["sql"].lstrip() for query in self.captured_queries]
            return [re.split(r"[\s(]", text)[0].upper() for text in texts]

    return lambda: Statements(connection)


def test_a_start_is_one_statement(statements):
    with statements() as seen:
        lab.steps.start(count=3)
    assert len(seen) == 1


def test_a_start_with_an_id_looks_inserts_and_looks_again(statements):
    with statements() as seen:
        lab.steps.using(workflow_id="x").start()
    extra = 1 if connection.vendor == "sqlite" else 0
    assert len(seen) == 5 + extra, seen.heads

    with statements() as seen:
        assert lab.steps.using(workflow_id="x").start().deduplicated
    assert len(seen) == 3 + extra, seen.heads


@pytest.mark.parametrize("key", [None, "k"])
def test_a_send_is_one_statement(statements, key):
    run = lab.wait_once.start()
    with statements() as seen:
        send_message(run, "go", idempotency_key=key)
    assert len(seen) == 1


def test_a_send_in_a_transaction_is_one_statement_and_no_savepoint(statements):
    run = lab.wait_once.start()
    with transaction.atomic(), statements() as seen:
        send_message(run, "go")
    assert len(seen) == 1


def test_a_run_of_three_steps_is_a_claim_three_records_and_an_end(statements):
    lab.steps.start(count=3)
    with statements() as seen:
        (claimed,) = claim_batch()
        execute(claimed)
    ours = [query for query in seen.captured_queries if "django_workflows" in query["sql"]]
    assert len(ours) == 5, seen.heads
    # Nothing but the statements themselves: no transaction around one of them.
    assert len(seen) == 5 + 3, "and the three effects of the steps' own functions"


def execute(claimed):
    from django_workflows.runtime import inline

    inline.execute(claimed)


@pytest.mark.postgresql("it records and consumes in one statement")
def test_a_message_that_is_there_is_taken_by_one_statement(statements):
    run = lab.wait_once.start()
    send_message(run, "go")
    claimed = claim(run)
    with statements() as seen:
        execute(claimed)
    # The take, and the end.
    assert len(seen) == 2, seen.heads


@pytest.mark.postgresql("it looks in one statement")
def test_a_park_is_a_look_and_one_short_transaction(statements):
    claimed = claim(lab.wait_once.start())
    with statements() as seen:
        execute(claimed)
    assert len(seen) == 1 + 6, seen.heads
    assert seen.heads[1] == "BEGIN"
    assert seen.heads[-1] == "COMMIT"


def test_an_idle_poll_is_one_statement(statements):
    lab.nap.start(seconds=3600)
    run_until_idle()
    with statements() as seen:
        leases.look()
    assert len(seen) == 1


def test_a_route_of_many_runs_costs_no_more_than_of_one(statements):
    started = [lab.wait_once.start() for _ in range(10)]
    for run in started:
        assert park(claim(run), "go")
    send_message(started[0], "go")
    with statements() as one:
        assert leases.route() == 1
    for run in started[1:]:
        send_message(run, "go")
    with statements() as nine:
        assert leases.route() == 9
    assert len(one) == len(nine)
