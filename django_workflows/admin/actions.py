"""What people may do to a run: each with a page that says what will happen, and its permission."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from django_workflows import api
from django_workflows.admin import display, log, words
from django_workflows.conf import config
from django_workflows.exceptions import WorkflowError
from django_workflows.models import WorkflowRun
from django_workflows.store import runs as store


def alias() -> str:
    """The database that holds the workflows."""
    return config().database


class ReasonForm(forms.Form):
    """Why, for the history."""

    reason = forms.CharField(
        label=_("Why"),
        required=False,
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=_("Optional. It is kept in the history with your name."),
    )


class RerunForm(ReasonForm):
    """Where to begin, and why."""

    field_order = ("begin", "reason")
    begin = forms.ChoiceField(
        label=_("Begin"),
        choices=[
            ("failed", _("where it stopped: steps that were done are kept, with their results")),
            ("start", _("from the start: every step is done again")),
        ],
        initial="failed",
        widget=forms.RadioSelect,
    )


class RunAction:
    """One action: its page (GET), and doing it (POST)."""

    # Templates get the classes themselves, and would call them.
    do_not_call_in_templates = True

    name: ClassVar[str]
    permission: ClassVar[str]
    label: ClassVar[Any]
    title: ClassVar[Any]
    explanation: ClassVar[Any]
    is_danger: ClassVar[bool] = False
    form_class: type[forms.Form] = ReasonForm
    template = "admin/django_workflows/run_action.html"

    def __init__(self, model_admin: Any) -> None:
        self.admin = model_admin

    @classmethod
    def suits(cls, run: WorkflowRun) -> bool:
        """Whether it makes sense for the run as it stands."""
        raise NotImplementedError

    def perform(self, request: HttpRequest, run: WorkflowRun, given: dict[str, Any]) -> str:
        """Do it; where to go then. Raises: WorkflowError, ValueError, with words for people."""
        raise NotImplementedError

    def respond(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        if not request.user.has_perm(self.permission) or not self.admin.has_view_permission(
            request
        ):
            raise PermissionDenied
        run = self.admin.find(run_id)
        if run is None:
            raise Http404(_t("There is no such run."))
        form = self.form(request, run)
        if request.method == "POST" and self.is_valid(form):
            return self._perform(request, run, form)
        return self.page(request, run, form)

    def form(self, request: HttpRequest, run: WorkflowRun) -> Any:
        return self.form_class(request.POST if request.method == "POST" else None)

    def is_valid(self, form: Any) -> bool:
        return bool(form.is_valid())

    def given(self, form: Any) -> dict[str, Any]:
        return dict(form.cleaned_data)

    def _perform(self, request: HttpRequest, run: WorkflowRun, form: Any) -> HttpResponse:
        try:
            url = self.perform(request, run, self.given(form))
        except (WorkflowError, ValueError) as refused:
            messages.error(request, display.cut(str(refused), 1000))
            url = self.url(run)
        return redirect(url)

    def url(self, run: Any) -> str:
        key = getattr(run, "pk", run)
        return display.run_url(key, self.admin.admin_site.name)

    def page(self, request: HttpRequest, run: WorkflowRun, form: Any) -> HttpResponse:
        context = self.admin.context(
            request,
            str(self.title),
            run=run,
            form=form,
            action=self,
            run_url=self.url(run),
            standing=words.standing(run, display.now()),
            **self.more(request, run, form),
        )
        return TemplateResponse(request, self.template, context)

    def more(self, request: HttpRequest, run: WorkflowRun, form: Any) -> dict[str, Any]:
        return {}


class Cancel(RunAction):
    name = "cancel"
    permission = "django_workflows.cancel_workflowrun"
    label = _("Cancel")
    title = _("Cancel this run?")
    explanation = _(
        "It ends at once and does no further step; a step that runs right now may still finish. "
        "What its steps have done already isn't undone. A canceled run can be rerun."
    )
    is_danger = True

    @classmethod
    def suits(cls, run: WorkflowRun) -> bool:
        return not run.is_finished

    def perform(self, request: HttpRequest, run: WorkflowRun, given: dict[str, Any]) -> str:
        api.cancel(run, reason=given["reason"] or _t("canceled in the admin"))
        log.record(request, run, _t("Canceled."), given["reason"])
        messages.success(request, _t("The run is canceled."))
        return self.url(run)


class Rerun(RunAction):
    name = "rerun"
    permission = "django_workflows.rerun_workflowrun"
    label = _("Rerun")
    title = _("Run it again?")
    explanation = _(
        "A new run starts with the same input; this one stays as it is. Messages aren't carried "
        "over."
    )
    form_class = RerunForm

    @classmethod
    def suits(cls, run: WorkflowRun) -> bool:
        return run.is_finished

    def perform(self, request: HttpRequest, run: WorkflowRun, given: dict[str, Any]) -> str:
        from_start = given["begin"] == "start"
        new = api.rerun(run, from_start=from_start)
        how = _t("from the start") if from_start else _t("from where it stopped")
        told = {"id": new.pk, "how": how}
        log.record(request, run, _t("Rerun %(how)s, as %(id)s.") % told, given["reason"])
        log.record(request, new, _t("Started as a rerun of %(id)s.") % {"id": run.pk})
        messages.success(request, _t("A new run has started %(how)s; this is it.") % told)
        return self.url(new)


class Wake(RunAction):
    name = "wake"
    permission = "django_workflows.wake_workflowrun"
    label = _("Wake now")
    title = _("Wake this run now?")
    explanation = _(
        "A worker takes it at once instead of at its next due time: a step or a run that backs off "
        "is tried again. Sleeps and waits aren't cut short: what it waits for has to come."
    )

    @classmethod
    def suits(cls, run: WorkflowRun) -> bool:
        return run.status in ("pending", "suspended")

    def perform(self, request: HttpRequest, run: WorkflowRun, given: dict[str, Any]) -> str:
        store.wake(run.pk)
        log.record(request, run, _t("Woken."), given["reason"])
        messages.success(request, _t("The run is due now."))
        return self.url(run)


def offered(request: HttpRequest, run: WorkflowRun) -> list[type[RunAction]]:
    """Actions that suit the run and that this user may do."""
    return [
        action
        for action in ACTIONS.values()
        if action.suits(run) and request.user.has_perm(action.permission)
    ]


ACTIONS: dict[str, type[RunAction]] = {action.name: action for action in (Wake, Cancel, Rerun)}


def offer(action: type[RunAction]) -> type[RunAction]:
    """Add an action that is defined in a module of its own."""
    ACTIONS[action.name] = action
    return action
