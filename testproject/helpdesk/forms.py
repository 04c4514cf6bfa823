from __future__ import annotations

from django import forms


class EventForm(forms.Form):
    """An event as the provider posts it."""

    id = forms.CharField(max_length=200)
    ticket = forms.CharField(max_length=40)
    type = forms.ChoiceField(choices=[(name, name) for name in ("opened", "reply", "closed")])
    author = forms.CharField(max_length=200)
    text = forms.CharField(required=False, max_length=100_000)
