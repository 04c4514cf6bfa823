"""pytest fixture `workflows`: execute what is due and move the clock, in the test's transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from django_workflows.models import WorkflowRun


class Workflows:
    """What the fixture hands out."""

    def run_until_idle(self, *runs: WorkflowRun) -> int:
        """See `django_workflows.testing.run_until_idle`."""
        from django_workflows import testing

        return testing.run_until_idle(*runs)

    def advance(self, delta: timedelta) -> None:
        """See `django_workflows.testing.advance`."""
        from django_workflows import testing

        testing.advance(delta)

    def replay_every_step(self) -> AbstractContextManager[None]:
        """See `django_workflows.testing.replay_every_step`."""
        from django_workflows import testing

        return testing.replay_every_step()


@pytest.fixture
def workflows(db: Any) -> Iterator[Workflows]:
    """Helpers of `django_workflows.testing`; the clock is put back after the test."""
    from django_workflows import testing

    with testing.workflow_clock():
        yield Workflows()
