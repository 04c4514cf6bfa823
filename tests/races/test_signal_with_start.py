"""Any number of callers of `signal_with_start` at once: one run, and every message in its inbox."""

import json
import threading
from contextlib import nullcontext

import pytest
from django.db import transaction

from django_workflows import WorkflowAlreadyStarted, cancel, signal_with_start
from django_workflows.models import WorkflowMessage, WorkflowRun
from django_workflows.store import runs
from django_workflows.testing import run_until_idle
from tests.claiming import claim, rolled_back
from tests.lab import workflows as lab
from tests.waiting import Background, eventually, in_threads

pytestmark = pytest.mark.django_db(transaction=True)

row_locks = pytest.mark.postgresql("on SQLite a second writer waits for the whole transaction")

CALLERS = 20


def reply(data=None, key=None, workflow_id="t", is_atomic=False, **options):
    with transaction.atomic() if is_atomic else nullcontext():
        return signal_with_start(
            lab.ticket,
            workflow_id=workflow_id,
            name="reply",
            data=data,
            idempotency_key=key,
            **options,
        )


def finish(run):
    runs.finish(claim(run), status="completed", result="1", error=None)


# https://github.com/temporalio/temporal/pull/11968
def test_of_twenty_processes_at_once_one_starts_and_every_message_is_there(call_process, tmp_path):
    callers = [
        call_process("tests.lab.races:reply_at_once", str(tmp_path), n) for n in range(CALLERS)
    ]
    eventually(lambda: len(list(tmp_path.glob("ready-*"))) == CALLERS, timeout=120)
    (tmp_path / "go").touch()
    answers = []
    for caller in callers:
        output, errors = caller.communicate(timeout=60)
        assert caller.returncode == 0, errors
        answers.append(json.loads(output))

    assert WorkflowRun.objects.count() == 2
    for told, workflow_id in zip(zip(*answers, strict=True), ("plain", "atomic"), strict=True):
        run = WorkflowRun.objects.get(workflow_id=workflow_id)
        assert {run_id for run_id, _, _ in told} == {str(run.pk)}
        assert len({message for _, message, _ in told}) == CALLERS
        assert [started for _, _, started in told].count(True) == 1
        run_until_idle(run)
        assert sorted(run.result) == list(range(CALLERS))


@pytest.mark.parametrize("is_atomic", [False, True])
def test_of_twenty_threads_at_once_one_starts_and_every_message_is_there(is_atomic):
    for n in range(5):
        call = lambda n=n: reply(n, workflow_id=f"t{n}", is_atomic=is_atomic)  # noqa: E731
        sent = in_threads(*[call] * CALLERS)
        assert len({each.run.pk for each in sent}) == 1
        assert [each.started for each in sent].count(True) == 1
        assert sent[0].run.messages.count() == CALLERS
    assert WorkflowRun.objects.count() == 5


def test_of_twenty_threads_at_once_after_an_end_one_starts_the_new_run():
    cancel(reply("old").run)

    sent = in_threads(*[reply] * CALLERS)

    assert [each.started for each in sent].count(True) == 1
    assert {each.run.pk for each in sent} == {WorkflowRun.objects.open().get().pk}
    assert WorkflowRun.objects.count() == 2


@pytest.mark.parametrize("has_ended", [False, True])
def test_of_twenty_threads_with_one_key_one_stores_also_when_its_run_has_ended(has_ended):
    if has_ended:
        finish(lab.ticket.using(workflow_id="t").start())

    sent = in_threads(*[lambda: reply("once", key="k")] * CALLERS)

    assert len({(each.run.pk, each.message.pk) for each in sent}) == 1
    assert [each.started for each in sent].count(True) == 1
    assert [each.message.deduplicated for each in sent].count(False) == 1
    assert WorkflowMessage.objects.count() == 1


@row_locks
def test_a_caller_waits_for_a_start_in_flight_and_delivers_to_its_run():
    with transaction.atomic():
        first = reply("first")
        second = Background(lambda: reply("second")).wait_until_blocked()

    assert (second.result().run, second.result().started) == (first.run, False)
    assert first.run.messages.count() == 2


