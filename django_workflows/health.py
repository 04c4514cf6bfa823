"""A health view for load balancers and monitoring."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from django_workflows.store.diagnosis import diagnose


@never_cache
@require_safe
def health(request: HttpRequest) -> JsonResponse:
    """200 when no errors are found, else 503; the body names kinds and counts, never payloads.

    It says nothing of single runs, so it may be open to a monitoring network; keep it from the
    public all the same.
    """
    found = diagnose()
    told = [
        {"kind": finding.kind, "level": finding.level, "count": finding.count} for finding in found
    ]
    is_well = all(finding.level != "error" for finding in found)
    body = {"status": "ok" if is_well else "error", "findings": told}
    return JsonResponse(body, status=200 if is_well else 503)
