from __future__ import annotations

from django import forms

from .models import Order


class OrderForm(forms.ModelForm):
    quantity = forms.IntegerField(min_value=1, max_value=1000, initial=1)

    class Meta:
        model = Order
        fields = ["product", "quantity", "customer"]


class DecisionForm(forms.Form):
    decision = forms.ChoiceField(choices=[("approve", "Approve"), ("reject", "Reject")])
    comment = forms.CharField(required=False, max_length=500)
