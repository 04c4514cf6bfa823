"""The same inbox and decision as views for a project's own site."""

import re

import pytest
from django.urls import reverse

from django_workflows.models import WorkflowMessage
from django_workflows.testing import run_until_idle

pytestmark = pytest.mark.django_db


@pytest.fixture
def customer(make_user, sign_in):
    return sign_in(make_user(is_staff=False, groups=["buyers"], username="customer"))


def gate_url(gate):
    return reverse("django_workflows:gate", args=[gate.pk])


def post(client, gate, decision, **given):
    page = client.get(gate_url(gate)).content.decode()
    nonce = re.search(r'name="page" value="(\w+)"', page)[1]
    data = {"page": nonce, "comment": "", "decision": decision, **given}
    return client.post(gate_url(gate), data, follow=True)


def test_a_user_sees_what_waits_for_them_and_decides_it(customer, open_gate):
    run, mine = open_gate(approvers="buyers")
    _run, foreign = open_gate(approvers="sellers")
    _run, unnamed = open_gate()
    page = customer.get(reverse("django_workflows:gates")).content.decode()
    assert gate_url(mine) in page
    assert gate_url(foreign) not in page
    assert gate_url(unnamed) not in page
    answer = post(customer, mine, "approve", comment="ok")
    assert "You approved" in answer.content.decode()
    run_until_idle(run)
    assert run.result == [True]
    assert "by customer" in customer.get(gate_url(mine)).content.decode()


def test_gates_of_others_are_refused(customer, open_gate):
    for given in ({"approvers": "sellers"}, {"permission": "shop.approve_order"}, {}):
        _run, gate = open_gate(**given)
        assert customer.get(gate_url(gate)).status_code == 403
        assert customer.post(gate_url(gate), {"decision": "approve"}).status_code == 403
    assert not WorkflowMessage.objects.exists()


def test_strangers_are_sent_to_sign_in(client, open_gate):
    _run, gate = open_gate(approvers="buyers")
    for url in (reverse("django_workflows:gates"), gate_url(gate)):
        assert client.get(url).headers["Location"].startswith(reverse("login"))
    assert client.post(gate_url(gate)).status_code == 302


def test_a_gate_that_names_nobody_is_for_those_with_the_permission(make_user, sign_in, open_gate):
    run, gate = open_gate()
    client = sign_in(make_user("decide_approval", is_staff=False))
    assert gate_url(gate) in client.get(reverse("django_workflows:gates")).content.decode()
    post(client, gate, "reject")
    run_until_idle(run)
    assert run.result == [False]


def test_an_unknown_gate_is_not_found(customer):
    assert customer.get(reverse("django_workflows:gate", args=[999])).status_code == 404


def test_the_templates_can_be_overridden_and_the_views_subclassed(
    customer, open_gate, settings, tmp_path
):
    (tmp_path / "django_workflows").mkdir()
    (tmp_path / "django_workflows/base.html").write_text(
        "<body>OUR SITE {% block content %}{% endblock %}</body>"
    )
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]
    _run, gate = open_gate(approvers="buyers")
    page = customer.get(gate_url(gate)).content.decode()
    assert page.startswith("<body>OUR SITE")
    assert "Approve" in page
