"""Races of a send with a park: senders in processes of their own, and a worker without guards."""

import os
import random
import socket
import time
from contextlib import nullcontext
from pathlib import Path

from django.db import transaction

from django_workflows import send_message, send_signal, signal_with_start, telemetry
from django_workflows.db import routing
from django_workflows.store import messages

# Between a look and its park. The long one outlasts the worker's own retries of what it found
# locked or not yet parked, which would rescue a run without the guards.
GAPS_SECONDS = (0.0, 0.003, 0.08)
# How long after the announcement a send comes at most.
SPREADS_SECONDS = (0.006, 0.02, 0.1)


def announce(run, port):
    """Tell a sender that the run is about to look into its inbox and to park."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as teller:
        teller.sendto(str(run).encode(), ("127.0.0.1", port))


def send_around_parks(count, seed):
    """Start runs one after the other, and send to each about when it parks; how many."""
    from tests.lab.workflows import announced_wait

    chance = random.Random(seed)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.bind(("127.0.0.1", 0))
        ear.settimeout(30)
        for _ in range(count):
            run = announced_wait.start(port=ear.getsockname()[1])
            assert ear.recv(100).decode() == str(run.pk)
            time.sleep(chance.uniform(0, chance.choice(SPREADS_SECONDS)))
            send_message(run, "go")
    return count


def install():
    """What LAB_RACE says: `guarded`, or which of the two guards this worker goes without."""
    if "LAB_RACE" not in os.environ:
        return
    without = os.environ["LAB_RACE"]
    if without == "no-look-under-lock":
        # The park relies on the look that the wait took, without a lock, before.
        messages.is_there = lambda run_id, names: False
        _pause_at("run.parking")
    elif without == "no-lock-in-router":
        for texts in routing._TEXTS.values():
            texts["lock"] = texts["lock"].replace("{for_no_key_update} {skip_locked}", "")
        _pause_at("park.looked")
    else:
        assert without == "guarded"
        _pause_at("run.parking")
        _pause_at("park.looked")


def _pause_at(event):
    def pause(event, fields):
        time.sleep(random.choice(GAPS_SECONDS))

    telemetry._listeners.setdefault(event, []).append(pause)


def send_keyed(run, name, data, key):
    """Send once; the message's id and whether it was known."""
    message = send_message(run, name, data, idempotency_key=key)
    return [message.pk, message.deduplicated]


def start_with_id(workflow_id, seconds):
    """Start once; the run's id and whether it was known."""
    from tests.lab.workflows import nap

    run = nap.using(workflow_id=workflow_id).start(seconds=seconds)
    return [str(run.pk), run.deduplicated]


def claim_all(limit):
    """Claim in batches until nothing is due; ids of the claimed runs."""
    from django_workflows.registry import registry
    from django_workflows.store import leases

    claimed = []
    while batch := leases.claim_batch(None, registry.pairs(), [], limit):
        claimed += [str(claim.run_id) for claim in batch]
    return claimed


def at_the_file(directory):
    """Say that this process is ready, and wait until all are told to go."""
    ready = Path(directory)
    (ready / f"ready-{os.getpid()}").touch()
    give_up = time.monotonic() + 60
    while not (ready / "go").exists() and time.monotonic() < give_up:
        time.sleep(0.002)


def reply_at_once(directory, n):
    """Signal with start, on its own and inside a transaction; of each the run's id, the message's
    id and whether it started the run."""
    at_the_file(directory)
    told = []
    for workflow_id in ("plain", "atomic"):
        with transaction.atomic() if workflow_id == "atomic" else nullcontext():
            sent = signal_with_start(
                "tests.lab.ticket", workflow_id=workflow_id, name="reply", data=n
            )
        told.append([str(sent.run.pk), sent.message.pk, sent.started])
    return told


def signal_at_once(directory, name, key):
    """Broadcast once; ids of the runs reached."""
    at_the_file(directory)
    return [str(run_id) for run_id in send_signal(name, idempotency_key=key)]
