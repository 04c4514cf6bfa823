"""Forms that gates and waits of the tests ask for."""

from django import forms


class Amount(forms.Form):
    amount = forms.DecimalField(max_digits=8, decimal_places=2)
    urgent = forms.BooleanField(required=False)


class Address(forms.Form):
    street = forms.CharField(max_length=50)
    number = forms.IntegerField(min_value=1)
