from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="shop:orders")),
    path("orders/", include("testproject.shop.urls")),
    path("helpdesk/", include("testproject.helpdesk.urls")),
    path("sign-in/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("sign-out/", LogoutView.as_view(), name="logout"),
    path("approvals/", include("django_workflows.urls")),
    path("admin/", admin.site.urls),
]
