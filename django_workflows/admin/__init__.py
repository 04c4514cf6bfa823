"""Pages over the public API, as any other caller."""

from django.contrib import admin

from django_workflows.admin import (
    gates,
    messages,
    runs,
    sending,
    signals,
    steps,
    tags,
    workers,
)
from django_workflows.admin.subjects import WorkflowRunInline

__all__ = [
    "WorkflowRunInline",
    "gates",
    "messages",
    "runs",
    "sending",
    "signals",
    "steps",
    "tags",
    "workers",
]

# What waits for the user, and runs that no worker serves, on the admin's first page. A project that
# has an index of its own keeps it, and can use the tag of that template itself.
if admin.site.index_template is None:
    admin.site.index_template = "admin/django_workflows/index.html"
