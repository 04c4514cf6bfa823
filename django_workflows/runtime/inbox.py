"""Messages read ahead, for a body that consumes one after another.

The first ones are taken each by a statement that finds the oldest. A body that goes on so reads
the next ones in one query, and each is then consumed by its id, with its record, in one commit.
"""

from __future__ import annotations

from collections import deque

from django_workflows.db.records import Entry
from django_workflows.store import messages
from django_workflows.store.leases import Claim
from django_workflows.store.messages import Claimed, Taken

# Takes of the same names in one pass before it pays to read ahead.
ENOUGH = 2


class Inbox:
    """What one pass has read of its run's inbox."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._names: tuple[str, ...] = ()
        self._taken = 0
        self._ahead: deque[Taken] = deque()

    def take(self, entry: Entry, names: tuple[str, ...], if_none: Entry | None) -> Claimed:
        """As `messages.take`, from what was read ahead where there is some."""
        if names != self._names:
            # Another wait may take what was read ahead for this one.
            self._names, self._taken = names, 0
            self._ahead.clear()
        if entry.id is None and self._may_take_ahead():
            found = messages.take_ahead(self._claim, entry, self._ahead.popleft())
            if found is not None:
                return found
            self._ahead.clear()
        looked = messages.take(self._claim, entry, names, if_none)
        self._taken = self._taken + 1 if looked.taken is not None else 0
        return looked

    def _may_take_ahead(self) -> bool:
        if not self._ahead and self._taken >= ENOUGH:
            self._ahead.extend(messages.read_ahead(self._claim.run_id, self._names))
            if not self._ahead:
                self._taken = 0
        return bool(self._ahead)
