"""Code in README and docs compiles; blocks tagged `python run` run, page by page."""

import sys
from datetime import timedelta
from types import ModuleType

import pytest
from django.contrib.auth import get_user_model

import django_workflows
from django_workflows import approve, get_run, testing
from testproject import shop
from testproject.shop import models
from tests.docs.pages import ROOT, Page, pages

PAGES = pages()


@pytest.mark.parametrize("page", [page for page in PAGES if page.blocks], ids=str)
def test_python_blocks_compile(page):
    for block in page.blocks:
        if block.is_python and not block.code.startswith("except "):  # a clause alone
            compile("\n" * block.line + block.code, str(page.path), "exec")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(block.runs for block in page.blocks)], ids=str
)
def test_marked_blocks_run(page, monkeypatch):
    # A module of this name, so that what is defined in a block can be imported again.
    module = ModuleType("docs_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    with testing.workflow_clock():
        page.run(module.__dict__)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_blocks_import_only_public_names(page):
    for block in page.blocks:
        if not block.is_python:
            continue
        for line in block.code.splitlines():
            if line.startswith("from django_workflows import "):
                names = line.removeprefix("from django_workflows import ").partition("#")[0]
                asked = {name.strip() for name in names.strip("() ").split(",") if name.strip()}
                assert asked <= set(django_workflows.__all__), line


@pytest.fixture
def readme(monkeypatch) -> dict:
    """The README's workflow as it stands there, with a payment provider that says yes."""
    payments = ModuleType("shop.payments")
    payments.charge = lambda order_id, *, idempotency_key: {"id": f"ch_{idempotency_key}"}
    payments.refund = lambda charge_id: None
    package = ModuleType("shop")
    package.__path__ = shop.__path__
    package.payments = payments
    for name, module in (
        ("shop", package),
        ("shop.payments", payments),
        ("shop.models", models),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    namespace = {"__name__": "shop.workflows"}
    [block] = [b for b in Page(ROOT / "README.md").blocks if b.code.startswith("# shop/workflows")]
    exec(compile(block.code, "README.md", "exec"), namespace)
    return namespace


@pytest.mark.django_db
def test_the_readmes_workflow_ships_an_approved_order(readme):
    manager = get_user_model().objects.create(username="grace", is_superuser=True)
    product = models.Product.objects.create(name="Teapot", price=20)
    order = models.Order.objects.create(product=product, total=20, placed_by=manager)

    run = readme["fulfil_order"].using(workflow_id=f"order-{order.pk}").start(order_id=order.pk)
    approve(get_run(workflow_id=f"order-{order.pk}"), "manager", by=manager)
    testing.run_until_idle(run)
    testing.advance(timedelta(days=1))
    testing.run_until_idle(run)

    order.refresh_from_db()
    assert (run.result, order.status) == ({"status": "shipped"}, "shipped")


@pytest.mark.django_db
def test_the_readmes_workflow_refunds_what_nobody_approves(readme):
    run = readme["fulfil_order"].start(order_id=0)
    testing.run_until_idle(run)
    testing.advance(timedelta(days=7))
    testing.run_until_idle(run)

    assert run.result == {"status": "refunded"}
