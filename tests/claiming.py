"""A worker's steps by hand: claim a run, make entries, park it."""

from contextlib import contextmanager, suppress
from uuid import uuid4

from django.db import transaction

from django_workflows.db.dialects import dialect
from django_workflows.db.records import Entry
from django_workflows.registry import registry
from django_workflows.store import leases, messages, runs
from django_workflows.store.runs import Parking


def claim(run, worker_id=None):
    claimed = leases.claim_one(run.pk, worker_id)
    assert claimed is not None, f"run {run.pk} isn't due"
    return claimed


def claim_batch(limit=100, queues=(), worker_id=None, pairs=None):
    pairs = registry.pairs() if pairs is None else pairs
    return leases.claim_batch(worker_id, pairs, list(queues), limit)


def claim_and_lose(run):
    """The claim of a worker that was taken for dead, and the claim of the next one."""
    zombie = claim(run, uuid4())
    assert leases.take_over_dead() == 1
    return zombie, claim(run)


def entry(claimed, key="step", *, seq=0, kind="step", status="completed", **columns):
    now = claimed.time()
    columns = {"result": "null", "created_at": now, "started_at": now, **columns}
    if status == "waiting":
        columns["result"] = None
    return Entry(seq=seq, key=key, name=key, kind=kind, status=status, **columns)


def wait_entry(claimed, name, **columns):
    return entry(claimed, name, kind="message", status="waiting", **columns)


def take(claimed, *names, seq=0, if_none=None):
    """What a wait does first."""
    waiting = wait_entry(claimed, f"{names[0]}:{seq}", seq=seq)
    return messages.take(claimed, waiting, names, if_none)


def park(claimed, *names, seq=0, wake_at=None):
    """Park on messages of these names, as a wait that found none does."""
    waiting = wait_entry(claimed, names[0], seq=seq, wake_at=wake_at)
    look = lambda: messages.is_there(claimed.run_id, names)  # noqa: E731
    return runs.park(claimed, Parking(waiting, names, look))


def parked(run, *names):
    """The run, parked on messages of these names."""
    assert park(claim(run), *names)
    run.refresh_from_db()
    assert run.status == "suspended"
    return run


def fetch(template, **params):
    return dialect().fetch(template, **params)


class _Undone(Exception):
    pass


@contextmanager
def rolled_back():
    """An atomic block that an error ends."""
    with suppress(_Undone), transaction.atomic():
        yield
        raise _Undone
