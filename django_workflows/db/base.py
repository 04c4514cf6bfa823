"""What a dialect of SQL must say, and how a statement is sent.

The hot path is SQL by hand: `FOR NO KEY UPDATE`, `SKIP LOCKED` beside a claim, fences inside an
INSERT and several writes in one round trip are beyond the ORM, and model instances cost several
times the statement. Statements are templates over the fragments below, one text for every
database, and go through Django's own connection, so that `atomic()`, TestCase and instrumentation
hold. Parameters are named; `At` and `Later` mark instants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_workflows.db import clock

Row = tuple[Any, ...]

TABLES = {
    "run": "django_workflows_workflowrun",
    "step": "django_workflows_workflowstep",
    "message": "django_workflows_workflowmessage",
    "signal": "django_workflows_workflowsignal",
    "worker": "django_workflows_workflowworker",
}
OPEN = "('pending', 'running', 'suspended')"


class At(float):
    """An instant as a parameter: seconds since 1970, for the fragment `{at[name]}`."""


class Later(float):
    """Seconds from the database's now as a parameter, for the fragment `{later[name]}`."""


class _Each:
    """A family of fragments by name, so that templates can say `{at[wake_at]}`."""

    def __init__(self, make: Callable[[str], str]) -> None:
        self._make = make

    def __getitem__(self, name: str) -> str:
        return self._make(name)


class Dialect:
    """SQL of one kind of database, over the connection of one alias."""

    vendor = ""
    # Whether one statement can write several tables, which saves round trips.
    writes_with = False
    # Whether a commit can wake another process.
    notifies = False
    # Whether statements are prepared once per connection.
    prepares = False

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._texts: dict[tuple[str, bool], str] = {}

    def fragments(self, *, shifted: bool) -> dict[str, Any]:
        """Fragments by name; `shifted` when tests have moved the clock."""
        raise NotImplementedError

    def adapt(self, value: Any) -> Any:
        """A parameter as this database's driver takes it."""
        raise NotImplementedError

    def epoch(self, value: Any) -> Any:
        """Seconds since 1970 of what `{epoch[column]}` gave, None of NULL."""
        raise NotImplementedError

    def uid(self, value: Any) -> Any:
        """A UUID of what a uuid column gave, None of NULL."""
        raise NotImplementedError

    @property
    def connection(self) -> BaseDatabaseWrapper:
        """This thread's connection."""
        return connections[self.alias]

    def text(self, template: str) -> str:
        """A template as this database's SQL."""
        shifted = clock.offset() != 0
        text = self._texts.get((template, shifted))
        if text is None:
            text = template.format_map({**TABLES, "open": OPEN, **self.fragments(shifted=shifted)})
            self._texts[template, shifted] = text
        return text

    def params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Adapted parameters, with those that the fragments themselves need."""
        return {name: self.adapt(value) for name, value in params.items()}

    def fetch(self, template: str, **params: Any) -> list[Row]:
        """Rows of a statement that returns some."""
        return self.send(self.text(template), self.params(params))[0]

    def send(self, text: str, params: dict[str, Any]) -> tuple[list[Row], int]:
        """Rows, if the statement returns any, and the number of rows it touched."""
        with self.connection.cursor() as cursor:
            cursor.execute(text, params)
            rows: list[Row] = [] if cursor.description is None else cursor.fetchall()
            return rows, int(cursor.rowcount)

    def one(self, template: str, **params: Any) -> Row | None:
        """The first row, or None."""
        rows = self.fetch(template, **params)
        return rows[0] if rows else None

    def execute(self, template: str, **params: Any) -> int:
        """Number of rows that a statement changed."""
        return self.send(self.text(template), self.params(params))[1]
