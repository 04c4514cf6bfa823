"""The admin where the workflows have a database of their own: run as a process, prints what failed.

Users, sessions and the admin's history stay in `default`; nothing of ours may be looked for there.
"""

import sys
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command


class Router:
    """Our tables live in `flows`, all others in `default`."""

    def _alias(self, app_label):
        return "flows" if app_label == "django_workflows" else "default"

    def allow_migrate(self, db, app_label, **hints):
        return db == self._alias(app_label)


def configure(directory, *, use_tz):
    from tests import settings as base

    given = {name: getattr(base, name) for name in dir(base) if name.isupper()}
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "OPTIONS": {"transaction_mode": "IMMEDIATE"}}
    given["DATABASES"] = {
        name: {**sqlite, "NAME": str(Path(directory) / f"{name}-{use_tz}.sqlite3")}
        for name in ("default", "flows")
    }
    given["DATABASE_ROUTERS"] = ["tests.admin.other_database.Router"]
    given["DJANGO_WORKFLOWS"] = {"DATABASE": "flows"}
    given["USE_TZ"] = use_tz
    given["TIME_ZONE"] = "America/New_York"
    given["ALLOWED_HOSTS"] = ["*"]
    settings.configure(**given)
    django.setup()
    for name in given["DATABASES"]:
        call_command("migrate", database=name, verbosity=0)


def visit():
    """Every page, and a gate decided, a message sent, a run canceled and rerun."""
    import re

    from django.contrib.auth import get_user_model
    from django.test import Client
    from django.urls import reverse

    from django_workflows import workflow
    from django_workflows.models import WorkflowRun
    from django_workflows.testing import run_until_idle
    from testproject.shop.models import Product

    @workflow(name="tests.other")
    def other(ctx):
        ctx.wait_for_message("go", timeout=3600)
        return ctx.wait_for_approval("gate").approved

    client = Client()
    client.force_login(get_user_model().objects.create_superuser("boss"))
    subject = Product.objects.create(name="Teapot", price=1)
    run = other.using(workflow_id="one", subject=subject).start()
    assert run._state.db == "flows"
    run_until_idle(run)

    def url(name, *args):
        return reverse(f"admin:django_workflows_{name}", args=args)

    def nonce(address):
        return re.search(r'name="page" value="(\w+)"', client.get(address).content.decode())[1]

    send = url("workflowrun_send", run.pk)
    sent = {"name": "go", "data-value": "1", "page": nonce(send)}
    assert client.post(send, sent).status_code == 302
    run_until_idle(run)
    gate = run.steps.get(kind="approval")
    page = url("approvalgate_change", gate.pk)
    pages = [reverse("admin:index"), page, url("registry"), url("workflowstep_report")]
    pages += [
        url(f"{model}_changelist")
        for model in (
            "workflowrun",
            "workflowmessage",
            "workflowsignal",
            "workflowstep",
            "workflowworker",
            "approvalgate",
        )
    ]
    pages += [url("workflowrun_change", run.pk), url("workflowrun_history", run.pk)]
    pages += [
        url("workflowrun_changelist") + query
        for query in (
            "?started=2026",
            "?waiting=1h",
            "?waiting=any",
            "?attention=failed",
            "?q=on",
        )
    ]
    pages += [url("workflowmessage_changelist") + "?state=consumed&age=1h", "/approvals/"]
    pages += [url("workflowmessage_change", run.messages.first().pk)]
    pages += [reverse("admin:shop_product_change", args=[subject.pk])]
    for address in pages:
        assert client.get(address).status_code == 200, address
    assert "Teapot" in client.get(url("workflowrun_change", run.pk)).content.decode()
    assert client.post(page, {"decision": "approve", "page": nonce(page)}).status_code == 302
    run_until_idle(run)
    assert run.result is True, run.error
    for name in ("rerun", "cancel", "wake"):
        target = run if name == "rerun" else WorkflowRun.objects.using("flows").latest()
        given = {"begin": "start", "reason": "why"}
        assert client.post(url(f"workflowrun_{name}", target.pk), given).status_code == 302, name
    assert WorkflowRun.objects.using("flows").latest().status == "canceled"


if __name__ == "__main__":
    configure(sys.argv[1], use_tz=sys.argv[2] == "tz")
    visit()
