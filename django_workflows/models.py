"""The tables, as a story.

A `WorkflowRun` is one execution of a workflow. Starting it inserts the row as *pending*, due at
`available_at`. A worker claims due runs: *running*, with a fresh `claim_token` that fences every
later write, and `claimed_by` naming the `WorkflowWorker` whose row carries the lease. Each call of
the body's context leaves a `WorkflowStep`, unique by (run, key) and ordered by `seq`; a replay
reads them. A body that has to wait leaves a *waiting* step and parks its run: *suspended*, with
`waiting_for` the names that may wake it, and `available_at` the time at which it is due in any
case, or NULL. A `WorkflowMessage` is addressed to a run and stored at once, *unrouted*; a worker's
router looks at it under the run's lock and makes the run due if it is parked on that name. The
step that takes a message is its `consumed_by`, forever. An ended run has `finished_at`, a result
or an error, and is never due again. `available_at` is NULL wherever there is nothing to claim, so
one partial index holds just what may be due.

Who locks what, and in which order: `store/locks.py`. Rows are written by `store/` alone.
"""

from __future__ import annotations

import time
from datetime import timedelta

from django.apps import apps
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_workflows import payloads
from django_workflows.fields import InstantField, PayloadField, uuid7
from django_workflows.querysets import OPEN_STATUSES, MessageQuerySet, RunQuerySet


class RunStatus(models.TextChoices):
    PENDING = "pending", _("pending")
    RUNNING = "running", _("running")
    SUSPENDED = "suspended", _("suspended")
    COMPLETED = "completed", _("completed")
    FAILED = "failed", _("failed")
    CANCELED = "canceled", _("canceled")


class StepStatus(models.TextChoices):
    WAITING = "waiting", _("waiting")
    RUNNING = "running", _("running")
    COMPLETED = "completed", _("completed")
    FAILED = "failed", _("failed")


class StepKind(models.TextChoices):
    STEP = "step", _("step")
    SLEEP = "sleep", _("sleep")
    MESSAGE = "message", _("message")
    RECEIVE = "receive", _("receive")
    SEND = "send", _("send")
    NOW = "now", _("time")
    UUID = "uuid", _("UUID")
    RANDOM = "random", _("random number")
    PATCH = "patch", _("patch")
    SIGNAL = "signal", _("signal")
    SEND_SIGNAL = "send_signal", _("sent signal")
    APPROVAL = "approval", _("approval")
    CHILD = "child", _("child run")
    CHILD_RESULT = "child_result", _("child's result")


class ParentClose(models.TextChoices):
    CANCEL = "cancel", _("cancel with the parent")
    ABANDON = "abandon", _("go on without the parent")


# Decisions on gates are messages of such names, which nobody else can send.
DECISION_PREFIX = "$approval:"
OPEN = Q(status__in=OPEN_STATUSES)


