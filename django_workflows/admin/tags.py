"""Tags and filters of the admin's templates.

`{% workflows_panel %}`, for the admin's index, says what waits for the user and what is wrong.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.admin.views.main import PAGE_VAR
from django.urls import NoReverseMatch, reverse

from django_workflows.admin import display, fleet
from django_workflows.gates import inbox
from django_workflows.gates.views import DECIDE
from django_workflows.templatetags.workflows_admin import register

MAX_SHOWN = 5


@register.inclusion_tag("admin/django_workflows/panel.html", takes_context=True)
def workflows_panel(context: dict[str, Any]) -> dict[str, Any]:
    """Approvals that wait for the user; for operators, runs that no live worker serves."""
    request = context["request"]
    found: dict[str, Any] = {"gates": [], "orphans": []}
    try:
        if request.user.has_perm(DECIDE):
            page = inbox.open_gates(request.user, mine=True, limit=MAX_SHOWN)
            found["gates"] = [
                (gate, reverse("admin:django_workflows_approvalgate_change", args=[gate.pk]))
                for gate in page.gates
            ]
            found["has_more"] = page.next_cursor is not None
            found["inbox_url"] = reverse("admin:django_workflows_approvalgate_changelist")
        if request.user.has_perm("django_workflows.view_workflowrun"):
            found["orphans"] = fleet.orphans()
            found["most"] = fleet.MAX_ORPHANS
            found["registry_url"] = reverse("admin:django_workflows_registry")
    except NoReverseMatch:
        # A site of the project's own, on which our pages aren't registered.
        return {}
    return found


@register.filter
def badge(status: str) -> str:
    """A status as a sign and a word."""
    return display.status_badge(status)


@register.filter
def since(value: datetime | None) -> str:
    """How long ago, with the time itself as a title."""
    return display.age(value)


@register.filter
def moment(value: datetime | None) -> str:
    """A time with its date."""
    return display.moment(value)


@register.filter
def size(count: int) -> str:
    """A payload's size."""
    return display.size(count)


@register.filter
def label(name: str) -> str:
    """A message's name as people know it."""
    return display.cut(display.message_label(name), 100)


@register.filter
def progress(state: Any) -> str:
    """A run's state as a bar."""
    return display.progress_bar(state)


@register.filter
def readable(text: Any) -> str:
    """Text that a page can show, whatever is in it."""
    return display.cut(str(text), 300)


@register.simple_tag
def page_query(changelist: Any, step: int) -> str:
    """The address of the page `step` further on."""
    query: str = changelist.get_query_string({PAGE_VAR: changelist.page_num + step})
    return query
