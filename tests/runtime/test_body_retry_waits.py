import pytest

from django_workflows import RetryPolicy, send_message, workflow
from django_workflows.testing import run_until_idle

pytestmark = pytest.mark.django_db


def test_a_retried_body_keeps_the_step_that_consumed_a_message_that_did_not_fit():
    @workflow(name="strict", retry=RetryPolicy(max_attempts=3, initial_interval=0, jitter=False))
    def strict(ctx):
        return ctx.wait_for_message("amount", schema=int).data

    run = strict.start()
    send_message(run, "amount", "a lot")
    run_until_idle(run)

    assert run.status == "failed"
    message = run.messages.get()
    assert message.consumed_by.status == "failed"
    assert message.consumed_by.run_id == run.pk
