"""Fan out: a child run per customer, then collect what came of them."""

from __future__ import annotations

from typing import Any

from django_workflows import ChildFailed, RetryPolicy, WorkflowContext, step, workflow

from .. import services


@step(retry=RetryPolicy(non_retryable=(services.MailRefused,)))
def mail_customer(incident: str, email: str) -> None:
    services.send_mail(email, "incident", key=f"{incident}/{email}")


@workflow
def tell_customer(ctx: WorkflowContext, incident: str, email: str) -> str:
    ctx.step("mail", mail_customer, incident, email)
    return email


@workflow
def tell_customers(ctx: WorkflowContext, incident: str, emails: list[str]) -> dict[str, Any]:
    """Tell all customers of an incident at once; one bad address doesn't stop the others."""
    children = [
        ctx.start_child(tell_customer, {"incident": incident, "email": email}) for email in emails
    ]
    told: list[str] = []
    failed: dict[str, str] = {}
    for email, child in zip(emails, children, strict=True):
        try:
            told.append(child.result())
        except ChildFailed as failure:
            failed[email] = failure.error["message"]
        ctx.set_state(done=len(told) + len(failed), total=len(emails))
    return {"told": told, "failed": failed}
