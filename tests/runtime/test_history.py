"""The record of one run as plain values: keys, positions, patches."""

import pytest

from django_workflows import NonDeterminismError
from django_workflows.db.records import Entry
from django_workflows.runtime.history import History


def entry(seq, name, kind="step", status="completed", key=None):
    return Entry(seq, key or (name if kind == "step" else f"{kind}:{name}"), name, kind, status)


def record(history, kind, name):
    new = history.new(kind, name, 0.0)
    new.status = "completed"
    history.append(new)
    return new.key


def test_an_empty_record_answers_nothing_and_is_not_replaying():
    history = History([])

    assert history.next("step", "a") is None
    assert not history.is_replaying
    assert history.position == 0
    history.check_finished()


def test_entries_are_answered_in_order_and_then_the_record_has_ended():
    entries = [entry(0, "a"), entry(1, "sleep", "sleep"), entry(2, "a", key="a:1")]
    history = History(entries)
    answered = []
    for kind, name in (("step", "a"), ("sleep", "sleep"), ("step", "a")):
        assert history.is_replaying
        answered.append(history.next(kind, name))

    assert answered == entries
    assert not history.is_replaying
    assert history.next("step", "a") is None
    history.check_finished()


@pytest.mark.parametrize(
    ("kind", "name", "asked"), [("step", "b", "step 'b'"), ("sleep", "a", "sleep 'a'")]
)
def test_another_kind_or_name_is_refused_and_the_position_stays(kind, name, asked):
    history = History([entry(0, "first"), entry(1, "a")])
    history.next("step", "first")
    for _ in range(2):
        with pytest.raises(NonDeterminismError) as caught:
            history.next(kind, name)
        assert (caught.value.position, caught.value.recorded) == (1, "step 'a'")
        assert caught.value.asked == asked

    assert history.next("step", "a").seq == 1


def test_a_body_that_ends_before_its_record_is_refused():
    history = History([entry(0, "a"), entry(1, "b")])
    history.next("step", "a")

    with pytest.raises(NonDeterminismError) as caught:
        history.check_finished()

    assert (caught.value.position, caught.value.recorded) == (1, "step 'b'")
    assert caught.value.asked is None


def test_new_entries_go_on_where_the_record_ends():
    history = History([entry(0, "a"), entry(1, "v2", "patch"), entry(2, "b")])
    history.next("step", "a")
    history.next("step", "b")

    assert [history.new("step", name, 1.5).seq for name in "cd"] == [3, 4]
    assert history.new("step", "e", 1.5).created_at == 1.5


def test_a_repeated_name_gets_the_next_free_number():
    history = History([])

    assert [record(history, "step", "a") for _ in range(3)] == ["a", "a:1", "a:2"]


def test_a_name_that_was_taken_as_a_key_gets_a_key_of_its_own():
    history = History([])
    names = ["a", "a", "a:1", "a:1", "a"]

    assert [record(history, "step", name) for name in names] == [
        "a",
        "a:1",
        "a:1:1",
        "a:1:2",
        "a:2",
    ]


def test_kinds_other_than_steps_carry_their_kind_and_collide_with_nothing():
    history = History([])
    calls = [
        ("step", "message:go"),
        ("message", "go"),
        ("receive", "go"),
        ("message", "go"),
        ("step", "go"),
    ]

    assert [record(history, *call) for call in calls] == [
        "message:go",
        "message:go:1",
        "receive:go",
        "message:go:2",
        "go",
    ]


def test_keys_go_on_after_those_of_the_record_as_they_would_have_without_a_replay():
    history = History([entry(0, "a"), entry(1, "a", key="a:1"), entry(2, "a:2")])
    for name in ("a", "a", "a:2"):
        history.next("step", name)

    assert record(history, "step", "a") == "a:3"


def test_a_retried_entry_is_not_taken_in_twice():
    waiting = entry(0, "a", status="waiting")
    history = History([waiting])
    found = history.next("step", "a")
    found.status = "completed"
    history.append(found)

    assert history.entries == [waiting]
    assert history.next("step", "b") is None


def test_a_record_beyond_a_patch_says_false_and_one_that_has_ended_leaves_it_open():
    history = History([entry(0, "a")])

    assert history.decide("v2") is False
    history.next("step", "a")
    assert history.decide("v2") is False
    assert history.decide("v3") is None


def test_a_recorded_patch_says_true_wherever_it_is_asked():
    history = History([entry(0, "v2", "patch"), entry(1, "a")])

    assert history.decide("v2") is True
    history.next("step", "a")
    assert history.decide("v2") is True
    history.check_finished()


def test_a_patch_recorded_in_this_pass_says_true_from_then_on():
    history = History([])
    assert history.decide("v2") is None
    record(history, "patch", "v2")

    assert history.decide("v2") is True
    assert history.position == 0
    assert [each.kind for each in history.entries] == ["patch"]
