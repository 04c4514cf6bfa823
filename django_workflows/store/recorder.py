"""How a pass's records reach the database; `record()` returns after the commit.

One function, so that records of many runs can be committed together without touching semantics.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from django_workflows.db import records
from django_workflows.db import runs as sql
from django_workflows.db.dialects import dialect
from django_workflows.db.records import Entry
from django_workflows.exceptions import LeaseLost
from django_workflows.store.leases import Claim
from django_workflows.telemetry import emit


@dataclass(slots=True)
class Recorded:
    """What a record's commit told: the entry with its id, and the run's status then."""

    entry: Entry
    run_status: str


def record(claim: Claim, entry: Entry) -> Recorded:
    """Write one entry of a run's record, fenced by the claim's token.

    Raises:
        LeaseLost: another worker has the run; nothing was written.
    """
    d = dialect()
    emit("record.writing", run=claim.run_id, key=entry.key)
    written = records.write(d, claim.run_id, claim.token, entry)
    if written is None:
        raise LeaseLost(claim.run_id)
    entry.id = written[0]
    claim.confirmed = time.monotonic()
    if claim.crashes and entry.status != "running":
        sql.forget_crashes(d, claim.run_id, claim.token)
        claim.crashes = 0
    emit("step.recorded", run=claim.run_id, key=entry.key, status=entry.status)
    return Recorded(entry, written[1])


Write = Callable[[], Recorded]
