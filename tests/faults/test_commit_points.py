"""Every commit of the package, failed right before and right after.

The process that commits is killed, or its connection is cut so that it never hears of the outcome.
What is left goes on in a fresh worker, a failed caller calls again with the same key, and all ends
as if nothing had happened.
"""

import inspect
import pkgutil
import time
from importlib import import_module

import pytest
from django.db import connection

import django_workflows.store
from tests.faults.cases import CASES, check_invariants, expire_leases, find, is_over
from tests.faults.points import NO_COMMIT, POINTS


def drive(zygote, case, **environment):
    """Let a case happen; the process that was to fail, and its exit status."""
    subject = case.begin()
    if case.first:
        given = [case.first, environment.get("LAB_COMMIT", "")]
        environment["LAB_COMMIT"] = ";".join(filter(None, given))

    def start_worker(**more):
        return zygote.fork("tests.lab.actors:worker", 10.0, 8, [], case.changes, **more)

    if case.call is None:
        failing = worker = start_worker(**environment)
        status = None
    else:
        given = subject if isinstance(subject, str) else str(subject.pk)
        target = f"tests.lab.saga_flows:{case.call}"
        failing = zygote.fork(target, given, **environment)
        status = failing.wait()
        if status:
            # Its client has had no answer, and asks again.
            expire_leases()
            assert zygote.fork(target, given).wait() == 0
        worker = start_worker()
    give_up = time.monotonic() + 40
    while not is_over(case, subject):
        assert time.monotonic() < give_up, (find(subject), failing.output(), worker.output())
        run = find(subject)
        if run is not None and not run.is_finished:
            case.feed(run)
        if not worker.is_alive:
            expire_leases()
            worker = start_worker()
        time.sleep(0.005)
    code = worker.stop()
    if status is None:
        status = code if worker is failing else failing.wait()
    run = find(subject)
    if run is not None:
        case.verify(run)
    check_invariants()
    return failing, status


@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_at_a_commit_leaves_nothing_undone_or_done_twice(zygote, point):
    case = CASES[POINTS[point]]
    for when in ("before", "after"):
        _failing, status = drive(zygote, case, LAB_COMMIT=f"kill:{when}:1:{point}")
        assert status == -9, f"{point} was never reached"


@pytest.mark.postgresql("a SQLite file has no connection that could be cut")
@pytest.mark.parametrize("point", POINTS)
def test_a_connection_cut_at_a_commit_leaves_nothing_undone_or_done_twice(zygote, point):
    case = CASES[POINTS[point]]
    for when in ("before", "after"):
        failing, status = drive(zygote, case, LAB_COMMIT=f"cut:{when}:1:{point}")
        assert status == 0, failing.output()
        assert "the lab has cut a connection" in failing.output(), f"{point} was never reached"


def test_the_cases_pass_every_point_that_is_listed_and_no_other(zygote, tmp_path):
    trace = tmp_path / "trace"
    passed = {}
    for name in sorted(set(POINTS.values())):
        case = CASES[name]
        trace.write_text("")
        drive(zygote, case, LAB_TRACE=str(trace))
        passed[name] = set(trace.read_text().splitlines())
    seen = set().union(*passed.values())
    assert seen - set(POINTS) == set(), "new commits: list them in points.py, with a case"
    assert set(POINTS) - seen == set(), "no commit any more"
    assert [point for point in POINTS if point not in passed[POINTS[point]]] == []


def test_every_public_function_of_the_store_commits_at_a_listed_point_or_only_reads():
    public = set()
    for module in pkgutil.iter_modules(django_workflows.store.__path__):
        loaded = import_module(f"django_workflows.store.{module.name}")
        for name, function in inspect.getmembers(loaded, inspect.isfunction):
            if function.__module__ == loaded.__name__ and not name.startswith("_"):
                public.add(f"{module.name}.{name}")
    commits = {point.split()[0] for point in _all_points()}
    assert public - commits - NO_COMMIT == set(), "does it commit? See points.py"
    assert NO_COMMIT & commits == set()
    assert NO_COMMIT - public == set()


def _all_points():
    from tests.faults import points

    return {*points.BOTH, *points.POSTGRESQL, *points.SQLITE}


def test_the_list_is_that_of_this_database():
    from tests.faults import points

    own = points.POSTGRESQL if connection.vendor == "postgresql" else points.SQLITE
    assert set(POINTS) == {*points.BOTH, *own}
