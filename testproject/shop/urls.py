from django.urls import path

from . import views

app_name = "shop"

urlpatterns = [
    path("", views.orders, name="orders"),
    path("new/", views.place_order, name="place"),
    path("<str:number>/", views.order_page, name="order"),
    path("<str:number>/progress/", views.order_progress, name="progress"),
    path("<str:number>/decide/", views.decide, name="decide"),
]