class WorkflowRun(models.Model):
    """One execution of a workflow, durable from its start to its end."""

    id = models.UUIDField(_("id"), primary_key=True, default=uuid7, editable=False)
    workflow_id = models.CharField(_("workflow id"), max_length=255)
    workflow_name = models.CharField(_("workflow"), max_length=200)
    version = models.CharField(_("version"), max_length=100, default="1")
    queue_name = models.CharField(_("queue"), max_length=100, default="default")
    priority = models.IntegerField(_("priority"), default=0)
    status = models.CharField(
        _("status"), max_length=16, choices=RunStatus.choices, default=RunStatus.PENDING
    )
    input = PayloadField(_("input"))
    result = PayloadField(_("result"), null=True)
    error = PayloadField(_("error"), null=True)
    state = PayloadField(_("state"))
    attempts = models.IntegerField(_("attempts"), default=0)
    claim_count = models.IntegerField(_("claims"), default=0)
    crashes = models.IntegerField(_("crashes since the last record"), default=0)
    available_at = InstantField(_("due at"), null=True)
    deadline_at = InstantField(_("deadline"), null=True)
    waiting_kind = models.CharField(_("kind of wait"), max_length=16, default="")
    waiting_for = models.TextField(_("waiting for"), default="")
    waiting_since = InstantField(_("waiting since"), null=True)
    problem = models.TextField(_("problem"), default="")
    problem_count = models.IntegerField(_("problem seen"), default=0)
    claim_token = models.UUIDField(_("claim token"), null=True, editable=False)
    claimed_by = models.UUIDField(_("claimed by"), null=True, editable=False)
    parent = models.ForeignKey(
        "self",
        models.SET_NULL,
        null=True,
        related_name="children",
        verbose_name=_("parent"),
        db_index=False,
    )
    rerun_of = models.ForeignKey(
        "self",
        models.SET_NULL,
        null=True,
        related_name="reruns",
        verbose_name=_("rerun of"),
        db_index=False,
    )
    on_parent_close = models.CharField(
        _("when the parent ends"), max_length=16, choices=ParentClose.choices, default=""
    )
    parent_told = models.BooleanField(_("parent told of the end"), default=True, editable=False)
    subject_type = models.CharField(_("subject type"), max_length=200, default="")
    subject_pk = models.CharField(_("subject key"), max_length=255, default="")
    created_at = InstantField(_("created at"))
    started_at = InstantField(_("started at"), null=True)
    finished_at = InstantField(_("finished at"), null=True)

    objects = RunQuerySet.as_manager()

    # Set on the instance that a start returns: an earlier run was found for its workflow id.
    deduplicated: bool = False

    class Meta:
        verbose_name = _("workflow run")
        verbose_name_plural = _("workflow runs")
        get_latest_by = "id"
        permissions = [
            ("cancel_workflowrun", "Can cancel workflow runs"),
            ("rerun_workflowrun", "Can rerun workflow runs"),
            ("wake_workflowrun", "Can wake workflow runs"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["workflow_id"], condition=OPEN, name="workflows_one_open_run_per_id"
            )
        ]
        indexes = [
            # Read backwards for the (queue, priority) lanes, forwards within one lane.
            models.Index(
                fields=["queue_name", "priority", "available_at", "id"],
                condition=Q(available_at__isnull=False),
                name="workflows_run_due",
            ),
            models.Index(
                fields=["claimed_by"], condition=Q(status="running"), name="workflows_run_claimed"
            ),
            models.Index(
                fields=["deadline_at"],
                condition=OPEN & Q(deadline_at__isnull=False),
                name="workflows_run_deadline",
            ),
            # The operator class serves searches by prefix, whatever the database's collation.
            models.Index(
                fields=["workflow_id", "id"],
                name="workflows_run_workflow_id",
                opclasses=["varchar_pattern_ops", "uuid_ops"],
            ),
            # Lists that people look at: by workflow; what waits and since when; what went wrong.
            models.Index(fields=["workflow_name", "id"], name="workflows_run_workflow"),
            models.Index(
                fields=["waiting_kind", "waiting_since"],
                condition=Q(status="suspended") & ~Q(waiting_for=""),
                name="workflows_run_waiting",
            ),
            models.Index(
                fields=["status", "finished_at"],
                condition=Q(status__in=("failed", "canceled")),
                name="workflows_run_unsuccessful",
            ),
            models.Index(
                fields=["parent"], condition=Q(parent__isnull=False), name="workflows_run_parent"
            ),
            models.Index(
                fields=["parent"], condition=Q(parent_told=False), name="workflows_run_untold"
            ),
            models.Index(
                fields=["waiting_for"],
                condition=Q(waiting_kind="signal"),
                name="workflows_run_signal",
            ),
            models.Index(
                fields=["rerun_of"], condition=Q(rerun_of__isnull=False), name="workflows_run_rerun"
            ),
            models.Index(
                fields=["subject_type", "subject_pk", "id"],
                condition=~Q(subject_type=""),
                name="workflows_run_subject",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.workflow_name} {self.workflow_id}"

    @property
    def is_finished(self) -> bool:
        """True once the run has ended: completed, failed or canceled."""
        return self.status not in OPEN_STATUSES

    @property
    def subject(self) -> models.Model | None:
        """The instance that the run is about; None without one, or when it is gone."""
        if not self.subject_type:
            return None
        try:
            model = apps.get_model(self.subject_type)
        except (LookupError, ValueError):
            return None
        found: models.Model | None = model._default_manager.filter(pk=self.subject_pk).first()
        return found

    @property
    def waiting_names(self) -> list[str]:
        """Names that would wake this run now: of messages, a signal, a gate or a child's id."""
        names: list[str] = payloads.load_json(self.waiting_for) if self.waiting_for else []
        return [name.removeprefix(DECISION_PREFIX) for name in names]

    def wait(self, timeout: timedelta | float | None = None) -> WorkflowRun:
        """Block a script or test until the run has ended, by polling; returns the run itself.

        Args:
            timeout: timedelta or seconds; None waits for ever.

        Raises:
            TimeoutError: it hasn't ended by then.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        give_up = None if seconds is None else time.monotonic() + seconds
        pause = 0.005
        while True:
            self.refresh_from_db()
            if self.is_finished:
                return self
            if give_up is not None and time.monotonic() >= give_up:
                raise TimeoutError(f"Run {self.pk} is still {self.status!r} after {seconds} s.")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)


class WorkflowStep(models.Model):
    """One entry of a run's record: what the body asked for and what came of it."""

    id = models.BigAutoField(primary_key=True)
    # No constraint in the database: the insert itself locks the run's row, so a check would only
    # cost a second statement per step.
    run = models.ForeignKey(
        WorkflowRun,
        models.CASCADE,
        related_name="steps",
        verbose_name=_("run"),
        db_index=False,
        db_constraint=False,
    )
    seq = models.IntegerField(_("position"))
    key = models.CharField(_("key"), max_length=255)
    name = models.CharField(_("name"), max_length=200)
    kind = models.CharField(_("kind"), max_length=16, choices=StepKind.choices)
    status = models.CharField(_("status"), max_length=16, choices=StepStatus.choices)
    attempts = models.IntegerField(_("attempts"), default=0)
    result = PayloadField(_("result"), null=True)
    error = PayloadField(_("error"), null=True)
    details = models.TextField(_("details"), default="")
    wake_at = InstantField(_("wakes at"), null=True)
    created_at = InstantField(_("created at"))
    started_at = InstantField(_("started at"), null=True)
    finished_at = InstantField(_("finished at"), null=True)

    class Meta:
        verbose_name = _("workflow step")
        verbose_name_plural = _("workflow steps")
        ordering = ["seq"]
        constraints = [
            models.UniqueConstraint(fields=["run", "key"], name="workflows_step_key"),
        ]
        indexes = [
            # Gates alone, so that no other step pays for it.
            models.Index(
                fields=["status", "id"],
                condition=Q(kind="approval"),
                name="workflows_step_gate",
            ),
        ]

    def __str__(self) -> str:
        return self.key


class ApprovalGate(WorkflowStep):
    """A step of kind `approval`, where people decide; the admin lists it under its own name."""

    class Meta:
        proxy = True
        verbose_name = _("approval gate")
        verbose_name_plural = _("approval gates")
        default_permissions = ()
        permissions = [("decide_approval", "Can decide approval gates")]


class WorkflowMessage(models.Model):
    """A message in a run's inbox, taken by exactly one step or by none."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(
        WorkflowRun, models.CASCADE, related_name="messages", verbose_name=_("run"), db_index=False
    )
    name = models.CharField(_("name"), max_length=200)
    data = PayloadField(_("data"))
    idempotency_key = models.CharField(_("idempotency key"), max_length=255, null=True)
    routed = models.BooleanField(_("routed"), default=False, editable=False)
    consumed_by = models.ForeignKey(
        WorkflowStep,
        models.SET_NULL,
        null=True,
        related_name="consumed",
        verbose_name=_("consumed by"),
        db_index=False,
        # As for a step's run: both are written by one statement.
        db_constraint=False,
    )
    consumed_at = InstantField(_("consumed at"), null=True)
    decides = models.CharField(_("decides"), max_length=255, null=True, editable=False)
    refused = models.TextField(_("refused because"), default="")
    created_at = InstantField(_("sent at"))

    objects = MessageQuerySet.as_manager()

    # Set on the instance that a send returns: the key was known, this is the stored message.
    deduplicated: bool = False

    class Meta:
        verbose_name = _("workflow message")
        verbose_name_plural = _("workflow messages")
        permissions = [("send_message", "Can send messages to workflow runs")]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="workflows_message_key",
            ),
            # Of two decisions for one gate at once, the database lets one in.
            models.UniqueConstraint(
                fields=["run", "decides"],
                condition=Q(decides__isnull=False),
                name="workflows_message_decides",
            ),
        ]
        indexes = [
            models.Index(
                fields=["run", "name", "id"],
                condition=Q(consumed_by__isnull=True),
                name="workflows_message_inbox",
            ),
            models.Index(
                fields=["run"],
                condition=Q(routed=False, consumed_by__isnull=True),
                name="workflows_message_unrouted",
            ),
            models.Index(fields=["run", "id"], name="workflows_message_run"),
            models.Index(
                fields=["consumed_by"],
                condition=Q(consumed_by__isnull=False),
                name="workflows_message_consumed",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} #{self.pk}"


class WorkflowSignal(models.Model):
    """One delivery of a broadcast: what a step that waited for the signal's name was given."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(_("name"), max_length=200)
    data = PayloadField(_("data"))
    run = models.ForeignKey(
        WorkflowRun, models.CASCADE, related_name="signals", verbose_name=_("run"), db_index=False
    )
    step = models.OneToOneField(
        WorkflowStep, models.CASCADE, related_name="signal", verbose_name=_("step")
    )
    idempotency_key = models.CharField(_("idempotency key"), max_length=255, null=True)
    routed = models.BooleanField(_("routed"), default=False, editable=False)
    created_at = InstantField(_("sent at"))

    class Meta:
        verbose_name = _("workflow signal")
        verbose_name_plural = _("workflow signals")
        indexes = [
            models.Index(fields=["run", "id"], name="workflows_signal_run"),
            models.Index(
                fields=["name", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="workflows_signal_key",
            ),
            models.Index(
                fields=["run"], condition=Q(routed=False), name="workflows_signal_unrouted"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} #{self.pk}"


class WorkflowWorker(models.Model):
    """A live or past worker process. Its row carries the lease of every run that it has claimed."""

    id = models.UUIDField(_("id"), primary_key=True, default=uuid7, editable=False)
    name = models.CharField(_("name"), max_length=200)
    host = models.CharField(_("host"), max_length=255)
    pid = models.IntegerField(_("process id"))
    version = models.CharField(_("version"), max_length=50, default="")
    queues = models.JSONField(_("queues"), default=list)
    workflows = models.JSONField(_("workflows"), default=list)
    doing = models.JSONField(_("doing"), default=list)
    started_at = InstantField(_("started at"))
    heartbeat_at = InstantField(_("last heartbeat"))
    lease_until = InstantField(_("lease until"))
    stopped_at = InstantField(_("stopped at"), null=True)

    class Meta:
        verbose_name = _("workflow worker")
        verbose_name_plural = _("workflow workers")

    def __str__(self) -> str:
        return self.name
