"""An object's runs on its own admin page: `inlines = [WorkflowRunInline]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.checks import InlineModelAdminChecks
from django.forms import BaseModelFormSet, modelformset_factory
from django.http import HttpRequest
from django.urls import NoReverseMatch
from django.utils.translation import gettext_lazy as _

from django_workflows.admin import display, words
from django_workflows.conf import config
from django_workflows.models import WorkflowRun

if TYPE_CHECKING:
    _TabularInline = admin.TabularInline[Any, Any]
    _FormSet = BaseModelFormSet[Any, Any]
else:
    _TabularInline, _FormSet = admin.TabularInline, BaseModelFormSet

MAX_SHOWN = 20
FIELDS = (
    "workflow_id",
    "workflow_name",
    "status",
    "waiting_kind",
    "waiting_for",
    "waiting_since",
    "available_at",
    "created_at",
    "problem",
)


class SubjectFormSet(_FormSet):
    """Runs about the object that the page is for."""

    def __init__(self, *args: Any, instance: Any = None, **kwargs: Any) -> None:
        kwargs.pop("save_as_new", None)
        runs = WorkflowRun.objects.using(config().database)
        found = runs.none()
        if instance is not None and instance.pk is not None:
            found = runs.for_subject(instance).only(*FIELDS)[:MAX_SHOWN]
        kwargs["queryset"] = found
        super().__init__(*args, **kwargs)

    @classmethod
    def get_default_prefix(cls) -> str:
        return "workflow_runs"

    def get_queryset(self) -> Any:
        # A slice can't be ordered any further, as the base class would.
        if not hasattr(self, "_queryset"):
            self._queryset = list(self.queryset or ())
        return self._queryset


class SubjectChecks(InlineModelAdminChecks):
    """Runs have no foreign key to what they are about, so there is none to look for."""

    def _check_exclude_of_parent_model(self, obj: Any, parent_model: Any) -> list[Any]:
        return []

    def _check_relation(self, obj: Any, parent_model: Any) -> list[Any]:
        return []


class WorkflowRunInline(_TabularInline):
    """The newest runs that were started with `subject=` this object, to look at."""

    model = WorkflowRun
    formset: Any = SubjectFormSet
    checks_class = SubjectChecks
    verbose_name_plural = _("workflow runs")
    extra = 0
    max_num = 0
    can_delete = False
    fields = ("run", "badge", "waits_for", "age")
    readonly_fields = fields
    template = "admin/django_workflows/runs_inline.html"

    class Media:
        css = {"all": ("django_workflows/pages.css",)}

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        return modelformset_factory(
            WorkflowRun, formset=self.formset, fields=(), extra=0, max_num=0, can_delete=False
        )

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.display(description=_("run"))
    def run(self, run: WorkflowRun) -> Any:
        text = f"{run.workflow_name} {display.cut(run.workflow_id, 60)}"
        try:
            return display.link(display.run_url(run.pk, self.admin_site.name), text)
        except NoReverseMatch:
            # A site of the project's own, on which runs aren't registered.
            return text

    @admin.display(description=_("status"))
    def badge(self, run: WorkflowRun) -> Any:
        return display.status_badge(run.status)

    @admin.display(description=_("waiting for"))
    def waits_for(self, run: WorkflowRun) -> str:
        return words.waiting_for(run)

    @admin.display(description=_("age"))
    def age(self, run: WorkflowRun) -> Any:
        return display.age(run.created_at)
