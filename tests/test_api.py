"""Start by name, look up, and the options of a start."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User

from django_workflows import (
    PayloadError,
    RunNotFound,
    WorkflowNotRegistered,
    acancel,
    aget_run,
    alist_messages,
    aresume,
    asend_message,
    astart,
    get_run,
    list_messages,
    send_message,
    start,
    workflow,
)
from django_workflows.models import WorkflowRun
from django_workflows.testing import run_until_idle
from tests.lab.models import Thing

pytestmark = pytest.mark.django_db


@pytest.fixture
def flow():
    @workflow(name="t.flow")
    def flow(ctx, order_id=0):
        return ctx.wait_for_message("go").data

    return flow


def test_start_takes_a_workflow_or_its_name(flow):
    runs = [start(flow, {"order_id": 1}), start("t.flow", {"order_id": 2}), start("t.flow")]

    assert [run.input for run in runs] == [{"order_id": 1}, {"order_id": 2}, {}]
    assert {run.workflow_name for run in runs} == {"t.flow"}


def test_start_by_name_takes_the_newest_version_or_the_one_that_is_asked_for():
    for version in ("9", "10"):
        workflow(name="t.versions", version=version)(lambda ctx: None)

    assert start("t.versions").version == "10"
    assert start("t.versions", version=9).version == "9"


def test_start_of_an_unknown_name_is_refused_before_anything_is_stored():
    with pytest.raises(WorkflowNotRegistered, match=r"^No workflow named 't\.none' is registered"):
        start("t.none")

    assert not WorkflowRun.objects.exists()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"workflow_id": ""}, ValueError, "A workflow id must not be empty."),
        ({"workflow_id": " "}, ValueError, "A workflow id must not be empty."),
        ({"workflow_id": 7}, TypeError, "A workflow id must be a str, not int."),
        (
            {"workflow_id": "x" * 256},
            ValueError,
            "A workflow id must have at most 255 characters; this has 256.",
        ),
        ({"queue_name": ""}, ValueError, "A queue's name must not be empty."),
        ({"priority": "1"}, TypeError, "priority must be an int, not str."),
        ({"priority": True}, TypeError, "priority must be an int, not bool."),
        ({"priority": 2**31}, ValueError, "priority must fit 32 bits, got 2147483648."),
        (
            {"id_conflict": "allow"},
            ValueError,
            "id_conflict must be one of return, raise; got 'allow'.",
        ),
        (
            {"id_reuse": "never"},
            ValueError,
            "id_reuse must be one of return, raise, allow, allow_failed; got 'never'.",
        ),
        (
            {"run_after": timedelta(seconds=-1)},
            ValueError,
            "run_after must be zero or more, got datetime.timedelta(days=-1, seconds=86399).",
        ),
        (
            {"run_after": "soon"},
            TypeError,
            "run_after must be a datetime or a timedelta, not str.",
        ),
        (
            {"deadline": datetime(2040, 1, 1)},
            ValueError,
            "deadline must be an aware datetime while USE_TZ is on, got "
            "datetime.datetime(2040, 1, 1, 0, 0).",
        ),
        (
            {"subject": "order"},
            TypeError,
            "A subject must be a model instance, not str.",
        ),
    ],
)
def test_a_bad_option_is_refused_and_nothing_is_stored(flow, options, error, text):
    with pytest.raises(error) as at_start:
        start(flow, **options)
    with pytest.raises(error) as by_using:
        flow.using(**options).start()

    assert str(at_start.value) == str(by_using.value) == text
    assert not WorkflowRun.objects.exists()


# https://github.com/dbos-inc/dbos-transact-py/issues/759
def test_an_empty_name_or_key_is_refused_and_nothing_is_stored(flow):
    run = flow.start()
    for name, key, text in [
        ("", None, "A message's name must not be empty."),
        ("go", "", "An idempotency key must not be empty."),
    ]:
        with pytest.raises(ValueError, match=f"^{text}$"):
            send_message(run, name, idempotency_key=key)

    assert not run.messages.exists()


def test_start_takes_only_a_workflow():
    with pytest.raises(TypeError) as caught:
        start(lambda ctx: None)

    assert str(caught.value) == (
        "Expected a workflow or its name, got function. Decorate the function with @workflow."
    )


def test_a_subject_is_kept_with_the_run_and_runs_are_found_by_it(flow):
    order, other = Thing.objects.create(name="a"), Thing.objects.create(name="b")
    user = User.objects.create_user("7")
    runs = [flow.using(subject=subject).start() for subject in (order, order, other, user)]
    flow.start()

    assert get_run(runs[0].pk).subject == order
    assert get_run(runs[3].pk).subject == user
    assert list(WorkflowRun.objects.for_subject(order)) == [runs[1], runs[0]]
    assert list(WorkflowRun.objects.for_subject(user)) == [runs[3]]
    order.delete()
    assert get_run(runs[0].pk).subject is None


def test_an_unsaved_subject_is_refused(flow):
    with pytest.raises(
        ValueError, match=r"^A subject must be saved first; this Thing has no pk\.$"
    ):
        flow.using(subject=Thing()).start()

    assert not WorkflowRun.objects.exists()


def test_get_run_by_the_run_or_its_id(flow):
    run = flow.start()

    assert get_run(run) == get_run(run.pk) == get_run(str(run.pk)) == get_run(run.pk.hex) == run


def test_get_run_by_workflow_id_prefers_the_open_run_and_else_takes_the_newest(flow):
    reused = flow.using(workflow_id="order-7", id_reuse="allow")
    first = reused.start()
    assert get_run(workflow_id="order-7") == first
    send_message(first, "go")
    run_until_idle(first)
    assert get_run(workflow_id="order-7") == first
    second = reused.start()
    assert get_run(workflow_id="order-7") == second
    send_message(second, "go")
    run_until_idle(second)

    assert get_run(workflow_id="order-7") == second


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((uuid.UUID(int=7),), {}, f"There is no workflow run with id '{uuid.UUID(int=7)}'. "),
        (("order-7",), {}, "There is no workflow run with id 'order-7'. "),
        ((), {"workflow_id": "order-7"}, "There is no workflow run with workflow id 'order-7'. "),
    ],
)
def test_get_run_of_an_unknown_id_says_what_to_check(args, kwargs, text):
    with pytest.raises(RunNotFound) as caught:
        get_run(*args, **kwargs)

    assert str(caught.value) == (
        f"{text}Check the id, and that the transaction that started it has been committed."
    )


@pytest.mark.parametrize("kwargs", [{}, {"run_id": uuid.UUID(int=7), "workflow_id": "a"}])
def test_get_run_needs_one_id(kwargs):
    with pytest.raises(TypeError, match=r"^get_run\(\) takes either a run id or workflow_id=\.$"):
        get_run(**kwargs)


@pytest.mark.parametrize("value", [5, None, 1.5, b"x"])
def test_what_is_neither_run_nor_id_is_a_type_error(value):
    with pytest.raises(TypeError) as caught:
        send_message(value, "go")

    assert str(caught.value) == (
        f"A run must be a WorkflowRun, a UUID or a str, not {type(value).__name__}."
    )


def test_list_messages_gives_pages_oldest_first_until_there_are_no_more(flow):
    run = flow.start()
    for n in range(5):
        send_message(run, "go" if n % 2 else "stop", n)
    pages, cursor = [], None
    while True:
        page = list_messages(run.pk, limit=2, cursor=cursor)
        pages.append([each.data for each in page.items])
        cursor = page.next_cursor
        if cursor is None:
            break

    assert pages == [[0, 1], [2, 3], [4]]
    assert [each.data for each in list_messages(run, name="go").items] == [1, 3]
    assert list_messages(run, limit=5).next_cursor is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"state": "new"}, "state must be one of pending, consumed; got 'new'."),
        ({"limit": 0}, "limit must be an int from 1 to 1000, got 0."),
        ({"limit": 1001}, "limit must be an int from 1 to 1000, got 1001."),
        ({"limit": True}, "limit must be an int from 1 to 1000, got True."),
        ({"cursor": "x"}, "cursor must be a next_cursor that a page gave, got 'x'."),
        ({"cursor": ""}, "cursor must be a next_cursor that a page gave, got ''."),
    ],
)
def test_list_messages_refuses_what_is_no_page(flow, options, text):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared
        list_messages(flow.start(), **options)

    assert str(caught.value) == text


def test_list_messages_of_an_unknown_run_is_not_an_empty_page():
    with pytest.raises(RunNotFound):
        list_messages(uuid.UUID(int=7))


def test_a_payload_that_cannot_be_stored_names_its_place(flow):
    with pytest.raises(PayloadError, match=r"^input\.order_id: a Thing instance can't be stored"):
        start("t.flow", {"order_id": Thing()})


@pytest.mark.django_db(transaction=True)
def test_async_twins_do_the_same(flow):
    async def talk():
        run = await astart("t.flow", {"order_id": 7})
        assert (await aresume(run)).status == "suspended"
        sent = await asend_message(run, "go", 1, idempotency_key="k")
        again = await asend_message(run, "go", 2, idempotency_key="k")
        page = await alist_messages(run, state="pending")
        done = await aresume(run.pk)
        second = await flow.astart(order_id=8)
        ended = await acancel(second, reason="enough")
        return [sent.pk, again.pk, page.items[0].pk], done, ended, await aget_run(run.pk)

    ids, done, ended, found = async_to_sync(talk)()

    assert len(set(ids)) == 1
    assert (done.result, ended.status, found.status) == (1, "canceled", "completed")


def test_a_run_after_in_the_past_is_due_at_once(flow):
    run = flow.using(run_after=datetime(2001, 1, 1, tzinfo=UTC)).start()
    run_until_idle(run)

    assert run.status == "suspended"
