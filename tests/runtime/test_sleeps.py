"""`ctx.sleep` and `ctx.sleep_until`."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from django_workflows import workflow
from django_workflows.db import clock
from django_workflows.models import WorkflowRun
from django_workflows.testing import advance, reset_clock, run_until_idle

pytestmark = pytest.mark.django_db

FOREVER = "ctx.sleep() is longer than the database can store: "


def sleeping(duration):
    @workflow(name="t.sleeping")
    def nap(ctx):
        ctx.sleep(duration)
        ctx.step("after", lambda: None)
        return "awake"

    run = nap.start()
    run_until_idle(run)
    return run


def until(when):
    @workflow(name="t.until")
    def nap(ctx):
        ctx.sleep_until(when)
        return "awake"

    run = nap.start()
    run_until_idle(run)
    return run


@pytest.mark.parametrize("duration", [timedelta(minutes=1), 60, 60.0])
def test_a_sleep_parks_the_run_and_holds_no_worker(duration):
    run = sleeping(duration)

    step = run.steps.get()
    assert (run.status, run.claim_token, run.claimed_by) == ("suspended", None, None)
    assert (step.kind, step.name, step.key, step.status) == (
        "sleep",
        "sleep",
        "sleep:sleep",
        "waiting",
    )
    assert step.wake_at == run.available_at
    # The two were taken one after the other.
    assert abs(step.wake_at - step.created_at - timedelta(minutes=1)) < timedelta(seconds=1)
    advance(timedelta(seconds=58))
    assert run_until_idle(run) == 0
    advance(timedelta(seconds=3))
    run_until_idle(run)

    assert run.result == "awake"
    done = run.steps.get(kind="sleep")
    assert done.status == "completed"
    assert done.finished_at >= done.wake_at


def test_a_sleep_is_done_because_it_was_recorded_done_whatever_the_clock_says():
    @workflow(name="t.two")
    def two(ctx):
        ctx.sleep(3600)
        ctx.wait_for_message("go")
        return "done"

    run = two.start()
    run_until_idle(run)
    advance(timedelta(hours=2))
    run_until_idle(run)
    assert run.waiting_names == ["go"]
    # Back to before the sleep's end: a comparison of times would make it sleep again.
    reset_clock()
    WorkflowRun.objects.filter(pk=run.pk).update(available_at=run.created_at)
    assert run_until_idle(run) == 1

    assert run.waiting_names == ["go"]
    assert [(each.kind, each.status) for each in run.steps.all()] == [
        ("sleep", "completed"),
        ("message", "waiting"),
    ]


# https://github.com/vercel/workflow/issues/27
@pytest.mark.parametrize("duration", [0, 0.0, timedelta(0), -0.0])
def test_a_sleep_of_zero_goes_on_at_once_and_is_recorded(duration):
    run = sleeping(duration)

    assert run.result == "awake"
    assert run.claim_count == 1
    assert [(each.kind, each.status) for each in run.steps.all()] == [
        ("sleep", "completed"),
        ("step", "completed"),
    ]


# https://github.com/vercel/workflow/issues/27
# https://github.com/procrastinate-org/procrastinate/issues/1462
@pytest.mark.parametrize(
    ("duration", "kind", "text"),
    [
        (-1, "ValueError", "ctx.sleep() must be zero or more, got -1."),
        (
            timedelta(seconds=-1),
            "ValueError",
            "ctx.sleep() must be zero or more, got datetime.timedelta(days=-1, seconds=86399).",
        ),
        (float("nan"), "ValueError", "ctx.sleep() must be zero or more, got nan."),
        (float("inf"), "ValueError", f"{FOREVER}inf."),
        (1e300, "ValueError", f"{FOREVER}1e+300."),
        (timedelta.max, "ValueError", f"{FOREVER}{timedelta.max!r}."),
        (10**400, "ValueError", f"{FOREVER}1{'0' * 400}."),
        (
            "5",
            "TypeError",
            "ctx.sleep() must be a timedelta or a number of seconds, not str.",
        ),
        (
            None,
            "TypeError",
            "ctx.sleep() must be a timedelta or a number of seconds, not NoneType.",
        ),
        (
            True,
            "TypeError",
            "ctx.sleep() must be a timedelta or a number of seconds, not bool.",
        ),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_odd_duration_fails_the_run_once_with_a_clear_text(duration, kind, text):
    run = sleeping(duration)

    assert (run.status, run.error["type"], run.error["message"]) == ("failed", kind, text)
    assert (run.attempts, run.claim_count, run.steps.count()) == (1, 1, 0)


def test_the_longest_sleep_that_can_be_stored_is_stored():
    run = sleeping(timedelta(days=365 * 5000))

    assert run.status == "suspended"
    assert WorkflowRun.objects.get(pk=run.pk).available_at.year > 7000


def test_sleep_until_a_time_parks_until_then():
    when = timezone.now() + timedelta(days=1)
    run = until(when)

    assert (run.status, run.available_at) == ("suspended", when)
    advance(timedelta(hours=23, minutes=59))
    run_until_idle(run)
    assert run.status == "suspended"
    advance(timedelta(minutes=2))
    run_until_idle(run)
    assert run.result == "awake"


def test_sleep_until_a_time_of_another_zone_is_the_same_instant():
    when = (timezone.now() + timedelta(days=1)).astimezone(ZoneInfo("Asia/Tokyo"))
    run = until(when)

    assert run.available_at == when


def test_sleep_until_a_time_that_has_passed_goes_on_at_once_and_is_recorded():
    run = until(datetime(2001, 1, 1, tzinfo=UTC))

    assert run.result == "awake"
    assert [each.status for each in run.steps.all()] == ["completed"]


@pytest.mark.parametrize(
    ("when", "kind", "text"),
    [
        (5, "TypeError", "ctx.sleep_until() needs a datetime, not int."),
        (
            datetime(2040, 1, 1),
            "ValueError",
            "ctx.sleep_until() needs an aware datetime while USE_TZ is on, got "
            "datetime.datetime(2040, 1, 1, 0, 0). Take it from ctx.now() or "
            "django.utils.timezone.make_aware().",
        ),
    ],
)
def test_sleep_until_something_else_fails_the_run_with_what_to_do(when, kind, text):
    run = until(when)

    assert (run.status, run.error["type"], run.error["message"]) == ("failed", kind, text)


def test_sleep_until_the_end_of_time_is_refused():
    run = until(datetime.max.replace(tzinfo=UTC))

    assert run.error["type"] == "ValueError"
    assert run.error["message"].startswith(
        "ctx.sleep_until() is longer than the database can store: "
    )


# https://github.com/rq/rq/pull/1258
@pytest.mark.parametrize("use_tz", [True, False])
def test_a_sleep_of_a_day_over_the_night_when_the_clocks_go_back_takes_exactly_a_day(
    settings, use_tz
):
    zone = ZoneInfo("America/New_York")
    settings.TIME_ZONE = zone.key
    settings.USE_TZ = use_tz
    begun = datetime(2032, 11, 6, 12, 0, tzinfo=zone)
    # A year whose autumn is still to come for every machine that runs this.
    clock.set_offset(begun.timestamp() - datetime.now(UTC).timestamp())

    run = sleeping(86400)

    stored = run.steps.get().wake_at
    woken = stored if use_tz else timezone.make_aware(stored, zone)
    assert 86400 <= woken.timestamp() - begun.timestamp() < 86400 + 30
    assert woken.astimezone(zone).hour == 11
    advance(timedelta(seconds=86370))
    run_until_idle(run)
    assert run.status == "suspended"
    advance(timedelta(seconds=31))
    run_until_idle(run)
    assert run.result == "awake"


# https://github.com/rq/rq/pull/1258
@pytest.mark.parametrize("use_tz", [True, False])
def test_a_sleep_that_ends_within_the_repeated_hour_ends_once_and_on_time(settings, use_tz):
    zone = ZoneInfo("America/New_York")
    settings.TIME_ZONE = zone.key
    settings.USE_TZ = use_tz
    # 01:30 standard time, after 01:30 daylight time has passed.
    due = datetime(2032, 11, 7, 1, 30, tzinfo=zone, fold=1)
    clock.set_offset(due.timestamp() - 5400 - datetime.now(UTC).timestamp())

    run = sleeping(5400)
    advance(timedelta(seconds=5400 - 30))
    run_until_idle(run)
    assert run.status == "suspended"
    advance(timedelta(seconds=31))
    run_until_idle(run)

    assert run.result == "awake"
