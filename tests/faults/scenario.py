"""Start, messages, signals, gates, sleeps, retries, children, cancel: all of it, end to end."""

from __future__ import annotations

import time
from datetime import timedelta

from django_workflows import cancel, get_run, send_message, signal_with_start
from django_workflows.models import WorkflowRun
from tests.faults import cases
from tests.lab import saga_flows as sagas
from tests.lab.callers import persistently

# How long all of it may take on a slow machine.
PATIENCE = timedelta(seconds=90)


def play(count=3):
    """Drive `count` of each through whatever workers there are; fails by an assertion."""
    stories = ("work", "waits", "inbox", "family")
    runs = {name: [cases.CASES[name].begin() for _ in range(count)] for name in stories}
    doomed = sagas.forever.start()
    tickets = [
        signal_with_start(sagas.wait, workflow_id=f"ticket-{n}", name="go", data=1).run
        for n in range(count)
    ]
    give_up = time.monotonic() + PATIENCE.total_seconds()
    while WorkflowRun.objects.exclude(pk=doomed.pk).open().exists():
        assert time.monotonic() < give_up, list(WorkflowRun.objects.open())
        for run in runs["waits"]:
            cases.feed_all(run)
        time.sleep(0.02)
    assert cancel(doomed).status == "canceled"
    for name, begun in runs.items():
        for run in begun:
            run.refresh_from_db()
            cases.CASES[name].verify(run)
    for run in tickets:
        run.refresh_from_db()
        cases.expect(run, 1)
    cases.check_invariants()


def start_inboxes(count, size):
    """Runs that take `size` messages each; at most once, however often it is called."""
    for n in range(count):
        sagas.inbox.using(workflow_id=f"inbox-{n}").start(count=size)


def send_to_inboxes(sender, count, size):
    """Send without any precaution: whoever is told that the database is locked fails."""
    for n in range(size):
        for inbox in range(count):
            send_message(get_run(workflow_id=f"inbox-{inbox}"), "m", [sender, n])


def check_inboxes(count, size, senders):
    """Wait until all have taken everything, each sender's messages in their order."""
    for n in range(count):
        run = get_run(workflow_id=f"inbox-{n}").wait(PATIENCE.total_seconds())
        assert run.status == "completed", run.error
        assert sorted(run.result) == [[s, k] for s in range(senders) for k in range(size)]
        for sender in range(senders):
            assert [k for s, k in run.result if s == sender] == list(range(size))
    cases.check_invariants()


def send_many(runs, count):
    """Send `count` messages to each run, one transaction each."""
    for n in range(count):
        for run in runs:
            persistently(send_message, run, "m", n, idempotency_key=str(n))
