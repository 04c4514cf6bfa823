"""Payloads as files: the JSON that is stored, whole."""

from __future__ import annotations

from typing import Any

from django.db.models import Model
from django.db.models.functions import Substr
from django.http import Http404, HttpResponse
from django.utils.translation import gettext as _

from django_workflows import payloads
from django_workflows.conf import config

ENTIRE = 2**31 - 1


def payload(model: type[Model], pk: Any, column: str, name: str) -> HttpResponse:
    """A column of one row as `<name>.json`.

    Raises:
        Http404: there is no such row, or nothing in it.
    """
    rows = model._default_manager.using(config().database).filter(pk=pk)
    # As text: the column's own type would decode it, and lose how it was stored.
    text = rows.values_list(Substr(column, 1, ENTIRE), flat=True).first()
    if text is None:
        raise Http404(_("There is no such payload."))
    response = HttpResponse(payloads.unseal(text), content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="{name}.json"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
