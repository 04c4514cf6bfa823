"""Reads the database and the logs of a storm, and says what is wrong.

Plain SQL, and none of the package's code: a fault of the package must not hide itself.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

RUN, STEP = "django_workflows_workflowrun", "django_workflows_workflowstep"
MESSAGE, SIGNAL = "django_workflows_workflowmessage", "django_workflows_workflowsignal"
EFFECT = "lab_effect"
ENDED = ("completed", "failed", "canceled")
# How long a due run may lie before somebody should have claimed it.
PATIENCE = 10.0


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _epoch(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    return float(value.timestamp())


def _id(value: Any) -> str | None:
    """UUIDs as text with hyphens, on both databases."""
    if value is None:
        return None
    text = str(value).replace("-", "")
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class Facts:
    """All rows, as plain dictionaries."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.runs = {
            row["id"]: row
            for row in self._rows(
                RUN,
                ids=("id", "parent_id", "rerun_of_id", "claim_token", "claimed_by"),
                times=("created_at", "finished_at", "available_at", "deadline_at"),
                plain=("workflow_name", "workflow_id", "status", "waiting_kind", "waiting_for",
                       "result", "error"),
            )
        }  # fmt: skip
        self.steps = self._rows(
            STEP,
            ids=("run_id",),
            times=("created_at", "finished_at"),
            plain=("id", "seq", "key", "name", "kind", "status", "result", "details"),
        )
        self.messages = self._rows(
            MESSAGE,
            ids=("run_id",),
            times=("created_at",),
            plain=("id", "name", "data", "idempotency_key", "consumed_by_id", "routed", "refused"),
        )
        self.signals = self._rows(SIGNAL, ids=("run_id",), plain=("id", "step_id", "data"))
        self.effects = self._rows(EFFECT, ids=("run",), plain=("name",))
        self.by_step = {step["id"]: step for step in self.steps}

    def _rows(
        self,
        table: str,
        ids: tuple[str, ...] = (),
        times: tuple[str, ...] = (),
        plain: tuple[str, ...] = (),
    ) -> list[dict[str, Any]]:
        columns = (*ids, *times, *plain)
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(columns)} FROM {table}")
            found = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
        for row in found:
            row.update({name: _id(row[name]) for name in ids})
            row.update({name: _epoch(row[name]) for name in times})
        return found

    def is_copied(self, step: dict[str, Any]) -> bool:
        return bool(step["created_at"] < self.runs[step["run_id"]]["created_at"])


def check(
    connection: Any,
    told: list[dict[str, Any]],
    marks: list[dict[str, Any]],
    seen: dict[str, tuple[str, Any, Any]],
    now: float,
) -> list[str]:
    """Violations, empty when all is well.

    Args:
        told: what the senders wrote down.
        marks: what plain steps wrote down.
        seen: run → (status, result, error), as first seen after its end.
        now: the database's time.
    """
    facts = Facts(connection)
    return [
        *(line["text"] for line in told if line["what"] == "fault"),
        *_accepted(facts, told),
        *_consumed(facts),
        *_in_order(facts),
        *_results(facts, told),
        *_stuck(facts, now),
        *_effects(facts, marks),
        *_atomic(facts),
        *_ends(facts, seen),
        *_claims(facts),
        *_signals(facts),
        *_children(facts),
        *_gates(facts, told),
    ]


def check_rows(connection: Any, now: float) -> list[str]:
    """Violations of what the rows alone must show, whatever has been sent."""
    facts = Facts(connection)
    looks = (
        _consumed(facts),
        _stuck(facts, now),
        _claims(facts),
        _signals(facts),
        _children(facts),
    )
    return [violation for found in looks for violation in found]


def _accepted(facts: Facts, told: list[dict[str, Any]]) -> list[str]:
    found = []
    stored = {message["id"]: message for message in facts.messages}
    for line in told:
        if line["what"] != "accepted":
            continue
        message = stored.get(line["id"])
        wanted = (line["run"], line["name"], line["key"])
        if message is None:
            found.append(f"message {line['id']} was accepted and is gone: {line}")
        elif (message["run_id"], message["name"], message["idempotency_key"]) != wanted:
            found.append(f"message {line['id']} isn't the accepted one: {line}, {message}")
    keys = [(m["run_id"], m["idempotency_key"]) for m in facts.messages if m["idempotency_key"]]
    if len(keys) != len(set(keys)):
        found.append("a key is there twice")
    return found


