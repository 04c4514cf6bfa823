from datetime import timedelta

import factory
import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.urls import reverse

from django_workflows import RetryPolicy, step, workflow
from django_workflows.testing import run_until_idle
from tests.admin import forms

pytestmark = pytest.mark.django_db


class UserFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = get_user_model()

    username = factory.Sequence(lambda n: f"person-{n}")
    is_staff = True


@pytest.fixture
def make_user(db):
    """A member of staff with permissions (`view_workflowrun` or `app.codename`) and groups."""

    def make(*permissions, groups=(), **options):
        user = UserFactory(**options)
        for name in permissions:
            app, _, codename = name.rpartition(".")
            found = Permission.objects.filter(codename=codename)
            user.user_permissions.add(found.get(content_type__app_label=app or "django_workflows"))
        for name in groups:
            user.groups.add(Group.objects.get_or_create(name=name)[0])
        return user

    return make


@pytest.fixture
def sign_in():
    def sign_in(user, **options):
        client = Client(**options)
        client.force_login(user)
        return client

    return sign_in


VIEW = (
    "view_workflowrun",
    "view_workflowstep",
    "view_workflowmessage",
    "view_workflowsignal",
    "view_workflowworker",
)


@pytest.fixture
def viewer(make_user, sign_in):
    """A client of somebody who may look at everything and touch nothing."""
    return sign_in(make_user(*VIEW, username="viewer"))


@pytest.fixture
def boss(make_user, sign_in):
    """A client of a superuser."""
    return sign_in(make_user(username="boss", is_superuser=True))


def run_page(run):
    return reverse("admin:django_workflows_workflowrun_change", args=[run.pk])


def action_page(run, name):
    return reverse(f"admin:django_workflows_workflowrun_{name}", args=[run.pk])


def gate_page(step):
    return reverse("admin:django_workflows_approvalgate_change", args=[step.pk])


def listing(model):
    return reverse(f"admin:django_workflows_{model}_changelist")


@pytest.fixture
def flaky(db):
    """A run whose step fails twice and then for good."""

    def always_fail():
        raise OSError("the network is away <b>again</b>")

    @workflow(name="tests.flaky")
    def flaky(ctx):
        ctx.step("connect", step(always_fail, retry=RetryPolicy(max_attempts=3, jitter=False)))

    return flaky.start()


@pytest.fixture
def waiting(db):
    """A workflow that waits for a message."""

    @workflow(name="tests.waiting")
    def waiting(ctx, name="go", with_form=False, timeout=None):
        ctx.step("prepare", dict, ready=True)
        ctx.set_state(doing="waiting", done=1, total=4)
        schema = forms.Address if with_form else None
        message = ctx.wait_for_message(name, schema=schema, timeout=timeout)
        return message.data if message else None

    return waiting


@pytest.fixture
def gated(db):
    """A workflow with a gate."""

    @workflow(name="tests.gated")
    def gated(ctx, with_form=False, permission=None, approvers=None, timeout=None, times=1):
        decisions = []
        for _ in range(times):
            decision = ctx.wait_for_approval(
                "manager",
                permission=permission,
                approvers=approvers,
                form=forms.Amount if with_form else None,
                timeout=timedelta(seconds=timeout) if timeout else None,
                title="Pay the <i>invoice</i>?",
                description="It is about 50 euros.",
            )
            decisions.append(decision and decision.approved)
        return decisions

    return gated


@pytest.fixture
def open_gate(gated):
    """A run that waits at its gate, and the gate's step."""

    def start(**given):
        run = gated.start(**given)
        run_until_idle(run)
        return run, run.steps.get(kind="approval", status="waiting")

    return start
