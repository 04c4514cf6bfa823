"""The locking protocol, and the only ways into a transaction.

Whoever decides on what it sees locks the run's row first, in a statement of its own, and looks
only in a later statement: a statement that had to wait for a lock rechecks the row, but its
subqueries keep the snapshot from before the wait.

- A *sender* takes `FOR KEY SHARE`, looks at the status and inserts. Senders share the lock, and
  neither step records nor heartbeats wait for it, however long the caller's transaction is. It
  writes nothing to the run's row, so callers can't deadlock with each other over runs.
- The *router* takes `FOR NO KEY UPDATE SKIP LOCKED` on runs with unrouted messages, in id order,
  then looks: parked on such a name → due now. It marks just the messages that it saw.
- A *parker* takes `FOR NO KEY UPDATE`, looks in the inbox, and parks if it is empty. Router and
  parker exclude each other, so one of them always sees the other's work: a message that commits
  before the parker looks is found; one that commits later is still unrouted, and the router,
  which can only lock after the park has committed, finds the run parked.
- *Finish and cancel* take `FOR UPDATE`, the only mode that conflicts with senders: they wait for
  sends in flight, and a later send reads "finished".
- A *record* is one INSERT guarded by the claim token under `FOR NO KEY UPDATE`; unique by
  (run, key), so a second writer fails as a whole.
- The *lease* is the worker's own row. A take-over makes a run due again with its token cleared,
  and a fresh token per claim fences the old holder out.

The run's row always comes before its messages and steps; several runs are locked in id order. On
SQLite every writer takes the database's one write lock up front, which is all of these modes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from uuid import UUID

from django.db import transaction as django_transaction

from django_workflows.db import runs as sql
from django_workflows.db.base import Dialect
from django_workflows.exceptions import LeaseLost, RunNotFound

Mode = Literal["for_update", "for_no_key_update", "for_key_share"]


@contextmanager
def transaction(d: Dialect) -> Iterator[None]:
    """A transaction, or the caller's own; inside one a savepoint, so a refusal harms nothing."""
    with django_transaction.atomic(using=d.alias):
        if d.vendor == "sqlite":
            # Changes nothing, but a write statement makes this transaction the writer before it
            # looks, also where transactions are deferred.
            d.execute("UPDATE {run} SET crashes = crashes WHERE id IS NULL")
        yield


@contextmanager
def locked_run(d: Dialect, run_id: UUID, mode: Mode) -> Iterator[tuple[str, UUID | None]]:
    """Lock a run for the block: (status, claim token).

    Raises:
        RunNotFound: there is no such run.
    """
    with transaction(d):
        row = sql.lock(d, run_id, mode)
        if row is None:
            raise RunNotFound(run_id)
        yield row[1], row[2]


@contextmanager
def fenced(d: Dialect, run_id: UUID, token: UUID) -> Iterator[str]:
    """Lock a run that is still claimed with this token; yields its status.

    Raises:
        LeaseLost: another claim has been made since, or the run is gone.
    """
    with transaction(d):
        row = sql.lock(d, run_id, "for_no_key_update")
        if row is None or row[2] != token:
            raise LeaseLost(run_id)
        yield row[1]
