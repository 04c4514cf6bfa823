"""`list_messages`: pages of a run's inbox, oldest first, and who consumed what."""

from uuid import uuid4

import pytest

from django_workflows import RunNotFound, list_messages, send_message
from django_workflows.testing import run_until_idle
from tests.lab import workflows as lab

pytestmark = pytest.mark.django_db


@pytest.fixture
def run():
    """Parked on its fourth wait: three of seven messages are consumed."""
    run = lab.wait_for_all.start(names=["a", "b", "a", "z"])
    for n, name in enumerate("abababa"):
        send_message(run, name, n)
    run_until_idle(run)
    return run


def data(page):
    return [message.data for message in page.items]


def test_all_messages_come_oldest_first_with_their_steps(run):
    page = list_messages(run)

    assert data(page) == [0, 1, 2, 3, 4, 5, 6]
    consumers = [message.consumed_by and message.consumed_by.seq for message in page.items]
    assert consumers == [0, 1, 2, None, None, None, None]
    assert [message.consumed_at is not None for message in page.items] == [True] * 3 + [False] * 4
    assert page.next_cursor is None


def test_a_listing_is_filtered_by_state_and_name(run):
    assert data(list_messages(run, state="consumed")) == [0, 1, 2]
    assert data(list_messages(run, state="pending")) == [3, 4, 5, 6]
    assert data(list_messages(run, name="a")) == [0, 2, 4, 6]
    assert data(list_messages(run, state="pending", name="a")) == [4, 6]
    assert data(list_messages(run, name="none")) == []


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
def test_cursors_lead_through_all_pages_and_no_further(run, limit):
    seen, cursor = [], None
    while True:
        page = list_messages(run, limit=limit, cursor=cursor)
        assert 1 <= len(page.items) <= limit
        seen += data(page)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [0, 1, 2, 3, 4, 5, 6]


def test_a_message_sent_between_two_pages_is_on_the_last_one(run):
    first = list_messages(run, limit=4)
    send_message(run, "a", "new")
    assert data(list_messages(run, cursor=first.next_cursor)) == [4, 5, 6, "new"]


def test_a_page_costs_two_queries_whatever_its_length(run, django_assert_num_queries):
    for limit in (2, 7):
        with django_assert_num_queries(2):
            page = list_messages(run, limit=limit)
            assert [message.consumed_by is None for message in page.items][:2] == [False, False]


def test_a_listing_holds_no_message_of_another_run(run):
    other = lab.wait_once.start()
    send_message(other, "a", "theirs")
    assert "theirs" not in data(list_messages(run))
    assert data(list_messages(str(other.pk))) == ["theirs"]


def test_an_unknown_run_has_no_listing():
    with pytest.raises(RunNotFound):
        list_messages(uuid4())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"state": "new"}, "state must be one of pending, consumed; got 'new'."),
        ({"limit": 0}, "limit must be an int from 1 to 1000, got 0."),
        ({"limit": 1001}, "limit must be an int from 1 to 1000, got 1001."),
        ({"limit": True}, "limit must be an int from 1 to 1000, got True."),
        ({"cursor": "x"}, "cursor must be a next_cursor that a page gave, got 'x'."),
        ({"cursor": "-1"}, "cursor must be a next_cursor that a page gave, got '-1'."),
        ({"cursor": ""}, "cursor must be a next_cursor that a page gave, got ''."),
        (
            {"cursor": "9" * 5000},
            f"cursor must be a next_cursor that a page gave, got {'9' * 5000!r}.",
        ),
    ],
)
def test_a_bad_argument_is_refused(run, arguments, told):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole text is compared
        list_messages(run, **arguments)
    assert str(raised.value) == told


def test_a_cursor_beyond_every_message_gives_an_empty_page(run):
    for cursor in (str(10**9), str(2**63 - 1), "9" * 19):
        page = list_messages(run, cursor=cursor)
        assert (page.items, page.next_cursor) == ([], None)
