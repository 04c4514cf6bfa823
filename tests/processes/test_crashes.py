"""Workers that are killed in the middle of a run."""

import os
import signal

import pytest

from django_workflows import send_message
from tests.lab import workflows as lab
from tests.lab.models import Effect
from tests.processes.conftest import effects, live_pids, status_of, wait_until_parked
from tests.waiting import eventually


@pytest.mark.parametrize(
    ("point", "took"),
    [
        ("message.consumed:1", 1),
        ("record.writing:1", 2),
        ("step.recorded:1", 1),
        ("run.parking:1", 1),
    ],
)
def test_after_a_kill_the_same_wait_gets_the_same_message(start_worker, point, took):
    """Claim, wait result and the run's state change commit together.

    Public report: https://github.com/veryfront/veryfront-code/pull/4159
    """
    run = lab.wait_many.start(count=3)
    send_message(run, "go", "m1")
    send_message(run, "go", "m2")

    killed = start_worker("--lease", "1", LAB_KILL=point)
    assert killed.process.wait(20) == -signal.SIGKILL
    consumed = dict(run.messages.values_list("consumed_by__key", "data"))
    assert "m1" not in consumed.values() or consumed["message:go"] == "m1"

    start_worker("--lease", "1")
    wait_until_parked(run)
    send_message(run, "go", "m3")

    assert run.wait(20).result == ["m1", "m2", "m3"]
    assert effects(run) == {"took-0": took, "took-1": 1, "took-2": 1}
    keys = ["message:go", "message:go:1", "message:go:2"]
    assert list(run.messages.order_by("pk").values_list("consumed_by__key", flat=True)) == keys


def test_a_workers_death_in_a_step_counts_as_an_attempt(start_worker):
    run = lab.shaken.start()
    first = start_worker("--lease", "1")
    assert first.process.wait(20) == -signal.SIGKILL
    start_worker("--lease", "1")

    assert run.wait(20).result == "survived"
    assert run.steps.get().attempts == 2


@pytest.mark.parametrize(
    ("start", "error"),
    [
        (
            lab.deadly_once.start,
            "outcome unknown: the worker died in this step, which runs at most once",
        ),
        (lambda: lab.deadly.start(policy=1), "the worker died in the step's last attempt"),
    ],
    ids=["at most once", "one attempt"],
)
def test_a_step_that_may_be_called_only_once_is_not_called_again_after_a_kill(
    start_worker, start, error
):
    run = start()
    first = start_worker("--lease", "1")
    assert first.process.wait(20) == -signal.SIGKILL
    start_worker("--lease", "1")

    ended = run.wait(20)

    assert ended.status == "failed"
    assert ended.error["type"].rpartition(".")[2] == "StepFailed"
    assert error in ended.error["message"]
    assert effects(run) == {"died": 1}


def test_a_run_that_kills_its_workers_is_given_up_and_the_others_go_on(start_worker):
    run = lab.deadly.start()
    # One claim at a time, so that the others don't die with it.
    supervisor = start_worker("--processes", "2", "--concurrency", "1", "--lease", "1", wait=False)
    eventually(lambda: effects(run).get("died"))
    others = [lab.steps.start(count=2) for _ in range(5)]

    assert {other.wait(40).status for other in others} == {"completed"}
    ended = run.wait(60)

    assert ended.status == "failed"
    assert "its worker died 5 times in a row" in ended.error["message"]
    assert effects(run) == {"died": 5}
    eventually(lambda: len(live_pids()) == 2)
    assert supervisor.stop() == 0


def test_killing_the_worker_again_and_again_repeats_no_recorded_step(start_worker, capsys):
    """Always the one that executes the run, as soon as it has got on."""
    run = lab.steps.start(count=50, seconds=0.02)
    workers = [start_worker("--lease", "1", wait=False) for _ in range(3)]
    kills = 0

    def made():
        return Effect.objects.filter(run=run.pk).count()

    while kills < 8:
        before = made()
        eventually(lambda before=before: made() > before + 2 or status_of(run) == "completed")
        if status_of(run) == "completed":
            break
        last = Effect.objects.filter(run=run.pk).latest("pk").pid
        os.kill(last, signal.SIGKILL)
        kills += 1
        workers.append(start_worker("--lease", "1", wait=False))

    assert run.wait(60).result == list(range(50))
    calls = effects(run)
    repeated = sum(calls.values()) - 50
    with capsys.disabled():
        print(f"\n{kills} kills, {repeated} of 50 steps called again")
    assert kills >= 5
    assert set(calls) == {f"step-{n}" for n in range(50)}
    assert repeated <= kills
    for n, step in enumerate(run.steps.order_by("seq")):
        after = Effect.objects.filter(run=run.pk, name=f"step-{n}", at__gt=step.finished_at)
        assert not after.exists(), f"step {n} was called after it had been recorded"