def _consumed(facts: Facts) -> list[str]:
    """Each taken message by one step that says so, each step at most one message."""
    found = []
    by_step = defaultdict(list)
    for message in facts.messages:
        if message["consumed_by_id"] is not None and not message["refused"]:
            by_step[message["consumed_by_id"]].append(message)
    for step in facts.steps:
        if step["kind"] not in ("message", "approval") or facts.is_copied(step):
            continue
        taken = by_step.pop(step["id"], [])
        says = (json.loads(step["details"] or "{}").get("message") or {}).get("id")
        if [message["id"] for message in taken] != ([] if says is None else [says]):
            found.append(f"step {step['id']} says message {says}, the inbox {taken}")
        elif taken and taken[0]["data"] != step["result"]:
            found.append(f"step {step['id']} holds other data than message {says}")
        elif taken and taken[0]["run_id"] != step["run_id"]:
            found.append(f"step {step['id']} took message {says} of another run")
    found += [f"step {step} took messages, and isn't a wait" for step in by_step]
    return found


def _in_order(facts: Facts) -> list[str]:
    """Of one sender's messages of one name to one run, none overtakes another."""
    streams = defaultdict(list)
    for message in facts.messages:
        data = json.loads(message["data"])
        if isinstance(data, dict) and "sender" in data:
            taken_by = facts.by_step.get(message["consumed_by_id"])
            place = float("inf") if taken_by is None else taken_by["seq"]
            streams[message["run_id"], message["name"], data["sender"]].append((data["n"], place))
    return [
        f"out of order: {stream}: {sorted(sent)}"
        for stream, sent in streams.items()
        if [place for _n, place in sorted(sent)] != sorted(place for _n, place in sent)
    ]


def _results(facts: Facts, told: list[dict[str, Any]]) -> list[str]:
    found = []
    for line in told:
        if line["what"] != "started":
            continue
        run = facts.runs.get(line["run"])
        if run is None:
            found.append(f"run {line['run']} was started and is gone")
        elif run["status"] == "completed" and line["kind"] in ("talk", "bulk"):
            wanted = [[name, n] for n, name in enumerate(line["names"])]
            if json.loads(run["result"]) != wanted:
                found.append(f"run {line['run']} got {run['result']}, not {wanted}")
    canceled = {line["run"] for line in told if line["what"] == "canceled"}
    for run in facts.runs.values():
        if run["status"] == "failed":
            found.append(f"run {run['id']} ({run['workflow_name']}) failed: {run['error']}")
        elif run["status"] == "canceled" and run["id"] not in canceled:
            found.append(f"run {run['id']} ({run['workflow_name']}) was canceled by nobody")
    # A run that took all that it waits for has no unread message of a name it asks for.
    for message in facts.messages:
        run = facts.runs[message["run_id"]]
        is_talk = (
            run["workflow_name"] in ("storm.talk", "storm.bulk") and run["status"] == "completed"
        )
        if is_talk and message["consumed_by_id"] is None:
            found.append(f"message {message['id']} of completed run {run['id']} was never taken")
    return found


def _stuck(facts: Facts, now: float) -> list[str]:
    found = []
    inbox = defaultdict(set)
    for message in facts.messages:
        if message["consumed_by_id"] is None:
            inbox[message["run_id"]].add(message["name"])
    for run in facts.runs.values():
        if run["status"] in ENDED:
            continue
        names = set(json.loads(run["waiting_for"])) if run["waiting_for"] else set()
        if run["waiting_kind"] in ("message", "approval") and names & inbox[run["id"]]:
            found.append(f"run {run['id']} is parked on {names}, with such a message unread")
        if run["available_at"] is not None and run["available_at"] < now - PATIENCE:
            found.append(f"run {run['id']} ({run['status']}) is past its wake time")
        if run["status"] == "pending" and run["available_at"] is None:
            found.append(f"run {run['id']} is pending and due never")
        if run["waiting_kind"] == "child_result":
            found += [
                f"run {run['id']} waits for child {name}, which has ended"
                for name in names
                if name not in facts.runs or facts.runs[name]["status"] in ENDED
            ]
    return found