@row_locks
def test_a_caller_whose_forerunner_is_rolled_back_starts_the_run_itself():
    with rolled_back():
        first = reply("first")
        second = Background(lambda: reply("second")).wait_until_blocked()

    assert second.result().started
    assert second.result().run != first.run
    assert [message.data for message in WorkflowMessage.objects.all()] == ["second"]


@row_locks
def test_callers_to_an_open_run_do_not_wait_for_each_other():
    run = reply("first").run
    with transaction.atomic():
        reply("second")
        assert Background(lambda: reply("third")).result(10).run == run
    assert run.messages.count() == 3


@row_locks
@pytest.mark.parametrize("end", [finish, cancel])
def test_a_run_that_ends_between_the_look_and_the_send_leads_to_a_new_run(end):
    run = reply("first").run
    with transaction.atomic():
        end(run)
        # Found open, and then locked: that waits for the end.
        second = Background(lambda: reply("second")).wait_until_blocked()

    second = second.result()
    assert (second.started, second.run.status, second.run == run) == (True, "pending", False)
    assert [message.data for message in run.messages.all()] == ["first"]


@row_locks
def test_an_end_that_is_rolled_back_leaves_the_run_to_the_caller():
    run = reply("first").run
    with rolled_back():
        cancel(run)
        second = Background(lambda: reply("second")).wait_until_blocked()

    assert (second.result().run, second.result().started) == (run, False)


@row_locks
def test_a_run_that_started_and_ended_between_the_look_and_the_insert_leads_to_a_new_run():
    with transaction.atomic():
        first = lab.ticket.using(workflow_id="t").start()
        second = Background(lambda: reply("second")).wait_until_blocked()
        finish(first)

    assert second.result().started
    assert [run.status for run in WorkflowRun.objects.order_by("id")] == ["completed", "pending"]
    assert not first.messages.exists()


@row_locks
@pytest.mark.parametrize("reuse", ["raise", "allow_failed"])
def test_what_id_reuse_forbids_is_seen_though_it_came_after_the_look(reuse):
    with transaction.atomic():
        first = lab.ticket.using(workflow_id="t").start()
        second = Background(lambda: reply("second", id_reuse=reuse)).wait_until_blocked()
        finish(first)

    with pytest.raises(WorkflowAlreadyStarted) as caught:
        second.result()
    assert caught.value.run == first
    assert (WorkflowRun.objects.count(), WorkflowMessage.objects.count()) == (1, 0)


# https://github.com/cadence-workflow/cadence/pull/4210
@row_locks
def test_a_key_that_a_run_accepted_and_ended_with_after_the_look_starts_nothing():
    with transaction.atomic():
        first = reply("once", key="k")
        second = Background(lambda: reply("once", key="k")).wait_until_blocked()
        finish(first.run)

    second = second.result()
    assert (second.run, second.message, second.started) == (first.run, first.message, False)
    assert (WorkflowRun.objects.count(), WorkflowMessage.objects.count()) == (1, 1)


def test_callers_beside_runs_that_end_all_the_time_lose_no_message():
    is_over = threading.Event()

    def work():
        while not is_over.is_set():
            run_until_idle()
        return []

    def call(caller):
        try:
            return [reply([caller, n], key=f"{caller}:{n}") for n in range(25)]
        finally:
            finished.release()

    finished = threading.Semaphore(0)

    def stop():
        for _ in range(4):
            finished.acquire(timeout=60)
        is_over.set()
        return []

    called = in_threads(work, stop, *[lambda caller=c: call(caller) for c in range(4)])
    sent = [each for result in called for each in result]
    run_until_idle()

    assert len({each.message.pk for each in sent}) == WorkflowMessage.objects.count() == 100
    started = {each.run.pk for each in sent if each.started}
    assert started == set(WorkflowRun.objects.values_list("pk", flat=True))
    assert not WorkflowRun.objects.open().exists()
    for run in WorkflowRun.objects.all():
        taken = [message.data for message in run.messages.consumed()]
        assert sorted(run.result) == sorted(taken)
        # Unread is only what came when the body had looked for the last time.
        assert all(message.created_at <= run.finished_at for message in run.messages.all())
