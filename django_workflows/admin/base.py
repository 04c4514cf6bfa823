"""What all of our pages share: rows that only the store writes, and lists that never count."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.core.exceptions import PermissionDenied
from django.core.paginator import Page, Paginator
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from django_workflows import payloads
from django_workflows.conf import config

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
    _Paginator = Paginator[Any]
else:
    _ModelAdmin, _Paginator = admin.ModelAdmin, Paginator

PER_PAGE = 50


def row_number(text: str) -> int | None:
    """A number that an address gives as a row's key; None for what can't be one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


class LookAheadPaginator(_Paginator):
    """Pages of a table that is too large to count: looks one row past the page, no further.

    `count` is therefore "at least": the rows up to and including this page, and one more if there
    is one.
    """

    page_number = 1

    @cached_property
    def count(self) -> int:
        start = (self.page_number - 1) * self.per_page
        return start + len(self._keys)

    @cached_property
    def _keys(self) -> list[Any]:
        start = (self.page_number - 1) * self.per_page
        rows: Any = self.object_list
        return list(rows.values_list("pk", flat=True)[start : start + self.per_page + 1])

    @property
    def has_more(self) -> bool:
        """Whether there is a row after this page."""
        return len(self._keys) > self.per_page

    def page(self, number: int | str) -> Any:
        """The page; its rows are fetched by the keys that were looked up already."""
        number = self.validate_number(number)
        rows: Any = self.object_list
        return Page(rows.filter(pk__in=self._keys[: self.per_page]), number, self)


class PagedChangeList(ChangeList):
    """A list that is never shown whole: one row too many must not mean all of them."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.can_show_all = False
        self.has_more = getattr(self.paginator, "has_more", False)


class ReadOnlyAdmin(_ModelAdmin):
    """Rows that only the store writes: people look, and act by the actions offered."""

    paginator = LookAheadPaginator
    list_per_page = PER_PAGE
    list_max_show_all = 0
    show_full_result_count = False
    # Each count beside a filter would read the whole table.
    show_facets = admin.ShowFacets.NEVER
    # Sorting by a column without an index would sort the whole table.
    sortable_by = ()

    class Media:
        css = {"all": ("django_workflows/pages.css",)}
        js = ("django_workflows/live.js", "django_workflows/once.js")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.using(config().database)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return PagedChangeList

    def get_paginator(
        self, request: HttpRequest, queryset: Any, per_page: int, *args: Any, **kwargs: Any
    ) -> Any:
        paginator: Any = self.paginator(queryset, per_page, *args, **kwargs)
        page = request.GET.get(PAGE_VAR, "")
        if page.isascii() and page.isdigit() and 0 < int(page) < 10**7:
            paginator.page_number = int(page)
        return paginator

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if request.method == "POST":
            self.check_action(request)
        return super().changelist_view(request, extra_context)

    def check_action(self, request: HttpRequest) -> None:
        """Refuse a bulk action that this user isn't offered; Django would only ignore it."""
        given = request.POST.copy()
        # "All that match" was never counted, let alone shown.
        given["select_across"] = "0"
        request.POST = given  # type: ignore[assignment]
        if request.POST.get("action") not in self.get_actions(request):
            raise PermissionDenied

    def gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """To the list, saying that there is no such row."""
        given = {"name": self.opts.verbose_name, "key": payloads.readable(object_id)[:100]}
        messages.warning(request, _("There is no %(name)s “%(key)s”.") % given)
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"
        return redirect(reverse(name, current_app=self.admin_site.name))

    def context(self, request: HttpRequest, title: str, **more: Any) -> dict[str, Any]:
        """What the admin's base template needs, for a page of our own."""
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": title,
            "media": self.media,
            **more,
        }
