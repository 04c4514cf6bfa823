"""The figure: races of a send with a park, and how many of them leave the run parked for ever."""

import os
import time

import pytest

from django_workflows.models import WorkflowMessage, WorkflowRun

pytestmark = [
    pytest.mark.postgresql("on SQLite one write lock orders every send and park"),
    pytest.mark.timeout(900),
]

RACES = int(os.environ.get("LOST_WAKEUP_RACES", "200"))
SENDERS = 4
# Longer than the test: only what a send does itself may wake a run.
POLL_SECONDS = "3600"


def unfinished():
    return WorkflowRun.objects.open().count()


def lost_wakeups(start_worker, call_process, *, races, guards):
    """Race; the number of runs that stay parked beside their message."""
    start_worker("--concurrency", "8", "--poll-interval", POLL_SECONDS, LAB_RACE=guards)
    share = -(-races // SENDERS)
    senders = [
        call_process("tests.lab.races:send_around_parks", share, seed) for seed in range(SENDERS)
    ]
    for sender in senders:
        told, complained = sender.communicate(timeout=800)
        assert sender.returncode == 0, complained
        assert told.strip() == str(share)
    assert WorkflowMessage.objects.count() == WorkflowRun.objects.count() == share * SENDERS
    return settled()


def settled(quiet_seconds=2.0):
    """Number of open runs once none has ended for a while."""
    least, give_up = unfinished(), time.monotonic() + quiet_seconds
    while least and time.monotonic() < give_up:
        time.sleep(0.05)
        now = unfinished()
        if now < least:
            least, give_up = now, time.monotonic() + quiet_seconds
    return least


def test_no_wakeup_is_lost_in_races_of_senders_with_a_parking_worker(
    start_worker, call_process, capsys
):
    lost = lost_wakeups(start_worker, call_process, races=RACES, guards="guarded")

    with capsys.disabled():
        print(f"\n{RACES} races with the guards: {lost} lost wake-ups")
    assert lost == 0


@pytest.mark.parametrize("guards", ["no-look-under-lock", "no-lock-in-router"])
def test_without_either_guard_the_same_races_lose_wakeups(
    start_worker, call_process, capsys, guards
):
    lost = lost_wakeups(start_worker, call_process, races=RACES, guards=guards)

    with capsys.disabled():
        print(f"\n{RACES} races with {guards}: {lost} lost wake-ups")
    assert lost > 0
    stuck = WorkflowRun.objects.open()
    assert set(stuck.values_list("status", "messages__routed")) == {("suspended", True)}
