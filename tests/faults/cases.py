"""What happens while a process fails at one of its commits, and how it has to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from django_workflows import GateDecided, RunFinished, approve, send_message, send_signal
from django_workflows.models import WorkflowMessage, WorkflowRun, WorkflowSignal, WorkflowWorker
from django_workflows.store import leases
from tests.faults import checker
from tests.lab import saga_flows as sagas
from tests.lab.models import Effect

LOST_CLAIM = "cut:after:1:leases.claim_batch by claims.claim_batch"
LONG_AGO = timedelta(days=7)


def effects(run: Any) -> dict[str, int]:
    """How often each step of a run was called."""
    counts: dict[str, int] = {}
    for name in Effect.objects.filter(run=str(run)).values_list("name", flat=True):
        counts[name] = counts.get(name, 0) + 1
    return counts


def expect(run: WorkflowRun, result: Any, status: str = "completed") -> None:
    assert (run.status, run.result) == (status, result), run.error


@dataclass
class Case:
    """One story.

    Attributes:
        begin: makes the run, or gives the id of the one to be made.
        verify: given the run at its end, what has to hold besides the invariants.
        call: function of `saga_flows` whose process fails; None where the worker's does.
        feed: gives the run what it waits for; called again and again.
        changes: of DJANGO_WORKFLOWS in the processes.
        ends_as: status of the run at its end, or "gone".
        everyone: all runs have to end.
        first: a failure that leads to the point.
    """

    begin: Callable[[], Any]
    verify: Callable[[WorkflowRun], None]
    call: str | None = None
    feed: Callable[[WorkflowRun], None] = lambda run: None
    changes: dict[str, Any] = field(default_factory=dict)
    ends_as: str = "completed"
    everyone: bool = False
    first: str = ""


def ann() -> User:
    return User.objects.get_or_create(username="ann")[0]


def feed_all(run: WorkflowRun) -> None:
    kind = WorkflowRun.objects.values_list("waiting_kind", flat=True).get(pk=run.pk)
    try:
        if kind == "message":
            send_message(run, "late", 2, idempotency_key="late")
        elif kind == "signal":
            send_signal(f"bell:{run.workflow_id}", 3, idempotency_key=str(run.pk))
        elif kind == "approval":
            approve(run, "gate", by=ann(), data=4, idempotency_key="gate")
    except (GateDecided, RunFinished):
        pass


def begin_waits() -> WorkflowRun:
    run = sagas.waits.start()
    send_message(run, "early", 1)
    return run


def begin_inbox() -> WorkflowRun:
    run = sagas.inbox.start(count=8)
    for n in range(8):
        send_message(run, "m", n)
    return run


def verify_inbox(run: WorkflowRun) -> None:
    expect(run, list(range(8)))
    assert effects(run.pk)["last"] in (1, 2)


def begin_crowd() -> WorkflowRun:
    """So many runs at once that the threads of a worker write for each other."""
    runs = [sagas.work.start() for _ in range(12)]
    return runs[-1]


def verify_crowd(run: WorkflowRun) -> None:
    for each in WorkflowRun.objects.filter(workflow_name="saga.work"):
        verify_work(each)


def verify_waits(run: WorkflowRun) -> None:
    expect(run, [1, None, None, 2, 3, 4])
    assert run.messages.count() == 3
    assert not run.messages.pending().exists()


def verify_work(run: WorkflowRun) -> None:
    expect(run, ["last", True])
    counts = effects(run.pk)
    # A second call of a plain step is what a failure before its record costs.
    assert counts["atomic"] == 1
    assert counts.get("once", 0) <= 1
    assert counts["plain"] in (1, 2)
    assert counts["last"] in (1, 2)
    assert counts["stumble"] in (2, 3)
    assert counts["flaky"] in (2, 3)
    assert run.state == {"done": 1}


def verify_family(run: WorkflowRun) -> None:
    leaf, open_child = WorkflowRun.objects.filter(parent=run).order_by("workflow_name")[::-1]
    assert (leaf.status, open_child.status) == ("completed", "canceled")
    expect(run, ["leaf", str(open_child.pk)])
    assert [message.data for message in open_child.messages.all()] == ["from the parent"]


def verify_stopped(run: WorkflowRun) -> None:
    expect(run, "last")
    assert effects(run.pk)["stopper"] in (1, 2)


def begin_orphan() -> WorkflowRun:
    """A run whose worker is gone without a trace."""
    run = sagas.leaf.start()
    assert leases.claim_one(run.pk, uuid4())
    return run


def begin_overdue() -> WorkflowRun:
    run = sagas.forever.start()
    WorkflowRun.objects.filter(pk=run.pk).update(
        deadline_at=timezone.now() - LONG_AGO, available_at=None
    )
    return run


def verify_error(kind: str) -> Callable[[WorkflowRun], None]:
    def verify(run: WorkflowRun) -> None:
        assert (run.status, run.error["type"]) == ("failed", kind)

    return verify


def verify_leaf(run: WorkflowRun) -> None:
    expect(run, "leaf")
    assert WorkflowRun.objects.filter(workflow_id=run.workflow_id).count() == 1
    assert effects(run.pk)["leaf"] in (1, 2)


def parked(flow: Any) -> Callable[[], WorkflowRun]:
    def begin() -> WorkflowRun:
        from django_workflows.testing import run_until_idle

        run = flow.start()
        run_until_idle(run)
        assert run.status == "suspended"
        return run

    return begin


def verify_answer(run: WorkflowRun) -> None:
    expect(run, 1)
    assert WorkflowMessage.objects.filter(run=run).count() <= 1
    assert WorkflowSignal.objects.filter(run=run).count() <= 1
    same = WorkflowRun.objects.filter(workflow_id=run.workflow_id)
    assert same.count() == 1


def begin_ask() -> WorkflowRun:
    ann()
    return parked(sagas.ask)()


def begin_put_off() -> WorkflowRun:
    return sagas.leaf.using(run_after=timedelta(hours=1)).start()


def begin_broken() -> WorkflowRun:
    from django_workflows.testing import run_until_idle

    run = sagas.broken.using(workflow_id=f"broken-{uuid4()}").start()
    run_until_idle(run)
    assert run.status == "failed"
    return run


def verify_rerun(run: WorkflowRun) -> None:
    runs = WorkflowRun.objects.filter(workflow_id=run.workflow_id).order_by("-id")
    assert [each.status for each in runs] == ["completed", "failed"]
    assert runs[0].result == "mended"
    counts = effects(run.workflow_id)
    assert counts["before"] == 1
    assert counts["breaks"] in (2, 3)


def begin_old() -> WorkflowRun:
    from django_workflows.testing import run_until_idle

    run = sagas.leaf.start()
    run_until_idle(run)
    WorkflowRun.objects.filter(pk=run.pk).update(finished_at=timezone.now() - LONG_AGO)
    return run


CASES = {
    "work": Case(sagas.work.start, verify_work),
    "waits": Case(begin_waits, verify_waits, feed=feed_all),
    "inbox": Case(begin_inbox, verify_inbox),
    "crowd": Case(begin_crowd, verify_crowd, everyone=True),
    "family": Case(sagas.family.start, verify_family),
    "stopped": Case(sagas.stopped.start, verify_stopped),
    "orphan": Case(begin_orphan, verify_leaf),
    "poison": Case(
        begin_orphan, verify_error("PoisonRun"), changes={"MAX_CRASHES": 1}, ends_as="failed"
    ),
    "stray": Case(sagas.leaf.start, verify_leaf, first=LOST_CLAIM),
    "overdue": Case(begin_overdue, verify_error("DeadlineExceeded"), ends_as="failed"),
    "start": Case(lambda: f"leaf-{uuid4()}", verify_leaf, "call_start"),
    "cancel": Case(parked(sagas.forever), lambda run: None, "call_cancel", ends_as="canceled"),
    "wake": Case(begin_put_off, verify_leaf, "call_wake"),
    "send": Case(parked(sagas.wait), verify_answer, "call_send"),
    "signal": Case(parked(sagas.listen), verify_answer, "call_signal"),
    "signal_with_start": Case(lambda: f"wait-{uuid4()}", verify_answer, "call_signal_with_start"),
    "approve": Case(begin_ask, verify_answer, "call_approve"),
    "rerun": Case(begin_broken, verify_rerun, "call_rerun"),
    "resume": Case(sagas.leaf.start, verify_leaf, "call_resume"),
    "purge": Case(begin_old, lambda run: None, "call_purge", ends_as="gone"),
}  # fmt: skip


def find(subject: Any) -> WorkflowRun | None:
    """The run of a case as it stands: of a rerun, the newest of its workflow id."""
    runs = WorkflowRun.objects.all()
    if isinstance(subject, str):
        return runs.filter(workflow_id=subject).order_by("-id").first()
    return runs.filter(workflow_id=subject.workflow_id).order_by("-id").first()


def is_over(case: Case, subject: Any) -> bool:
    if case.everyone and WorkflowRun.objects.open().exists():
        return False
    run = find(subject)
    if run is None or case.ends_as == "gone":
        return run is None and case.ends_as == "gone"
    if case.ends_as == "completed":
        return run.status in ("completed", "canceled") or (
            run.status == "failed" and case.call != "call_rerun"
        )
    return run.is_finished


def expire_leases() -> None:
    """Let the time pass after which a dead worker's runs are taken over."""
    WorkflowWorker.objects.update(lease_until=timezone.now() - LONG_AGO)


def check_invariants() -> None:
    """What holds for all runs, whatever failed: read by the storm's checker."""
    assert checker.check_rows(connection, time.time()) == []
    for run in WorkflowRun.objects.prefetch_related("steps"):
        for step in run.steps.all():
            if step.status == "completed":
                calls = Effect.objects.filter(run=str(run.pk), name=step.key)
                assert not calls.filter(at__gt=step.finished_at).exists(), f"{step} called again"
