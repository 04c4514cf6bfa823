"""Approvals in a project's own site: `path("approvals/", include("django_workflows.urls"))`."""

from django.urls import path

from django_workflows.gates.views import GateListView, GateView

app_name = "django_workflows"

urlpatterns = [
    path("", GateListView.as_view(), name="gates"),
    path("<int:pk>/", GateView.as_view(), name="gate"),
]
