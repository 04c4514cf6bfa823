"""(name, version) → definition, filled when Django discovers `workflows` modules."""

from __future__ import annotations

import re

from django_workflows.definitions import WorkflowDefinition
from django_workflows.exceptions import WorkflowNotRegistered

Pair = tuple[str, str]


class Registry:
    """The workflows of this process."""

    def __init__(self) -> None:
        self._definitions: dict[Pair, WorkflowDefinition] = {}
        self._clashes: dict[Pair, tuple[str, str]] = {}

    def register(self, definition: WorkflowDefinition) -> None:
        """Add a definition. Another function of the same name and version is kept as a clash.

        Importing a module twice, or reloading it, registers the same function again: no clash.
        """
        pair = (definition.name, definition.version)
        known = self._definitions.get(pair)
        if known is not None and known.source != definition.source:
            self._clashes[pair] = (known.source, definition.source)
        self._definitions[pair] = definition

    def get(self, name: str, version: str | None = None) -> WorkflowDefinition:
        """The definition of a version, or of the newest ("10" is newer than "9").

        Raises:
            WorkflowNotRegistered: this process doesn't know it.
        """
        if version is None:
            versions = [known for known_name, known in self._definitions if known_name == name]
            version = max(versions, key=_natural, default=None)
        found = self._definitions.get((name, version)) if version is not None else None
        if found is None:
            known = tuple(sorted({known_name for known_name, _ in self._definitions}))
            raise WorkflowNotRegistered(name, version, known)
        return found

    def pairs(self) -> list[Pair]:
        """Every (name, version) registered, sorted."""
        return sorted(self._definitions)

    def definitions(self) -> list[WorkflowDefinition]:
        """Every definition, sorted by name and version."""
        return [self._definitions[pair] for pair in self.pairs()]

    def clashes(self) -> dict[Pair, tuple[str, str]]:
        """(name, version) → where the two functions are that both claim it."""
        return dict(self._clashes)

    def unregister(self, name: str, version: str) -> None:
        """Forget a definition, for tests that define workflows of their own."""
        self._definitions.pop((name, version), None)
        self._clashes.pop((name, version), None)


def _natural(version: str) -> list[tuple[int, int, str]]:
    return [
        (1, int(part), "") if part.isdecimal() else (0, 0, part)
        for part in re.split(r"(\d+)", version)
        if part
    ]


registry = Registry()
