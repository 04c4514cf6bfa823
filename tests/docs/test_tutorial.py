"""The tutorial, followed to the letter in an empty folder."""

import os
import subprocess
import sys

import pytest

from tests.docs.pages import DOCS, ROOT, Page

TUTORIAL = Page(DOCS / "tutorial" / "index.md")

# What the reader does in the browser, and the worker beside it, without waiting for real.
STORY = """
from datetime import timedelta
from unittest.mock import patch
from django.contrib.auth import get_user_model
from django.test import Client
from django_workflows import get_run
from django_workflows.testing import advance, run_until_idle
from shop.models import Order

browser = Client()
browser.force_login(get_user_model().objects.create_superuser("boss"))
assert browser.get("/place/teapot/").status_code == 302
run = get_run(workflow_id="order-1")
with patch("time.sleep") as slept:
    run_until_idle(run)
slept.assert_called_once_with(10)
assert b"teapot: paid" in browser.get("/orders/1/").content

gate = run.steps.get(kind="approval")
assert b"Ship order 1?" in browser.get("/approvals/").content
page = browser.get(f"/approvals/{gate.pk}/").content.decode()
shown = page.split('name="page" value="')[1].split('"')[0]
fields = {"decision": "approve", "comment": "", "page": shown}
answer = browser.post(f"/approvals/{gate.pk}/", fields)
assert answer.status_code == 302, answer.content
run_until_idle(run)
advance(timedelta(seconds=10))
run_until_idle(run)
assert run.result == {"status": "shipped", "charge": "ch_1", "approved_by": "boss"}, run.error
assert Order.objects.get().status == "shipped"
print("the order is shipped")
"""


@pytest.fixture
def follow(tmp_path):
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DJANGO_SETTINGS_MODULE", "DATABASE_URL")
    }
    environment["PYTHONPATH"] = str(ROOT)

    def run(*arguments, **options):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            **options,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_tutorial_ends_with_a_shipped_order(follow, tmp_path):
    follow("-m", "django", "startproject", "mysite", ".")
    follow("manage.py", "startapp", "shop")
    for block in TUTORIAL.blocks:
        first, _, _ = block.code.partition("\n")
        if not block.is_python or not first.startswith("# "):
            continue
        file = tmp_path / first.removeprefix("# ")
        # Settings are added to; every other file is written anew.
        before = file.read_text() if file.name == "settings.py" else ""
        file.write_text(before + block.code)
    with (tmp_path / "mysite" / "settings.py").open("a") as settings:
        settings.write('ALLOWED_HOSTS = ["testserver"]\n')
    follow("manage.py", "makemigrations", "shop")
    follow("manage.py", "migrate")

    assert "no issues" in follow("manage.py", "check")
    assert "the order is shipped" in follow("manage.py", "shell", input=STORY)
    follow("manage.py", "runworkflows", "--burst")
