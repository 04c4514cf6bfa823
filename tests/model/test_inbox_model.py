"""The inbox against a plain model: any interleaving of sends, waits, timeouts, crashes, cancels and
reruns gives what a few lists give."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.test import override_settings
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from django_workflows import RunFinished, cancel, list_messages, rerun, send_message, workflow
from django_workflows.runtime import inline
from django_workflows.store import leases
from django_workflows.telemetry import subscribed
from django_workflows.testing import advance, reset_clock, run_until_idle
from tests.runtime.crashes import WorkerDied

pytestmark = pytest.mark.django_db

# So far apart that the time which a test itself takes decides nothing.
TIMEOUT, STEP = 50, 30


class Model:
    """What a run does, by a position in its script, an inbox and the results so far."""

    def __init__(self, script, results=()):
        self.script = script
        self.results = list(results)
        self.inbox = []
        self.keys = {}
        self.status = "pending"
        self.is_parked = False
        self.deadline = None

    @property
    def is_over(self):
        return self.status in ("completed", "canceled")

    def send(self, name, data, key):
        """The data that stands for this key; None where the send is refused."""
        if key is not None and key in self.keys:
            return self.keys[key]
        if self.is_over:
            return None
        if key is not None:
            self.keys[key] = data
        self.inbox.append((name, data))
        return data

    def take(self, names):
        for message in self.inbox:
            if message[0] in names:
                self.inbox.remove(message)
                return message[1]
        return None

    def run(self, now, dies_at=None):
        """Go on until the run is parked or over, or its worker dies."""
        while not self.is_over and len(self.results) < len(self.script):
            kind, names = self.script[len(self.results)]
            data = self.take(names)
            if data is None and kind != "receive":
                deadline = now + TIMEOUT if kind == "timed" else float("inf")
                if self.is_parked:
                    deadline = self.deadline
                if deadline > now:
                    if dies_at == "run.parking" and not self.is_parked:
                        return
                    self.is_parked, self.deadline = True, deadline
                    self.status = "suspended"
                    return
            self.results.append(data)
            self.is_parked = False
            if data is not None and dies_at == "message.consumed":
                self.status = "pending"
                return
        if not self.is_over:
            self.status = "completed"


class World:
    """The same on the package."""

    def __init__(self, script):
        self.model = Model(script)
        self.run = self._workflow().start(script=script)
        self.now = 0
        self.sent = 0

    def _workflow(self):
        @workflow(name="t.model")
        def body(ctx, script):
            results = []
            for kind, names in script:
                if kind == "receive":
                    message = ctx.receive_message(names)
                else:
                    timeout = TIMEOUT if kind == "timed" else None
                    message = ctx.wait_for_message(names, timeout=timeout)
                results.append(None if message is None else message.data)
            return results

        return body

    def send(self, name, key=None):
        self.sent += 1
        stands = self.model.send(name, self.sent, key)
        if stands is None:
            with pytest.raises(RunFinished, match=self.model.status):
                send_message(self.run, name, self.sent, idempotency_key=key)
            return
        message = send_message(self.run, name, self.sent, idempotency_key=key)
        assert (message.data, message.deduplicated) == (stands, stands != self.sent)

    def execute(self):
        self.model.run(self.now)
        run_until_idle(self.run)

    def advance(self):
        self.now += STEP
        advance(timedelta(seconds=STEP))

    def crash(self, dies_at):
        """A worker claims the run and dies on it, at once or at an event."""
        for source in leases.SOURCES:
            while leases.route(source):
                pass
        claim = leases.claim_one(self.run.pk, uuid4())
        if claim is None:
            # Not due, so the model finds nothing to do either.
            before = (self.model.status, list(self.model.results))
            self.model.run(self.now)
            assert (self.model.status, self.model.results) == before
            return
        if dies_at == "claim":
            self._bury()
            return
        self.model.run(self.now, dies_at)
        try:
            with subscribed(dies_at, _die):
                inline.execute(claim)
        except WorkerDied:
            self._bury()

    def _bury(self):
        if not self.model.is_over:
            self.model.status = "pending"
        assert leases.take_over_dead() == 1

    def cancel(self):
        if self.model.status == "completed":
            with pytest.raises(RunFinished, match="completed"):
                cancel(self.run)
        else:
            self.model.status = "canceled"
            cancel(self.run)

    def rerun(self, from_start):
        if not self.model.is_over:
            return
        self.model = Model(self.model.script, () if from_start else self.model.results)
        self.run = rerun(self.run, from_start=from_start)

    def check(self):
        """Everything that can be seen of the run is what the model says."""
        run, model = self.run, self.model
        run.refresh_from_db()
        pending = [(each.name, each.data) for each in list_messages(run, state="pending").items]
        assert pending == model.inbox
        steps = [step for step in run.steps.all() if step.status == "completed"]
        assert [step.result for step in steps] == model.results
        consumed = list_messages(run, state="consumed").items
        assert len({each.consumed_by_id for each in consumed}) == len(consumed)
        assert all(each.consumed_by.result == each.data for each in consumed)
        assert run.status == model.status
        assert run.result == (model.results if model.status == "completed" else None)


def _die(event, fields):
    raise WorkerDied


names = st.sampled_from("ab")
instructions = st.tuples(
    st.sampled_from(["wait", "timed", "receive"]), st.sampled_from([("a",), ("b",), ("a", "b")])
)
actions = st.one_of(
    st.tuples(st.just("send"), names),
    st.tuples(st.just("send"), names, st.sampled_from(["k1", "k2"])),
    st.just(("execute",)),
    st.just(("advance",)),
    st.tuples(st.just("crash"), st.sampled_from(["claim", "message.consumed", "run.parking"])),
    st.just(("cancel",)),
    st.tuples(st.just("rerun"), st.booleans()),
)


@settings(
    max_examples=40,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    script=st.lists(instructions, min_size=1, max_size=6),
    story=st.lists(actions, min_size=5, max_size=25),
)
@example(
    script=[("timed", ("a",)), ("wait", ("a",)), ("wait", ("b",))],
    story=[
        ("execute",),
        ("advance",),
        ("advance",),
        ("send", "a", "k1"),
        ("crash", "message.consumed"),
        ("send", "a", "k1"),
        ("execute",),
        ("cancel",),
        ("rerun", False),
        ("send", "a", "k1"),
        ("send", "b"),
        ("execute",),
    ],
)
def test_any_interleaving_gives_what_the_model_says(script, story):
    reset_clock()
    # A run that dies five times without a record is poison, which is another test's.
    with _any_number_of_crashes():
        world = World(script)
        for action, *arguments in story:
            getattr(world, action)(*arguments)
            world.check()
        world.execute()
        world.check()


def _any_number_of_crashes():
    return override_settings(DJANGO_WORKFLOWS={"MAX_CRASHES": 1000})
