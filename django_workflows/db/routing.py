"""Statements of the router: what lies unrouted in inboxes, and which parked runs it wakes.

Three kinds of rows wake a run: messages (decisions on gates among them), deliveries of signals,
and ended children. One shape serves all: find the runs that have unrouted rows, lock them, then,
in a later statement, wake those that are parked on one of the rows and mark just what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django_workflows.db.base import Dialect


@dataclass(frozen=True)
class Source:
    """One kind of row that wakes runs.

    Attributes:
        table: alias-free table fragment.
        owner: column with the run to wake.
        unrouted: condition for rows not looked at; `t.` is the row.
        match: condition on the parked run; `seen.` is the row.
        mark: assignment that says that the row was looked at.
        columns: what `match` needs of the row besides owner and id.
    """

    table: str
    owner: str
    unrouted: str
    match: str
    mark: str
    columns: str = ""


SOURCES = {
    "message": Source(
        table="{message}",
        owner="run_id",
        unrouted="NOT t.routed AND t.consumed_by_id IS NULL",
        match="{waits_for[seen.name]}",
        mark="routed = TRUE",
        columns=", t.name",
    ),
    "signal": Source(
        table="{signal}",
        owner="run_id",
        unrouted="NOT t.routed",
        match="waiting_kind = 'signal'",
        mark="routed = TRUE",
    ),
    "child": Source(
        table="{run}",
        owner="parent_id",
        unrouted="NOT t.parent_told",
        match="waiting_kind = 'child_result' AND {waits_for_run[seen.id]}",
        mark="parent_told = TRUE",
    ),
}

# Each run once, by skipping from one to the next in the index of unrouted rows.
_NEXT = """(SELECT t.OWNER FROM TABLE t WHERE UNROUTED AFTER ORDER BY t.OWNER LIMIT 1)"""
_UNROUTED = (
    "WITH RECURSIVE unrouted (run_id) AS (SELECT "
    + _NEXT.replace("AFTER", "")
    + " UNION ALL SELECT "
    + _NEXT.replace("AFTER", "AND t.OWNER > u.run_id")
    + " FROM unrouted u WHERE u.run_id IS NOT NULL)"
    + " SELECT run_id FROM unrouted WHERE run_id IS NOT NULL LIMIT MAXIMUM"
)
_LOCK = (
    "SELECT r.id FROM {run} r WHERE r.id IN ("
    + _UNROUTED.replace("MAXIMUM", "%(limit)s")
    + """)
ORDER BY r.id {for_no_key_update} {skip_locked}
"""
)
_SEEN = "SELECT t.id, t.OWNER AS run_idCOLUMNS FROM TABLE t WHERE t.OWNER {any[runs]} AND UNROUTED"
_WAKE = """UPDATE {run} SET available_at = {now} WHERE id {any[runs]} AND status = 'suspended'
    AND (available_at IS NULL OR available_at > {now})
    AND EXISTS (SELECT 1 FROM SEEN seen WHERE seen.run_id = {run}.id AND MATCH) RETURNING id"""
_MARK = "UPDATE TABLE SET MARK WHERE id IN (SELECT id FROM SEEN seen)"
_ROUTE = (
    "WITH seen AS MATERIALIZED ("
    + _SEEN
    + "), woken AS ("
    + _WAKE.replace("SEEN seen", "seen")
    + "), marked AS ("
    + _MARK.replace("SEEN seen", "seen")
    + ") SELECT id FROM woken"
)


def _fill(template: str, source: Source) -> str:
    return (
        template.replace("SEEN", f"({_SEEN})")
        .replace("OWNER", source.owner)
        .replace("COLUMNS", source.columns)
        .replace("TABLE", source.table)
        .replace("UNROUTED", source.unrouted)
        .replace("MATCH", source.match)
        .replace("MARK", source.mark)
    )


def unrouted_runs(source: str, limit: int = 200) -> str:
    """Subquery: runs with rows that no router has seen."""
    return _fill(_UNROUTED.replace("MAXIMUM", str(limit)), SOURCES[source])


_TEXTS = {
    name: {
        "lock": _fill(_LOCK, source),
        "route": _fill(_ROUTE, source),
        "wake": _fill(_WAKE, source),
        "mark": _fill(_MARK, source),
    }
    for name, source in SOURCES.items()
}


def lock_unrouted(d: Dialect, source: str, limit: int) -> list[UUID]:
    """Lock runs with rows that no router has seen, in id order, skipping locked ones."""
    return [d.uid(row[0]) for row in d.fetch(_TEXTS[source]["lock"], limit=limit)]


def route(d: Dialect, source: str, run_ids: list[UUID]) -> list[UUID]:
    """Make due the runs that are parked on an unrouted row, and mark what was seen.

    The caller holds the runs' locks. Just the rows of one snapshot are marked: one that commits
    meanwhile is routed next time.
    """
    texts = _TEXTS[source]
    if d.writes_with:
        return [d.uid(row[0]) for row in d.fetch(texts["route"], runs=run_ids)]
    # Under SQLite's write lock nothing can come in between.
    woken = d.fetch(texts["wake"], runs=run_ids)
    d.execute(texts["mark"], runs=run_ids)
    return [d.uid(row[0]) for row in woken]


UNROUTED = {
    name: f"EXISTS (SELECT 1 FROM {source.table} t WHERE {source.unrouted})"
    for name, source in SOURCES.items()
}
