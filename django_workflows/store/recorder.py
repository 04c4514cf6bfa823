"""How a pass's records and its run's end reach the database; each returns after the commit.

Alone, in the calling thread; or shared: of the threads of a worker that write at one moment, one
commits for all. A thread that finds nobody writing goes ahead at once, so that a lone run never
waits for company; those that come meanwhile are committed together by the next. What the batch
couldn't write (a lock, a conflict, a lost lease) its own thread writes alone, with the errors that
belong to it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from django.db import DatabaseError, InterfaceError

from django_workflows.db import batches, records
from django_workflows.db import runs as sql
from django_workflows.db.batches import Ending
from django_workflows.db.dialects import dialect
from django_workflows.db.records import Entry
from django_workflows.exceptions import LeaseLost
from django_workflows.store.leases import Claim
from django_workflows.telemetry import emit

MAX_BATCH = 50


@dataclass(slots=True)
class Recorded:
    """What a record's commit told: the entry with its id, and the run's status then."""

    entry: Entry
    run_status: str


@dataclass(slots=True)
class _Write:
    """One thread's write, and the lock on which the thread waits for its outcome."""

    claim: Claim
    what: Entry | Ending
    outcome: tuple[int | None, str | None] | None = None
    batch: list[_Write] | None = None
    settled: threading.Lock = field(default_factory=threading.Lock)


class SharedWriter:
    """Commits the writes of many threads together.

    Args:
        leaders: batches under way at once: while one waits for the disk, another can be built.
    """

    def __init__(self, leaders: int = 1) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Write] = []
        self._free = leaders

    def write(self, claim: Claim, what: Entry | Ending) -> tuple[int | None, str | None] | None:
        """What was written, after its commit; None for what has to be written alone."""
        mine = _Write(claim, what)
        with self._lock:
            leads = self._free > 0
            if leads:
                self._free -= 1
            else:
                mine.settled.acquire()
                self._waiting.append(mine)
        if leads:
            self._lead([mine])
        else:
            # Woken with an outcome, or with a batch to lead.
            mine.settled.acquire()
            if mine.batch is not None:
                self._lead(mine.batch)
        return mine.outcome

    def _lead(self, batch: list[_Write]) -> None:
        try:
            self._commit(batch)
        finally:
            self._hand_on()
            for write in batch[1:]:
                write.settled.release()

    def _commit(self, batch: list[_Write]) -> None:
        if len(batch) == 1:
            batch[0].outcome = _write_alone(batch[0].claim, batch[0].what, skip_locked=True)
            emit("batch.committed", size=1)
            return
        items: list[batches.Item] = [(w.claim.run_id, w.claim.token, w.what) for w in batch]
        try:
            written = batches.write_all(dialect(), items)
        except (DatabaseError, InterfaceError) as error:
            # Each thread finds out alone what came of its own.
            emit("batch.failed", size=len(batch), error=error)
            return
        for write in batch:
            write.outcome = written.get(write.claim.run_id)
        emit("batch.committed", size=len(batch))

    def _hand_on(self) -> None:
        with self._lock:
            if not self._waiting:
                self._free += 1
                return
            batch = self._waiting[:MAX_BATCH]
            del self._waiting[:MAX_BATCH]
        leader = batch[0]
        leader.batch = batch
        leader.settled.release()


def _write_alone(
    claim: Claim, what: Entry | Ending, *, skip_locked: bool = False
) -> tuple[int | None, str | None] | None:
    d = dialect()
    if isinstance(what, Entry):
        return records.write(d, claim.run_id, claim.token, what, skip_locked=skip_locked)
    done = sql.finish(
        d,
        claim.run_id,
        claim.token,
        status=what.status,
        result=what.result,
        error=what.error,
        skip_locked=skip_locked,
    )
    return (None, None) if done else None


_shared: SharedWriter | None = None


def share_writes(writer: SharedWriter | None) -> None:
    """Have the threads of this process commit together through `writer`; None: each alone."""
    global _shared
    _shared = writer


def _write_shared(claim: Claim, what: Entry | Ending) -> tuple[int | None, str | None] | None:
    d = dialect()
    if _shared is None or not d.writes_with or d.connection.in_atomic_block:
        return None
    return _shared.write(claim, what)


def record(claim: Claim, entry: Entry) -> Recorded:
    """Write one entry of a run's record, fenced by the claim's token.

    Raises:
        LeaseLost: another worker has the run; nothing was written.
    """
    emit("record.writing", run=claim.run_id, key=entry.key)
    asked_at = time.monotonic()
    d = dialect()
    written = _write_shared(claim, entry) if entry.id is None else None
    if written is None:
        written = _write_alone(claim, entry)
        if written is None:
            raise LeaseLost(claim.run_id)
    step_id, run_status = written
    assert run_status is not None
    entry.id = step_id
    claim.confirmed = asked_at
    if claim.crashes and entry.status != "running":
        sql.forget_crashes(d, claim.run_id, claim.token)
        claim.crashes = 0
    emit("step.recorded", run=claim.run_id, key=entry.key, status=entry.status)
    return Recorded(entry, run_status)


def record_taken(claim: Claim, entries: list[Entry]) -> None:
    """Write entries that consume messages read ahead, all of them in one commit.

    Raises:
        LeaseLost: another worker has the run, or it has ended; nothing was written.
    """
    asked_at = time.monotonic()
    ids = records.write_taken(dialect(), claim.run_id, claim.token, entries)
    if ids is None:
        raise LeaseLost(claim.run_id)
    claim.confirmed = asked_at
    for entry in entries:
        entry.id = ids[entry.seq]
        emit("message.consumed", run=claim.run_id, name=entry.name, id=entry.message)
        entry.message = None


def finish(claim: Claim, *, status: str, result: str | None, error: str | None) -> bool:
    """End a claimed run; False when the claim was lost, or the run has been ended otherwise."""
    ending = Ending(status, result, error)
    if claim.parent is None and _write_shared(claim, ending) is not None:
        return True
    return _write_alone(claim, ending) is not None
