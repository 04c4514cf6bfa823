"""Durable workflows for Django with nothing but the project's own database."""

from django_workflows.api import (
    acancel,
    aget_run,
    alist_messages,
    aresume,
    asend_message,
    astart,
    cancel,
    get_run,
    list_messages,
    resume,
    send_message,
    start,
)
from django_workflows.context import WorkflowContext
from django_workflows.decorators import Workflow, workflow
from django_workflows.definitions import step
from django_workflows.exceptions import (
    DeadlineExceeded,
    LeaseLost,
    MessageTimeout,
    NonDeterminismError,
    NonRetryableError,
    PayloadError,
    RetryAfter,
    RunFinished,
    RunNotFound,
    StepFailed,
    WorkflowAlreadyStarted,
    WorkflowError,
    WorkflowNotRegistered,
    WorkflowSuspended,
    is_workflow_suspended,
)
from django_workflows.retry import RetryPolicy
from django_workflows.values import Message, Page

__all__ = [
    "DeadlineExceeded",
    "LeaseLost",
    "Message",
    "MessageTimeout",
    "NonDeterminismError",
    "NonRetryableError",
    "Page",
    "PayloadError",
    "RetryAfter",
    "RetryPolicy",
    "RunFinished",
    "RunNotFound",
    "StepFailed",
    "Workflow",
    "WorkflowAlreadyStarted",
    "WorkflowContext",
    "WorkflowError",
    "WorkflowNotRegistered",
    "WorkflowSuspended",
    "acancel",
    "aget_run",
    "alist_messages",
    "aresume",
    "asend_message",
    "astart",
    "cancel",
    "get_run",
    "is_workflow_suspended",
    "list_messages",
    "resume",
    "send_message",
    "start",
    "step",
    "workflow",
]

__version__ = "0.1.0"
