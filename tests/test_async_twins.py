"""Async twins of every public function, from plain async code and from an async view."""

import asyncio
import inspect
import json
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connections
from django.http import JsonResponse
from django.test import AsyncClient
from django.urls import path

import django_workflows
from django_workflows import (
    GateDecided,
    RunFinished,
    RunNotFound,
    WorkflowAlreadyStarted,
    aapprove,
    acancel,
    aget_run,
    alist_messages,
    areject,
    arerun,
    aresume,
    asend_message,
    asend_signal,
    asignal_with_start,
    astart,
    workflow,
)
from django_workflows.fields import uuid7
from django_workflows.models import WorkflowRun

pytestmark = pytest.mark.django_db(transaction=True)


async def answer(request):
    """A view that starts a run, sends to it, and reads what it has sent."""
    data = json.loads(request.body)
    sent = await asignal_with_start(
        "t.waiting", workflow_id="w", name="go", data=data, idempotency_key=request.headers["Id"]
    )
    page = await alist_messages(sent.run)
    found = [message.data async for message in sent.run.messages.all()]
    return JsonResponse(
        {"run": str(sent.run.pk), "started": sent.started, "page": len(page.items), "all": found}
    )


urlpatterns = [path("answer", answer)]


@pytest.fixture(autouse=True)
def waiting():
    @workflow(name="t.waiting")
    def waiting(ctx, name="go"):
        return ctx.wait_for_message(name).data

    return waiting


def run_async(coroutine):
    async def with_clean_up():
        try:
            return await coroutine
        finally:
            # The thread that Django keeps for database work has a connection of its own.
            await sync_to_async(connections.close_all)()

    return asyncio.run(with_clean_up())


TWINS = {
    name: getattr(django_workflows, f"a{name}", None)
    for name in (
        "start",
        "signal_with_start",
        "send_message",
        "list_messages",
        "send_signal",
        "approve",
        "reject",
        "cancel",
        "rerun",
        "resume",
        "get_run",
    )
}


@pytest.mark.parametrize("name", TWINS)
def test_every_function_has_a_twin_of_the_same_signature(name):
    plain, twin = getattr(django_workflows, name), TWINS[name]

    assert inspect.iscoroutinefunction(twin)
    assert inspect.signature(twin) == inspect.signature(plain)
    assert (twin.__name__, twin.__doc__) == (f"a{name}", f"Async twin of `{name}`.")
    assert f"a{name}" in django_workflows.__all__


def test_no_public_function_that_touches_the_database_lacks_a_twin():
    functions = {
        name
        for name in django_workflows.__all__
        if inspect.isfunction(getattr(django_workflows, name))
    }
    plain = {"workflow", "step", "register", "is_workflow_suspended"}
    assert functions - plain == set(TWINS) | {f"a{name}" for name in TWINS}


def test_a_run_lives_its_whole_life_through_twins(waiting):
    async def live():
        run = await astart(waiting, {"name": "go"})
        assert (await aresume(run)).status == "suspended"
        sent = await asend_message(run, "go", 7, idempotency_key="k")
        again = await asend_message(run.pk, "go", 8, idempotency_key="k")
        assert (again.pk, again.deduplicated) == (sent.pk, True)
        assert (await alist_messages(run, state="pending")).items == [sent]
        done = await aresume(str(run.pk))
        assert (await aget_run(run.pk)).result == done.result == 7
        once_more = await arerun(run)
        return (await aresume(once_more)).result, once_more.rerun_of_id == run.pk

    assert run_async(live()) == (7, True)


def test_workflows_start_themselves_asynchronously(waiting):
    async def live():
        run = await waiting.using(workflow_id="w", deadline=timedelta(hours=1)).astart(name="go")
        again = await waiting.using(workflow_id="w").astart(name="other")
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            await waiting.astart(wrong=1)
        return run, again, await acancel(run, reason="enough")

    run, again, ended = run_async(live())
    assert (again, again.deduplicated, ended.status) == (run, True, "canceled")


def test_signals_and_gates_through_twins():
    @workflow(name="t.both")
    def both(ctx):
        news = ctx.wait_for_signal("news").data
        return [news, *(ctx.wait_for_approval("gate").approved for _ in range(2))]

    ann = User.objects.create_user("ann")

    async def live():
        run = await astart(both)
        await aresume(run)
        assert await asend_signal("news", 7) == [run.pk]
        await aresume(run)
        await aapprove(run, "gate", by=ann)
        with pytest.raises(GateDecided):
            await areject(run, "gate", by=ann)
        await aresume(run)
        await areject(run, "gate", by=ann)
        return (await aresume(run)).result

    assert run_async(live()) == [7, True, False]


def test_errors_come_through_as_themselves(waiting):
    async def fail():
        with pytest.raises(RunNotFound):
            await asend_message(uuid7(), "go")
        run = await waiting.using(workflow_id="w").astart()
        with pytest.raises(WorkflowAlreadyStarted) as caught:
            await astart(waiting, workflow_id="w", id_conflict="raise")
        await acancel(run)
        with pytest.raises(RunFinished):
            await asend_message(run, "go")
        return caught.value.run == run

    assert run_async(fail())


def test_many_calls_at_once_start_one_run():
    async def call():
        return await asyncio.gather(
            *(
                asignal_with_start("t.waiting", workflow_id="w", name="go", data=n)
                for n in range(20)
            )
        )

    called = run_async(call())

    assert [each.started for each in called].count(True) == 1
    assert {each.run.pk for each in called} == {WorkflowRun.objects.get().pk}
    assert WorkflowRun.objects.get().messages.count() == 20


def test_an_async_view_uses_them(settings):
    settings.ROOT_URLCONF = __name__

    async def post(data, key):
        client = AsyncClient()
        response = await client.post(
            "/answer", data, content_type="application/json", headers={"Id": key}
        )
        assert response.status_code == 200
        return response.json()

    async def posts():
        return [await post({"n": 1}, "a"), await post({"n": 1}, "a"), await post({"n": 2}, "b")]

    first, again, second = run_async(posts())

    assert [each["started"] for each in (first, again, second)] == [True, False, False]
    assert len({each["run"] for each in (first, again, second)}) == 1
    assert (again["page"], second["all"]) == (1, [{"n": 1}, {"n": 2}])
