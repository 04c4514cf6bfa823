from __future__ import annotations

import json

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from django_workflows import signal_with_start

from . import signatures
from .forms import EventForm
from .workflows import handle_ticket


@csrf_exempt  # the caller is a server: the signature stands in for the token
@require_POST
def ticket_webhook(request: HttpRequest) -> HttpResponse:
    """Hand an event to its ticket's run, starting one where none is open."""
    if not signatures.is_signed(request.body, request.headers.get(signatures.HEADER, "")):
        return JsonResponse({"error": "bad signature"}, status=401)
    try:
        given = json.loads(request.body)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        return JsonResponse({"error": "not a JSON object"}, status=400)
    form = EventForm(given)
    if not form.is_valid():
        return JsonResponse({"error": form.errors.get_json_data()}, status=400)
    event = form.cleaned_data
    outcome = signal_with_start(
        handle_ticket,
        workflow_id=f"ticket-{event['ticket']}",
        name="event",
        data=event,
        input={"number": event["ticket"]},
        idempotency_key=event["id"],
    )
    # 200 for a repeat too: the provider asks whether we have the event, and we do.
    return JsonResponse(
        {
            "run": str(outcome.run.pk),
            "started": outcome.started,
            "repeated": outcome.message.deduplicated,
        }
    )
