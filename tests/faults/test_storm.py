"""A short storm, and the checker that judges storms: it has to see what it is there to see."""

import json
import time

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from django_workflows import approve, rerun, send_message, send_signal
from django_workflows.models import WorkflowMessage, WorkflowRun, WorkflowSignal, WorkflowStep
from django_workflows.testing import run_until_idle
from tests.conftest import process_environment
from tests.faults.checker import check, read_lines
from tests.faults.storm import Storm
from tests.lab import storm_flows as flows
from tests.lab.models import Effect

STORM_SECONDS = 40.0


@pytest.mark.timeout(400)
def test_a_storm_loses_nothing_and_does_nothing_twice(transactional_db, tmp_path):
    storm = Storm(tmp_path, process_environment(), seed=20)

    assert storm.run(STORM_SECONDS) == []

    print(json.dumps(dict(storm.figures)))
    assert storm.figures["workers killed"] > 3
    assert storm.figures["runs"] > 50
    assert storm.figures["runs completed"] > 40


class Calm:
    """A few runs that went well, with the logs that the storm would have made."""

    def __init__(self, path):
        by = User.objects.create(username="storm")
        names = ["a", "b", "a"]
        self.talk = flows.talk.using(workflow_id="talk").start(names=names)
        self.told = [self._started(self.talk, names)]
        for n, name in enumerate(names):
            data = {"n": n, "sender": 1}
            message = send_message(self.talk, name, data, idempotency_key=f"key-{n}")
            told = {"run": str(self.talk.pk), "id": message.pk, "name": name, "key": f"key-{n}"}
            self.told.append({"what": "accepted", **told})
        self.family = flows.family.start(children=2)
        self.gate = flows.gate.start()
        self.bell = flows.bell.start()
        self.parked = flows.talk.start(names=["a", "a"])
        for _ in range(50):
            run_until_idle()
            if WorkflowRun.objects.filter(status="completed").count() == 4:
                break
            time.sleep(0.05)
        approve(self.gate, "gate", by=by, data="yes")
        send_signal("bell", {"n": 1})
        run_until_idle()
        self.again = rerun(self.talk)
        run_until_idle()
        self.told.append(self._started(self.again, names))
        self.told.append({"what": "approved", "run": str(self.gate.pk), "data": "yes"})
        self._path = path
        self.seen = {}

    def _started(self, run, names):
        return {"what": "started", "run": str(run.pk), "kind": "talk", "names": names}

    def check(self, now=None):
        marks = read_lines(self._path)
        return check(connection, self.told, marks, self.seen, now or time.time())


@pytest.fixture
def calm(db, tmp_path, monkeypatch):
    monkeypatch.setenv("STORM_LOG", str(tmp_path / "marks"))
    monkeypatch.setattr(flows.random, "random", lambda: 1.0)
    return Calm(tmp_path / "marks")


def test_the_checker_finds_nothing_where_all_went_well(calm):
    assert calm.check() == []
    assert WorkflowRun.objects.filter(status="completed").count() == 6 + 1
    assert WorkflowRun.objects.filter(status="suspended").count() == 1


def step(run, key):
    return WorkflowStep.objects.get(run=run, key=key)


def message_of(run, n):
    return WorkflowMessage.objects.get(run=run, idempotency_key=f"key-{n}")


def update(thing, **columns):
    type(thing).objects.filter(pk=thing.pk).update(**columns)


def add_message(run, name, **columns):
    now = timezone.now()
    WorkflowMessage.objects.create(run=run, name=name, created_at=now, **columns)


PLANTED = {
    "was accepted and is gone": lambda c: message_of(c.talk, 1).delete(),
    "isn't the accepted one": lambda c: update(message_of(c.talk, 1), name="other"),
    "the inbox []": lambda c: update(message_of(c.talk, 0), consumed_by=None),
    "the inbox [{": lambda c: update(
        message_of(c.talk, 0), consumed_by=message_of(c.talk, 2).consumed_by
    ),
    "isn't a wait": lambda c: update(
        message_of(c.talk, 0), consumed_by=step(c.talk, "plain-0")
    ),
    "holds other data than message": lambda c: update(message_of(c.talk, 1), data={"n": 9}),
    "out of order": lambda c: (
        update(message_of(c.talk, 0), data={"n": 7, "sender": 1}),
        update(message_of(c.talk, 2), data={"n": 6, "sender": 1}),
    ),
    "not [['a', 0]": lambda c: update(c.talk, result=[]),
    "was started and is gone": lambda c: c.told.append(
        {"what": "started", "run": str(User().pk), "kind": "talk", "names": []}
    ),
    "failed: ": lambda c: update(c.bell, status="failed"),
    "was canceled by nobody": lambda c: update(c.bell, status="canceled"),
    "was never taken": lambda c: add_message(c.talk, "a", data={}),
    "with such a message unread": lambda c: add_message(c.parked, "a", data={}),
    "is past its wake time": lambda c: update(
        c.parked, available_at=timezone.now() - timezone.timedelta(minutes=1)
    ),
    "due never": lambda c: update(c.parked, status="pending", available_at=None),
    "which has ended": lambda c: update(
        c.parked,
        waiting_kind="child_result",
        waiting_for=json.dumps([str(WorkflowRun.objects.filter(parent=c.family)[0].pk)]),
    ),
    "s after its record": lambda c: flows.mark(c.talk.pk, "plain-0"),
    "a copied step was called again": lambda c: flows.mark(c.again.pk, "plain-0"),
    "called and never recorded": lambda c: flows.mark(c.talk.pk, "plain-9"),
    "recorded and never called": lambda c: update(step(c.talk, "plain-0"), key="plain-8"),
    "2 effects, 1 records": lambda c: Effect.objects.create(run=str(c.talk.pk), name="atomic-0"),
    "0 effects, 1 records": lambda c: Effect.objects.filter(name="atomic-0").delete(),
    "had ended as": lambda c: c.seen.update({str(c.talk.pk): ("failed", None, None)}),
    "is still claimed by": lambda c: update(c.parked, status="running"),
    "is suspended and claimed": lambda c: update(c.parked, claimed_by=c.talk.pk),
    "and has a token": lambda c: update(c.parked, claim_token=c.talk.pk),
    "has ended and is due": lambda c: update(c.talk, available_at=timezone.now()),
    "went on without its signal": lambda c: WorkflowSignal.objects.all().delete(),
    "other data than its signal": lambda c: WorkflowSignal.objects.update(data={"n": 2}),
    "waits, and was given its signal": lambda c: (
        update(c.bell, status="suspended"),
        WorkflowStep.objects.filter(run=c.bell, kind="signal").update(status="waiting"),
    ),
    "started 2 children and has 1": lambda c: update(
        WorkflowRun.objects.filter(parent=c.family)[0], parent=None
    ),
    "not yes": lambda c: update(c.gate, result="no"),
    "a caller saw": lambda c: c.told.append({"what": "fault", "text": "a caller saw it"}),
}  # fmt: skip


@pytest.mark.parametrize("text", PLANTED)
def test_the_checker_sees_a_planted_violation(calm, text):
    PLANTED[text](calm)
    found = calm.check()
    assert any(text in violation for violation in found), found
