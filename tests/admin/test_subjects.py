"""An object's runs on its own admin page."""

import pytest
from django.contrib import admin
from django.urls import path, reverse

from django_workflows.admin import WorkflowRunInline
from django_workflows.admin.runs import RunAdmin
from django_workflows.models import WorkflowRun
from testproject.shop.models import Product
from testproject.urls import urlpatterns as project

site = admin.AdminSite(name="own")
bare = admin.AdminSite(name="bare")


class ProductAdmin(admin.ModelAdmin):
    inlines = [WorkflowRunInline]


site.register(Product, ProductAdmin)
site.register(WorkflowRun, RunAdmin)
bare.register(Product, ProductAdmin)
urlpatterns = [*project, path("own/", site.urls), path("bare/", bare.urls)]

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


def test_the_runs_about_an_object_stand_on_its_page_which_can_still_be_saved(boss, waiting):
    product = Product.objects.create(name="Teapot", price=10)
    other = Product.objects.create(name="Bell", price=5)
    run = waiting.using(subject=product, workflow_id="<order>").start()
    url = reverse("own:shop_product_change", args=[product.pk])
    page = boss.get(url).content.decode()
    assert reverse("own:django_workflows_workflowrun_change", args=[run.pk]) in page
    assert "&lt;order&gt;" in page
    assert (
        "No workflow"
        in boss.get(reverse("own:shop_product_change", args=[other.pk])).content.decode()
    )
    assert boss.get(reverse("own:shop_product_add")).status_code == 200
    prefix = "workflow_runs"
    given = {"name": "Kettle", "price": "11", **{f"{prefix}-{k}": "1" for k in ("TOTAL_FORMS",)}}
    given |= {f"{prefix}-INITIAL_FORMS": "1", f"{prefix}-0-id": str(run.pk)}
    assert boss.post(url, given).status_code == 302
    product.refresh_from_db()
    assert product.name == "Kettle"


def test_the_inline_passes_djangos_checks():
    assert ProductAdmin(Product, site).check() == []


def test_a_site_without_our_pages_names_the_runs_without_links(boss, waiting):
    product = Product.objects.create(name="Teapot", price=10)
    waiting.using(subject=product, workflow_id="order-7").start()
    page = boss.get(reverse("bare:shop_product_change", args=[product.pk])).content.decode()
    assert "tests.waiting order-7" in page
    assert "/workflowrun/" not in page


def test_every_link_of_our_pages_stays_on_its_site(boss, waiting):
    run = waiting.using(subject=Product.objects.create(name="Teapot", price=10)).start()
    for name in ("workflowrun_change", "workflowrun_cancel", "workflowrun_send"):
        page = boss.get(reverse(f"own:django_workflows_{name}", args=[run.pk])).content.decode()
        assert '"/own/django_workflows/workflowrun/' in page
        assert '"/admin/' not in page
