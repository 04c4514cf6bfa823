"""A sender of the storm: starts, sends with keys and repeats, cancels, reruns, decides, signals.

It writes down what was accepted, for the checker; and what went wrong in a way that no caller
should ever see. While the database is away it tries again with the same key, as a webhook would.
"""

import random
import time

from django.contrib.auth.models import User
from django.db import connection

from django_workflows import (
    GateDecided,
    RunFinished,
    WorkflowAlreadyStarted,
    WorkflowError,
    approve,
    cancel,
    get_run,
    rerun,
    send_message,
    send_signal,
    signal_with_start,
)
from django_workflows.models import WorkflowStep
from tests.lab import storm_flows as flows
from tests.lab.callers import persistently
from tests.lab.storm_flows import write_line

MAX_OPEN = 40
TICKETS = 6


class Stream:
    """A run of `storm.talk` or `storm.bulk` and how far its messages are sent."""

    def __init__(self, run, kind, names, n=0):
        self.run, self.kind, self.names, self.n = run, kind, names, n

    @property
    def is_sent(self):
        return self.n == len(self.names)


class Sender:
    def __init__(self, number, seed, path):
        self._number = number
        self._chance = random.Random(f"{seed}:{number}")
        self._path = path
        self._count = 0
        self._streams = []
        self._gates = []
        self._by = persistently(User.objects.get, username="storm")
        self._acts = {
            self._start: 25,
            self._send: 60,
            self._cancel: 3,
            self._ring: 3,
            self._approve: 6,
            self._note: 10,
        }

    def tell(self, what, **more):
        write_line(self._path, {"what": what, "sender": self._number, **more})

    def _call(self, function, *arguments, **options):
        return persistently(function, *arguments, on_outage=self._on_outage, **options)

    def _on_outage(self, error):
        text = f"{type(error).__name__}: {error}"
        if connection.vendor == "sqlite" or "deadlock" in text:
            self.tell("fault", text=f"a caller saw {text}")
        self.tell("outage")

    def run(self, seconds):
        give_up = time.monotonic() + seconds
        acts, weights = list(self._acts), list(self._acts.values())
        while time.monotonic() < give_up:
            self._try(self._chance.choices(acts, weights)[0])
            time.sleep(self._chance.uniform(0, 0.004))
        while self._gates:
            self._try(self._approve)
        while self._streams:
            self._try(self._send)

    def _try(self, act):
        try:
            act()
        except WorkflowError as error:
            self.tell("fault", text=f"{act.__name__}: {type(error).__name__}: {error}")

    def _id(self):
        self._count += 1
        return f"{self._number}-{self._count}"

    def _start(self):
        kinds = {"talk": 10, "bulk": 3, "family": 2, "gate": 2, "bell": 1}
        kind = self._chance.choices(list(kinds), list(kinds.values()))[0]
        is_talk = kind in ("talk", "bulk")
        if is_talk and len(self._streams) > MAX_OPEN:
            return
        flow = getattr(flows, kind).using(workflow_id=f"{kind}-{self._id()}")
        given = {}
        if kind == "talk":
            count = self._chance.choice((1, 2, 5))
            given = {"names": [self._chance.choice("ab") for _ in range(count)]}
        elif kind == "bulk":
            given = {"names": ["a"] * self._chance.choice((4, 12)) + ["b", "a"]}
        elif kind == "family":
            given = {"children": self._chance.randint(1, 3)}
        run = self._call(flow.start, **given)
        self.tell("started", run=str(run.pk), kind=kind, **given)
        if is_talk:
            self._streams.append(Stream(run, kind, given["names"]))
        elif kind == "gate":
            self._gates.append(run)

    def _send(self):
        if not self._streams:
            return
        stream = self._chance.choice(self._streams)
        if stream.is_sent:
            self._streams.remove(stream)
            return
        name, key = stream.names[stream.n], f"key-{stream.n}"
        data = {"n": stream.n, "sender": self._number}
        message = self._call(send_message, stream.run, name, data, idempotency_key=key)
        self._accepted(stream.run, message, name, key)
        if self._chance.random() < 0.2:
            again = self._call(send_message, stream.run, name, "other", idempotency_key=key)
            if not again.deduplicated or again.pk != message.pk:
                self.tell("fault", text=f"key {key} of run {stream.run.pk} was stored twice")
        stream.n += 1

    def _accepted(self, run, message, name, key):
        told = {"run": str(run.pk), "id": message.pk, "name": name, "key": key}
        self.tell("accepted", **told)

    def _cancel(self):
        if not self._streams:
            return
        stream = self._chance.choice(self._streams)
        self._streams.remove(stream)
        try:
            self._call(cancel, stream.run)
        except RunFinished:
            # It had all of its messages, and was quicker.
            if not stream.is_sent:
                raise
        else:
            self.tell("canceled", run=str(stream.run.pk))
        if self._chance.random() < 0.6:
            self._rerun(stream)

    def _rerun(self, stream):
        try:
            run = self._call(rerun, stream.run)
        except WorkflowAlreadyStarted:
            # Of an earlier try nobody heard the outcome, but it was committed.
            run = self._call(get_run, workflow_id=stream.run.workflow_id)
        self.tell("started", run=str(run.pk), kind=stream.kind, names=stream.names)
        taken = WorkflowStep.objects.filter(run=run, kind="message", created_at__lt=run.created_at)
        self._streams.append(Stream(run, stream.kind, stream.names, self._call(taken.count)))

    def _ring(self):
        self._call(send_signal, "bell", {"n": self._count}, idempotency_key=self._id())
        self.tell("rung")

    def _approve(self):
        if not self._gates:
            return
        run = self._gates.pop(self._chance.randrange(len(self._gates)))
        key = self._id()
        self._call(approve, run, "gate", by=self._by, data=key, idempotency_key=key)
        self.tell("approved", run=str(run.pk), data=key)
        try:
            self._call(approve, run, "gate", by=self._by, data="late", idempotency_key=self._id())
            self.tell("fault", text=f"the gate of run {run.pk} was decided twice")
        except (GateDecided, RunFinished):
            pass

    def _note(self):
        ticket, key = f"ticket-{self._chance.randrange(TICKETS)}", f"note-{self._id()}"
        data = {"n": self._count, "sender": self._number, "close": self._chance.random() < 0.2}
        for _ in range(self._chance.choice((1, 1, 2))):
            told = self._call(
                signal_with_start,
                flows.ticket,
                workflow_id=ticket,
                name="note",
                data=data,
                idempotency_key=key,
            )
            self._accepted(told.run, told.message, "note", key)


def send(number, seed, seconds, path):
    """Be a sender for this long, then send what is still owed."""
    Sender(number, seed, path).run(seconds)
