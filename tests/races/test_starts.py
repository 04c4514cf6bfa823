"""Starts of one workflow id at once: one open run, and everybody is told which."""

import json

import pytest
from django.db import transaction

from django_workflows import WorkflowAlreadyStarted
from django_workflows.models import WorkflowRun
from django_workflows.store import runs
from tests.claiming import claim, rolled_back
from tests.lab import workflows as lab
from tests.waiting import Background, in_threads

pytestmark = pytest.mark.django_db(transaction=True)

row_locks = pytest.mark.postgresql("on SQLite a second writer waits for the whole transaction")
nap = lab.nap.using(workflow_id="x")


def finish(run):
    runs.finish(claim(run), status="completed", result="1", error=None)


def test_of_starts_at_once_one_makes_the_run():
    for n in range(10):
        workflow = lab.nap.using(workflow_id=f"x{n}")
        started = in_threads(*[lambda workflow=workflow: workflow.start(seconds=1)] * 6)
        assert len({run.pk for run in started}) == 1
        assert sum(not run.deduplicated for run in started) == 1
    assert WorkflowRun.objects.count() == 10


def test_of_processes_that_start_at_once_one_makes_the_run(call_process):
    callers = [call_process("tests.lab.races:start_with_id", "x", n) for n in range(4)]
    told = [json.loads(caller.communicate(timeout=60)[0]) for caller in callers]

    assert {pk for pk, _ in told} == {str(WorkflowRun.objects.get().pk)}
    assert sorted(known for _, known in told) == [False, True, True, True]


def test_of_starts_at_once_after_an_end_one_makes_the_new_run():
    finish(nap.start(seconds=1))
    again = nap.using(id_reuse="allow")

    started = in_threads(*[lambda: again.start(seconds=2)] * 6)

    assert len({run.pk for run in started}) == 1
    assert WorkflowRun.objects.open().count() == 1
    assert WorkflowRun.objects.count() == 2


@row_locks
def test_a_start_waits_for_one_in_flight_and_returns_its_run():
    with transaction.atomic():
        first = nap.start(seconds=1)
        second = Background(lambda: nap.start(seconds=2)).wait_until_blocked()

    again = second.result()
    assert (again, again.deduplicated, again.input) == (first, True, {"seconds": 1})
    assert WorkflowRun.objects.count() == 1


@row_locks
def test_a_start_that_waited_for_one_that_is_rolled_back_makes_its_own_run():
    with rolled_back():
        nap.start(seconds=1)
        second = Background(lambda: nap.start(seconds=2)).wait_until_blocked()

    assert (second.result().deduplicated, second.result().input) == (False, {"seconds": 2})


@row_locks
@pytest.mark.parametrize("reuse", ["return", "raise", "allow"])
def test_a_start_that_waited_for_one_that_has_ended_meanwhile_goes_by_its_reuse(reuse):
    with transaction.atomic():
        first = nap.start(seconds=1)
        second = Background(lambda: nap.using(id_reuse=reuse).start(seconds=2))
        second.wait_until_blocked()
        finish(first)

    if reuse == "return":
        assert (second.result(), second.result().deduplicated) == (first, True)
    elif reuse == "raise":
        with pytest.raises(WorkflowAlreadyStarted):
            second.result()
    else:
        assert (second.result() == first, second.result().deduplicated) == (False, False)
    assert WorkflowRun.objects.count() == (2 if reuse == "allow" else 1)


@row_locks
def test_starts_of_other_ids_do_not_wait():
    with transaction.atomic():
        nap.start(seconds=1)
        other = Background(lambda: lab.nap.using(workflow_id="y").start(seconds=1)).result(10)
    assert other.workflow_id == "y"
