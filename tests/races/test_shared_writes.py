"""Records of a worker's threads, committed together: none spoils or waits for another."""

import pytest
from django.db import IntegrityError, connection, transaction

from django_workflows import LeaseLost, cancel, send_message
from django_workflows.db.dialects import dialect
from django_workflows.models import WorkflowRun, WorkflowStep
from django_workflows.store import leases, locks, recorder, runs
from django_workflows.store.recorder import SharedWriter, share_writes
from django_workflows.telemetry import subscribed
from tests.claiming import claim, claim_and_lose, entry
from tests.lab import workflows as lab
from tests.waiting import Background, in_threads

pytestmark = [
    pytest.mark.postgresql("it writes several runs in one statement"),
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture(autouse=True)
def _shared():
    share_writes(SharedWriter())
    yield
    share_writes(None)


@pytest.fixture
def batches():
    """Sizes of the batches that were committed."""
    sizes = []
    with subscribed("batch.committed", lambda event, fields: sizes.append(fields["size"])):
        yield sizes


def outcome(write):
    """What a write did, also where it raised."""

    def call():
        try:
            return write()
        except (LeaseLost, IntegrityError) as error:
            return type(error)

    return call


def test_records_of_many_threads_are_all_committed_when_their_calls_return(batches):
    claims = [claim(lab.steps.start()) for _ in range(16)]

    def work(claimed):
        def record_all():
            for seq in range(20):
                given = entry(claimed, f"s{seq}", seq=seq, result=f'"{seq} \\\\u0000 é"')
                recorded = recorder.record(claimed, given)
                assert WorkflowStep.objects.get(pk=recorded.entry.id).key == f"s{seq}"
            runs.finish(claimed, status="completed", result=f'"{claimed.run_id}"', error=None)

        return record_all

    in_threads(*map(work, claims))

    for claimed in claims:
        run = WorkflowRun.objects.get(pk=claimed.run_id)
        assert (run.status, run.result) == ("completed", str(run.pk))
        assert (run.claim_token, run.claimed_by, run.available_at) == (None, None, None)
        assert [(step.seq, step.status) for step in run.steps.all()] == [
            (seq, "completed") for seq in range(20)
        ]
    assert sum(batches) == 16 * 21
    assert max(batches) > 1


def test_a_lost_lease_a_known_key_and_a_cancel_spoil_no_neighbour():
    for _ in range(10):
        zombie, _ = claim_and_lose(lab.steps.start())
        twice, canceled, well, ending, ended = (claim(lab.steps.start()) for _ in range(5))
        recorder.record(twice, entry(twice))
        cancel(canceled.run_id)
        cancel(ended.run_id)

        def record(claimed):
            return outcome(lambda: recorder.record(claimed, entry(claimed)).run_status)

        def finish(claimed):
            return outcome(lambda: runs.finish(claimed, status="completed", result="1", error=None))

        got = in_threads(
            *map(record, (zombie, twice, canceled, well)), finish(ending), finish(ended)
        )
        assert got == [LeaseLost, IntegrityError, "canceled", "running", None, LeaseLost]
        steps = WorkflowStep.objects.filter(run_id__in=[well.run_id, canceled.run_id])
        assert steps.count() == 2
        assert WorkflowStep.objects.filter(run_id=zombie.run_id).count() == 0
        assert WorkflowRun.objects.get(pk=ending.run_id).status == "completed"
        assert WorkflowRun.objects.get(pk=ended.run_id).status == "canceled"


def test_a_locked_run_holds_up_its_own_write_only():
    locked, free = claim(lab.steps.start()), claim(lab.steps.start())
    with locks.locked_run(dialect(), locked.run_id, "for_no_key_update"):
        held = Background(lambda: recorder.record(locked, entry(locked))).wait_until_blocked()
        for seq in range(3):
            given = entry(free, f"s{seq}", seq=seq)
            Background(lambda given=given: recorder.record(free, given)).result(10)
        assert not held.is_done
    assert held.result().run_status == "running"


def test_an_end_waits_for_a_send_in_flight_and_its_neighbours_do_not():
    ending, free = claim(lab.steps.start()), claim(lab.steps.start())
    finish = lambda each: runs.finish(each, status="completed", result="1", error=None)  # noqa: E731
    with transaction.atomic():
        send_message(ending.run_id, "note", "in flight")
        held = Background(lambda: finish(ending)).wait_until_blocked()
        Background(lambda: finish(free)).result(10)
        # A record of a run with an open send needs no wait.
        other = claim(lab.steps.start())
    held.result()

    run = WorkflowRun.objects.get(pk=ending.run_id)
    assert (run.status, run.messages.pending().get().data) == ("completed", "in flight")
    assert runs.standing(other) == "running"


def test_a_send_that_waited_for_a_shared_end_is_refused_and_not_stored():
    for _ in range(20):
        claims = [claim(lab.steps.start()) for _ in range(3)]

        def send(claimed):
            def call():
                try:
                    return send_message(claimed.run_id, "go").pk
                except Exception as error:
                    return type(error).__name__

            return call

        def finish(claimed):
            return lambda: runs.finish(claimed, status="completed", result="1", error=None)

        got = in_threads(*map(send, claims), *map(finish, claims))[:3]
        for claimed, sent in zip(claims, got, strict=True):
            count = WorkflowRun.objects.get(pk=claimed.run_id).messages.count()
            assert (count, sent) in [(0, "RunFinished"), (1, sent)]
            assert count == isinstance(sent, int)


def test_writes_in_a_transaction_are_not_shared(batches):
    claimed = claim(lab.steps.start())
    with transaction.atomic():
        recorder.record(claimed, entry(claimed))
        assert connection.in_atomic_block
    assert batches == []
    assert len(leases.reload_history(claimed.run_id)) == 1
