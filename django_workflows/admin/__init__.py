"""Pages over the public API, as any other caller."""

from django_workflows.admin import messages, runs, workers

__all__ = ["messages", "runs", "workers"]
