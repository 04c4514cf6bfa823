"""Pure: the record of one run, its keys, and the determinism check. Plain values in and out.

A body's calls are matched with the record by position: kind and name must be the same. Patch
markers stand beside the sequence, so that a call of `ctx.patched` may be removed later.
"""

from __future__ import annotations

from django_workflows.db.records import Entry
from django_workflows.exceptions import NonDeterminismError

PATCH = "patch"


def label(kind: str, name: str) -> str:
    """How an entry is named in messages."""
    return f"{kind} {name!r}"


class History:
    """The record of one run, read from the top by one pass."""

    def __init__(self, entries: list[Entry]) -> None:
        self._sequence = [entry for entry in entries if entry.kind != PATCH]
        self._patches = {entry.name: entry for entry in entries if entry.kind == PATCH}
        self._keys = {entry.key for entry in entries}
        self._next_seq = max((entry.seq for entry in entries), default=-1) + 1
        self._suffixes: dict[str, int] = {}
        self._decisions: dict[str, bool] = {}
        self.position = 0

    @property
    def entries(self) -> list[Entry]:
        """Everything recorded, for another pass over the same claim."""
        return [*self._sequence, *self._patches.values()]

    @property
    def last(self) -> Entry:
        """The entry that the newest call was answered with."""
        return self._sequence[self.position - 1]

    @property
    def has_children(self) -> bool:
        """True when the run has started child runs."""
        return any(entry.kind == "child" for entry in self._sequence)

    @property
    def is_replaying(self) -> bool:
        """True while the next call will be answered from the record."""
        return self.position < len(self._sequence)

    def next(self, kind: str, name: str) -> Entry | None:
        """The recorded entry for this call, or None where the record has ended.

        Raises:
            NonDeterminismError: the record holds another kind or name here.
        """
        if self.position >= len(self._sequence):
            return None
        entry = self._sequence[self.position]
        if (entry.kind, entry.name) != (kind, name):
            raise NonDeterminismError(
                self.position, label(entry.kind, entry.name), label(kind, name)
            )
        self.position += 1
        return entry

    def check_finished(self) -> None:
        """Raise where the body has ended before its record.

        Raises:
            NonDeterminismError: entries were not reached.
        """
        if self.is_replaying:
            entry = self._sequence[self.position]
            raise NonDeterminismError(self.position, label(entry.kind, entry.name), None)

    def new(self, kind: str, name: str, at: float) -> Entry:
        """An entry for a call past the record's end, with position and key of its own."""
        entry = Entry(
            self._next_seq, self._new_key(kind, name), name, kind, "running", created_at=at
        )
        self._next_seq += 1
        return entry

    def append(self, entry: Entry) -> None:
        """Take in an entry that has been recorded."""
        if entry.kind == PATCH:
            self._patches[entry.name] = entry
        elif not self._sequence or self._sequence[-1] is not entry:
            self._sequence.append(entry)
            self.position += 1

    def _new_key(self, kind: str, name: str) -> str:
        base = name if kind == "step" else f"{kind}:{name}"
        suffix = self._suffixes.get(base, 0)
        key = base if suffix == 0 else f"{base}:{suffix}"
        while key in self._keys:
            suffix += 1
            key = f"{base}:{suffix}"
        self._suffixes[base] = suffix
        self._keys.add(key)
        return key

    def decide(self, change_id: str) -> bool | None:
        """What `patched(change_id)` answers; None where the answer must be recorded first."""
        if change_id not in self._decisions:
            if change_id in self._patches:
                self._decisions[change_id] = True
            elif self.is_replaying:
                self._decisions[change_id] = False
            else:
                return None
        return self._decisions[change_id]