def _effects(facts: Facts, marks: list[dict[str, Any]]) -> list[str]:
    found = []
    steps = {
        (step["run_id"], step["key"]): step
        for step in facts.steps
        if step["kind"] == "step" and not step["key"].startswith("atomic")
    }
    copied = {key for key, step in steps.items() if facts.is_copied(step)}
    seen = set()
    for mark in marks:
        key = (mark["run"], mark["key"])
        seen.add(key)
        step = steps.get(key)
        if key in copied:
            found.append(f"a copied step was called again: {mark}")
        elif step is not None and step["finished_at"] and mark["at"] > step["finished_at"]:
            found.append(
                f"called {mark['at'] - step['finished_at']:.3f} s after its record: {mark}"
            )
        elif step is None and facts.runs[mark["run"]]["status"] == "completed":
            found.append(f"called and never recorded: {mark}")
    for key, step in steps.items():
        if step["status"] == "completed" and key not in seen and key not in copied:
            found.append(f"recorded and never called: {key}")
    return found


def _atomic(facts: Facts) -> list[str]:
    counts: dict[tuple[Any, Any], int] = defaultdict(int)
    for effect in facts.effects:
        counts[effect["run"], effect["name"]] += 1
    wanted = {
        (step["run_id"], step["key"]): 1
        for step in facts.steps
        if step["key"].startswith("atomic")
        and step["status"] == "completed"
        and not facts.is_copied(step)
    }
    return [
        f"atomic step {key}: {counts.get(key, 0)} effects, {wanted.get(key, 0)} records"
        for key in {*counts, *wanted}
        if counts.get(key, 0) != wanted.get(key, 0)
    ]


def _ends(facts: Facts, seen: dict[str, tuple[str, Any, Any]]) -> list[str]:
    found = []
    for run_id, before in seen.items():
        run = facts.runs.get(run_id)
        after = run and (run["status"], run["result"], run["error"])
        if after != before:
            found.append(f"run {run_id} had ended as {before} and is now {after}")
    return found


def _claims(facts: Facts) -> list[str]:
    found = []
    for run in facts.runs.values():
        if run["status"] == "running":
            found.append(f"run {run['id']} is still claimed by {run['claimed_by']}")
        elif run["claimed_by"] is not None:
            found.append(f"run {run['id']} is {run['status']} and claimed")
        elif run["status"] not in ENDED and run["claim_token"] is not None:
            found.append(f"run {run['id']} is {run['status']} and has a token")
        if run["status"] in ENDED and (run["available_at"] is not None or run["waiting_for"]):
            found.append(f"run {run['id']} has ended and is due or waits")
    return found


def _signals(facts: Facts) -> list[str]:
    found = []
    given = {signal["step_id"]: signal for signal in facts.signals}
    for step in facts.steps:
        if step["kind"] != "signal" or facts.is_copied(step):
            continue
        signal = given.get(step["id"])
        run = facts.runs[step["run_id"]]
        if step["status"] == "completed" and signal is None:
            found.append(f"step {step['id']} went on without its signal")
        elif step["status"] == "completed" and signal["data"] != step["result"]:
            found.append(f"step {step['id']} holds other data than its signal")
        elif step["status"] == "waiting" and signal is not None and run["status"] not in ENDED:
            found.append(f"step {step['id']} waits, and was given its signal")
    return found


def _children(facts: Facts) -> list[str]:
    count: dict[str, int] = defaultdict(int)
    for run in facts.runs.values():
        if run["parent_id"] is not None:
            count[run["parent_id"]] += 1
    started: dict[str, int] = defaultdict(int)
    for step in facts.steps:
        started[step["run_id"]] += step["kind"] == "child"
    return [
        f"run {run_id} started {started.get(run_id, 0)} children and has {count.get(run_id, 0)}"
        for run_id in {*count, *started}
        if count.get(run_id, 0) != started.get(run_id, 0)
    ]


def _gates(facts: Facts, told: list[dict[str, Any]]) -> list[str]:
    found = []
    for line in told:
        if line["what"] == "approved":
            run = facts.runs[line["run"]]
            if run["status"] == "completed" and json.loads(run["result"]) != line["data"]:
                found.append(f"gate of run {line['run']}: {run['result']}, not {line['data']}")
    return found
