"""A real browser against a live server, with real workers behind it."""

import os
import re
import shutil
from decimal import Decimal

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from playwright.sync_api import expect, sync_playwright

from testproject.shop.models import Product

PASSWORD = "only-for-tests"
# Waits for what the page should come to; a worker starts and executes in between.
PATIENCE = 20_000
expect.set_options(timeout=PATIENCE)

STAFF = (
    "django_workflows.view_workflowrun",
    "django_workflows.view_workflowstep",
    "django_workflows.view_workflowmessage",
    "django_workflows.view_workflowsignal",
    "django_workflows.view_workflowworker",
    "django_workflows.cancel_workflowrun",
    "django_workflows.rerun_workflowrun",
    "django_workflows.wake_workflowrun",
    "django_workflows.send_message",
    "django_workflows.add_workflowrun",
    "django_workflows.decide_approval",
    "shop.approve_order",
    "shop.view_order",
)
APPROVER = ("django_workflows.decide_approval", "shop.approve_order")


def chromium():
    """Where the browser is. It is part of the suite: without one, tests fail rather than skip."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.fail("The browser tests need Chromium: apt-get install chromium, or set CHROMIUM.")
    return found


# For one module at a time: while it is open no other event loop can run in this thread, and async
# code is tested too.
@pytest.fixture(scope="module")
def browser():
    # Playwright runs an event loop in this thread, in which Django refuses to use the database.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        yield browser
        browser.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def make_person(transactional_db):
    def make(name, *permissions, **options):
        user = get_user_model().objects.create_user(name, password=PASSWORD, **options)
        for permission in permissions:
            app, _, codename = permission.partition(".")
            user.user_permissions.add(
                Permission.objects.get(content_type__app_label=app, codename=codename)
            )
        return user

    return make


@pytest.fixture
def open_page(browser, live_server):
    """A page of a browser of its own, signed in; errors on it fail the test."""
    contexts = []
    errors = []

    def open_page(username, path="/", *, through="/sign-in/", **options):
        context = browser.new_context(base_url=live_server.url, **options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(f"{page.url}: {error.stack}"))
        page.goto(through)
        page.get_by_label(re.compile("username", re.I)).fill(username)
        page.get_by_label(re.compile("password", re.I)).fill(PASSWORD)
        page.get_by_role("button", name=re.compile("(sign|log) in", re.I)).click()
        page.wait_for_url(lambda url: "sign-in" not in url and "login" not in url)
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def teapot(transactional_db):
    return Product.objects.create(name="Teapot", price=Decimal("24.90"))


@pytest.fixture
def workers(start_worker):
    return start_worker("--poll-interval", "0.1", SHOP_COOLING_OFF_SECONDS="0.5")


def stay(page):
    """Mark a page, so that a reload would show: its own script's memory would be gone."""
    page.evaluate("window.stillTheSamePage = true")


def has_stayed(page):
    return page.evaluate("window.stillTheSamePage === true")
