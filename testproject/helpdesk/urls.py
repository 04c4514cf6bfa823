from django.urls import path

from . import views

app_name = "helpdesk"

urlpatterns = [path("webhook/", views.ticket_webhook, name="webhook")]
