"""A worker's death in the middle of a run, without a process: its claim stays, its code is gone."""

from uuid import uuid4

import pytest

from django_workflows.runtime import inline
from django_workflows.store import leases


class WorkerDied(BaseException):
    """Raised where a process would be killed: nothing of the package may catch it."""


def execute_until_death(run):
    """Execute `run` for a worker that dies on it, and have its lease found to be over."""
    for source in leases.SOURCES:
        while leases.route(source):
            pass
    # A worker without a row is what a deleted or long dead one looks like.
    claim = leases.claim_one(run.pk, uuid4())
    assert claim is not None, f"run {run.pk} isn't due: {run.status}"
    with pytest.raises(WorkerDied):
        inline.execute(claim)
    assert leases.take_over_dead() == 1
    run.refresh_from_db()
