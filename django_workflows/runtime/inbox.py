"""Messages read ahead, for a body that consumes one after another.

The first ones are taken each by a statement that finds the oldest. A body that goes on so reads
the next ones in one query. What it takes of them is held, and consumed and recorded in one commit
before anything that others can see: a step's function, another write, a park, the run's end. A
crash before that commit leaves the messages as they were, for the same waits to take again.
"""

from __future__ import annotations

import time
from collections import deque

from django_workflows.db.records import Entry
from django_workflows.store import messages, recorder
from django_workflows.store.leases import Claim
from django_workflows.store.messages import Claimed, Taken

# Takes of the same names in one pass before it pays to read ahead.
ENOUGH = 2
# Held no longer than this, so that people see an inbox as it is.
HOLD_SECONDS = 0.02
MAX_HELD = 50


class Inbox:
    """What one pass has read of its run's inbox, and what it holds of it."""

    def __init__(self, claim: Claim, *, reads_ahead: bool) -> None:
        self._claim = claim
        self._reads_ahead = reads_ahead
        self._names: tuple[str, ...] = ()
        self._taken = 0
        self._ahead: deque[Taken] = deque()
        self._held: list[Entry] = []
        self._held_since = 0.0

    def take(self, entry: Entry, names: tuple[str, ...], if_none: Entry | None) -> Claimed:
        """As `messages.take`, from what was read ahead where there is some."""
        if names != self._names:
            # Another wait may take what was read ahead for this one.
            self._names, self._taken = names, 0
            self._ahead.clear()
        if entry.id is None and self._has_ahead():
            taken = self._ahead.popleft()
            messages.fill(entry, taken)
            self._hold(entry)
            return Claimed("running", taken)
        self.flush()
        looked = messages.take(self._claim, entry, names, if_none)
        self._taken = self._taken + 1 if looked.taken is not None else 0
        return looked

    def _has_ahead(self) -> bool:
        if not self._ahead and self._reads_ahead and self._taken >= ENOUGH:
            # What is held is still pending there, and must not be read twice.
            self.flush()
            self._ahead.extend(messages.read_ahead(self._claim.run_id, self._names))
            if not self._ahead:
                self._taken = 0
        return bool(self._ahead)

    def _hold(self, entry: Entry) -> None:
        if not self._held:
            self._held_since = time.monotonic()
        self._held.append(entry)
        is_long = time.monotonic() - self._held_since > HOLD_SECONDS
        if is_long or len(self._held) >= MAX_HELD:
            self.flush()

    def flush(self) -> None:
        """Commit what is held.

        Raises:
            LeaseLost: another worker has the run, or it has ended; nothing was written.
        """
        if self._held:
            recorder.record_taken(self._claim, self._held)
            # Only now: after an outage it is tried again.
            self._held.clear()
