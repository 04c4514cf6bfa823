"""Views for a project's own site: the gates that wait for the user, and one gate's page.

Put them under a prefix with `path("approvals/", include("django_workflows.urls"))`, and override
`django_workflows/base.html` to have them look like the site; or subclass them.
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.mixins import LoginRequiredMixin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.generic import TemplateView

from django_workflows.gates import decisions, forms, inbox
from django_workflows.gates.inbox import Gate

DECIDE = "django_workflows.decide_approval"


class GateMixin(LoginRequiredMixin):
    """Who may decide what, and where the pages are.

    A gate that names neither a permission nor approvers is for those who have
    `django_workflows.decide_approval`; the others are for whom they name.
    """

    namespace = "django_workflows"

    def may_decide_unnamed(self, request: HttpRequest) -> bool:
        """Whether gates that name nobody are for this user."""
        return bool(request.user.has_perm(DECIDE))

    def list_url(self) -> str:
        return reverse(f"{self.namespace}:gates")

    def gate_url(self, gate: Gate) -> str:
        return reverse(f"{self.namespace}:gate", args=[gate.pk])


class GateListView(GateMixin, TemplateView):
    """Open gates that the user may decide, oldest first."""

    template_name = "django_workflows/gate_list.html"
    page_size = 50

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        page = inbox.open_gates(
            self.request.user,
            mine=True,
            after=number(self.request.GET.get("after")),
            limit=self.page_size,
            allow_unnamed=self.may_decide_unnamed(self.request),
        )
        rows = [(gate, self.gate_url(gate)) for gate in page.gates]
        return super().get_context_data(rows=rows, next_cursor=page.next_cursor, **kwargs)


class GateView(GateMixin, TemplateView):
    """One gate: what is asked, the decision, or the form to make it."""

    template_name = "django_workflows/gate.html"
    gate: Gate

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return self.handle_no_permission()
        self.gate = self.get_gate(kwargs["pk"])
        return super().dispatch(request, *args, **kwargs)

    def get_gate(self, pk: int) -> Gate:
        """The gate, if it is for this user to decide or to have decided."""
        gate = inbox.load(pk)
        if gate is None:
            raise Http404(_("There is no such approval."))
        inbox.judge(gate, self.request.user, inbox.user_groups(self.request.user))
        if not gate.may_decide:
            raise PermissionDenied(gate.why_not)
        if not gate.names_somebody and not self.may_decide_unnamed(self.request):
            raise PermissionDenied(_("This approval is for staff."))
        return gate

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        kwargs.setdefault("form", forms.build(self.gate) if self.gate.is_open else None)
        return super().get_context_data(gate=self.gate, list_url=self.list_url(), **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        approved = request.POST.get("decision") == "approve"
        form = forms.build(self.gate, request.POST)
        if request.POST.get("decision") not in ("approve", "reject"):
            messages.error(request, _("Please choose to approve or to reject."))
        elif form.is_valid(approved=approved):
            outcome = decisions.decide(self.gate, form, approved=approved, user=request.user)
            messages.add_message(request, LEVELS[outcome.level], outcome.text)
            return redirect(self.get_success_url(outcome))
        return self.render_to_response(self.get_context_data(form=form))

    def get_success_url(self, outcome: decisions.Outcome) -> str:
        """Where a decision leads: back to the gate, which then shows how it stands."""
        return self.gate_url(self.gate)


LEVELS = {"success": messages.SUCCESS, "warning": messages.WARNING, "error": messages.ERROR}


def number(text: str | None) -> int:
    """A cursor from a request; anything else starts at the beginning."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else 0
