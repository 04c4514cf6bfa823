"""Approval gates: the inbox, and the page on which a gate is decided."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from django_workflows import payloads
from django_workflows.admin import display, log, run_page
from django_workflows.admin.base import ReadOnlyAdmin
from django_workflows.gates import decisions, forms, inbox
from django_workflows.gates.inbox import Gate
from django_workflows.gates.views import DECIDE, LEVELS, number
from django_workflows.models import ApprovalGate

MAX_DATA = 5_000
VIEWS = ("mine", "open", "decided")


@admin.register(ApprovalGate)
class GateAdmin(ReadOnlyAdmin):
    """Deciding takes the permission to, and being one of those whom the gate names."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(DECIDE) or request.user.has_perm(
            "django_workflows.view_workflowstep"
        )

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_permission(request) or request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        may_decide = request.user.has_perm(DECIDE)
        view = request.GET.get("show", "mine" if may_decide else "open")
        view = view if view in VIEWS else "open"
        cursor = number(request.GET.get("after"))
        if view == "decided":
            page = inbox.decided_gates(before=cursor or None)
        else:
            page = inbox.open_gates(request.user, mine=view == "mine", after=cursor)
        rows = [(gate, self.gate_url(gate)) for gate in page.gates]
        context = self.context(
            request,
            _("Approvals"),
            rows=rows,
            view=view,
            may_decide=may_decide,
            next_cursor=page.next_cursor,
            version="|".join(str(gate.pk) for gate in page.gates),
        )
        return TemplateResponse(request, "admin/django_workflows/gates.html", context)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: Any = None,
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        gate = inbox.load(number(object_id))
        if gate is None:
            return self.gone(request, object_id)
        inbox.judge(gate, request.user, inbox.user_groups(request.user))
        if request.method == "POST":
            return self._decide(request, gate)
        return self._page(request, gate, None)

    def _decide(self, request: HttpRequest, gate: Gate) -> HttpResponse:
        choice = request.POST.get("decision")
        if not request.user.has_perm(DECIDE):
            raise PermissionDenied
        if gate.is_open and not gate.may_decide:
            raise PermissionDenied(gate.why_not)
        form = forms.build(gate, request.POST)
        if choice not in ("approve", "reject"):
            messages.error(request, _("Please choose to approve or to reject."))
            return self._page(request, gate, form)
        if not form.is_valid(approved=choice == "approve"):
            return self._page(request, gate, form)
        approved = choice == "approve"
        outcome = decisions.decide(gate, form, approved=approved, user=request.user)
        messages.add_message(request, LEVELS[outcome.level], outcome.text)
        if outcome.is_stored:
            what = _("Approved gate “%(gate)s”.") if approved else _("Rejected gate “%(gate)s”.")
            comment = form.comment.cleaned_data["comment"]
            log.record(request, gate.run, what % {"gate": gate.step.name}, comment)
        return redirect(self.gate_url(gate))

    def _page(self, request: HttpRequest, gate: Gate, form: Any) -> HttpResponse:
        may_decide = request.user.has_perm(DECIDE) and gate.may_decide
        if form is None and gate.is_open and may_decide:
            form = forms.build(gate)
        may_see_run = request.user.has_perm("django_workflows.view_workflowrun")
        site = self.admin_site
        context = self.context(
            request,
            display.cut(gate.title, 150),
            gate=gate,
            form=form,
            decided_data=_data(gate),
            run_url=display.run_url(gate.run.pk, site.name) if may_see_run else "",
            list_url=reverse(
                "admin:django_workflows_approvalgate_changelist", current_app=site.name
            ),
            **run_page.subject(gate.run, site),
        )
        return TemplateResponse(request, "admin/django_workflows/gate.html", context)

    def gate_url(self, gate: Gate) -> str:
        return reverse(
            "admin:django_workflows_approvalgate_change",
            args=[gate.pk],
            current_app=self.admin_site.name,
        )


def _data(gate: Gate) -> str:
    decision = gate.decision
    if decision is None or decision.data is None:
        return ""
    return display.cut(payloads.pretty(decision.data), MAX_DATA)
