"""Deliver to the live run of a workflow id, or start it and deliver: one transaction.

Nothing is decided on a look alone. An open run is locked as a sender locks it, so it can't finish
before the message is stored; a new run is inserted under the constraint that allows one open run
per workflow id; and only while that slot is held is it certain that no run of this id has come and
ended since the look: one that has accepted the key, or that `id_reuse` forbids to follow.
"""

from __future__ import annotations

from collections.abc import Callable

from django_workflows.db.base import Dialect
from django_workflows.db.dialects import dialect
from django_workflows.exceptions import WorkflowAlreadyStarted
from django_workflows.models import WorkflowMessage, WorkflowRun
from django_workflows.store import locks, messages, runs
from django_workflows.store.runs import NewRun
from django_workflows.values import SignalWithStart


def signal_with_start(
    make: Callable[[], NewRun],
    *,
    workflow_id: str,
    workflow_name: str,
    name: str,
    data: str,
    key: str | None,
    id_conflict: str,
    id_reuse: str,
) -> SignalWithStart:
    """Send to the open run of a workflow id, else start one that has the message in its inbox.

    Args:
        make: the run to start; called only when one is started.

    Raises:
        WorkflowAlreadyStarted: the id is another workflow's, or as `id_conflict` and `id_reuse`
            ask for.
    """
    d = dialect()
    with locks.transaction(d):
        while True:
            repeated = _repeated(d, workflow_id, workflow_name, key)
            if repeated is not None:
                return repeated
            run = runs.find_open(d, workflow_id)
            if run is not None:
                if run.workflow_name != workflow_name or id_conflict == "raise":
                    raise WorkflowAlreadyStarted(run, workflow_name)
                return _sent(run, name, data, key, started=False)
            _check_ended(d, workflow_id, workflow_name, id_reuse)
            run = runs.insert_unless_open(d, make())
            if run is None:
                # Another caller's start was quicker: it is open now, or has ended already.
                continue
            repeated = _repeated(d, workflow_id, workflow_name, key)
            if repeated is not None:
                WorkflowRun.objects.using(d.alias).filter(pk=run.pk).delete()
                return repeated
            _check_ended(d, workflow_id, workflow_name, id_reuse, but=run)
            return _sent(run, name, data, key, started=True)


def _repeated(
    d: Dialect, workflow_id: str, workflow_name: str, key: str | None
) -> SignalWithStart | None:
    """What was answered when a run of this workflow id accepted the key before."""
    if key is None:
        return None
    found = (
        WorkflowMessage.objects.using(d.alias)
        .filter(run__workflow_id=workflow_id, idempotency_key=key)
        .select_related("run")
        .order_by("id")
        .first()
    )
    if found is None:
        return None
    if found.run.workflow_name != workflow_name:
        raise WorkflowAlreadyStarted(found.run, workflow_name)
    found.deduplicated = True
    found.run.deduplicated = True
    return SignalWithStart(found.run, found, started=False)


def _check_ended(
    d: Dialect,
    workflow_id: str,
    workflow_name: str,
    id_reuse: str,
    but: WorkflowRun | None = None,
) -> None:
    ended = runs.newest(d, workflow_id, but=None if but is None else but.pk)
    if ended is None or not ended.is_finished:
        return
    refused = id_reuse == "raise" or (id_reuse == "allow_failed" and ended.status == "completed")
    if refused or ended.workflow_name != workflow_name:
        raise WorkflowAlreadyStarted(ended, workflow_name)


def _sent(
    run: WorkflowRun, name: str, data: str, key: str | None, *, started: bool
) -> SignalWithStart:
    message = messages.send(run.pk, name, data, key)
    assert message is not None
    return SignalWithStart(run, message, started)
