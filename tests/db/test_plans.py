"""Hot statements are served by their partial indexes, however many ended runs there are."""

import re

import pytest
from django.db import connection

from django_workflows.db import claims, inbox, routing
from django_workflows.db.base import TABLES
from django_workflows.db.dialects import dialect
from django_workflows.models import WorkflowRun
from django_workflows.registry import registry
from django_workflows.store import leases, messages
from django_workflows.store import runs as store_runs
from tests.claiming import claim, take
from tests.lab import workflows as lab

pytestmark = [
    pytest.mark.postgresql("its EXPLAIN"),
    pytest.mark.django_db,
]

PARKED, FINISHED, DUE = 20_000, 50_000, 50

_FILL = f"""
INSERT INTO {{run}} (id, workflow_id, workflow_name, version, queue_name, priority, status, input,
    state, attempts, claim_count, crashes, available_at, deadline_at, waiting_kind, waiting_for,
    waiting_since, problem, problem_count, parent_told, on_parent_close, subject_type, subject_pk,
    created_at, finished_at)
SELECT gen_random_uuid(), 'filled-' || n, 'tests.lab.wait_once', '1', 'default', 0,
    CASE WHEN n <= {PARKED} THEN 'suspended' ELSE 'completed' END, '{{{{}}}}', '{{{{}}}}', 1, 1, 0,
    CASE WHEN n <= {PARKED} / 2 THEN now() + interval '7 days' END,
    CASE WHEN mod(n, 10) = 0 THEN now() + interval '30 days' END,
    CASE WHEN n <= {PARKED} THEN 'message' ELSE '' END,
    CASE WHEN n <= {PARKED} THEN '["go"]' ELSE '' END, now(), '', 0, true, '', '', '', now(),
    CASE WHEN n > {PARKED} THEN now() END
FROM generate_series(1, {PARKED} + {FINISHED}) n
"""
_FILL_STEPS = """
INSERT INTO {step} (run_id, seq, key, name, kind, status, attempts, details, created_at)
SELECT id, 0, 'go', 'go', 'message', CASE WHEN finished_at IS NULL THEN 'waiting' ELSE 'completed'
    END, 1, '', now() FROM {run}
"""
_FILL_MESSAGES = """
INSERT INTO {message} (run_id, name, data, routed, consumed_by_id, refused, created_at)
SELECT run_id, CASE WHEN status = 'waiting' THEN 'other' ELSE 'go' END, 'null', true,
    CASE WHEN status = 'completed' THEN id END, '', now() FROM {step}
"""
_FILL_SIGNALS = """
INSERT INTO {signal} (name, data, run_id, step_id, routed, created_at)
SELECT 'gone', 'null', run_id, id, true, now() FROM {step}
"""


@pytest.fixture(scope="module", autouse=True)
def _filled(django_db_setup, django_db_blocker):
    """Committed once for all tests here, as filling takes a second."""
    if connection.vendor != "postgresql":
        yield
        return
    d = dialect()
    tables = ", ".join(TABLES.values())
    with django_db_blocker.unblock():
        for text in (_FILL, _FILL_STEPS, _FILL_MESSAGES, _FILL_SIGNALS):
            d.execute(text)
        for _ in range(DUE):
            lab.wait_once.start()
        d.execute(f"ANALYZE {tables}")
    yield
    with django_db_blocker.unblock():
        d.execute(f"TRUNCATE {tables} CASCADE")


class Plans:
    """Plans of every statement that the package sends in the block.

    Each is planned for its parameters, and once for any: a worker's statements are prepared, and
    after some executions PostgreSQL may no longer look at the parameters.
    """

    def __enter__(self):
        self.plans = []
        self._wrapper = connection.execute_wrapper(self._explain)
        self._wrapper.__enter__()
        return self

    def __exit__(self, *error):
        self._wrapper.__exit__(*error)

    def _explain(self, execute, sql, params, many, context):
        if re.match(r"\s*(WITH|SELECT|INSERT|UPDATE)", sql) and "django_workflows" in sql:
            with context["connection"].connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN {sql}", params)
                given = "\n".join(row[0] for row in cursor.fetchall())
                is_ours = isinstance(params, dict)
                generic = self._explain_generic(cursor, sql, params) if is_ours else ""
                self.plans.append((given, generic))
        return execute(sql, params, many, context)

    def _explain_generic(self, cursor, sql, params):
        names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))
        numbered = re.sub(r"%\((\w+)\)s", lambda m: f"${names.index(m[1]) + 1}", sql)
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        cursor.execute(f"PREPARE planned AS {numbered}")
        given = ", ".join(f"%({name})s" for name in names)
        cursor.execute(f"EXPLAIN EXECUTE planned{f'({given})' if given else ''}", params)
        text = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("DEALLOCATE planned")
        return text

    def check(self, *indexes):
        text = "\n\n".join(f"{given}\n\n{generic}" for given, generic in self.plans)
        table = "django_workflows_workflow(?:run|step|message|signal)"
        assert not re.findall(rf"Seq Scan on {table}\b", text), text
        for index in indexes:
            using = [generic for given, generic in self.plans if index in given]
            assert using, text
            assert all(index in generic for generic in using if generic), text


def test_a_claim_walks_the_index_of_due_runs():
    with Plans() as plans:
        found = leases.claim_batch(None, registry.pairs(), [], 10)
    assert len(found) == 10
    plans.check("workflows_run_due")


def test_a_claim_of_what_messages_wake_walks_the_index_of_what_is_unrouted():
    waiting = list(WorkflowRun.objects.filter(status="suspended").values_list("pk", flat=True)[:20])
    for run_id in waiting:
        messages.send(run_id, "go", "null", None)
    with Plans() as plans:
        assert len(leases.claim_waiting(None, registry.pairs(), [], 10)) == 10
    plans.check("workflows_message_unrouted")


def test_a_claim_for_a_queue_walks_the_index_of_due_runs():
    with Plans() as plans:
        assert leases.claim_batch(None, registry.pairs(), ["slow"], 10) == []
    plans.check("workflows_run_due")


def test_a_look_reads_the_edge_of_each_index():
    with Plans() as plans:
        leases.look()
    plans.check(
        "workflows_run_due",
        "workflows_message_unrouted",
        "workflows_run_deadline",
        "workflows_run_claimed",
        "workflows_signal_unrouted",
        "workflows_run_untold",
    )


@pytest.mark.parametrize(
    ("source", "index"),
    [
        ("message", "workflows_message_unrouted"),
        ("signal", "workflows_signal_unrouted"),
        ("child", "workflows_run_untold"),
    ],
)
def test_a_router_walks_the_index_of_what_is_unrouted(source, index):
    waiting = list(WorkflowRun.objects.filter(status="suspended").values_list("pk", flat=True)[:20])
    for run_id in waiting:
        messages.send(run_id, "go", "null", None)
    with Plans() as plans:
        ids = routing.lock_unrouted(dialect(), source, 200)
        woken = routing.route(dialect(), source, waiting)
    assert (len(ids), len(woken)) == ((20, 20) if source == "message" else (0, 0))
    plans.check(index)


@pytest.mark.parametrize("names", [("go",), ("go", "stop")])
def test_a_look_into_an_inbox_reads_only_its_pending_messages(names):
    run_id = WorkflowRun.objects.filter(status="suspended").first().pk
    with Plans() as plans:
        assert inbox.oldest(dialect(), run_id, names) is None
        assert inbox.oldest(dialect(), run_id, (*names, "other")) is not None
    plans.check("workflows_message_inbox")


@pytest.mark.parametrize("names", [("go",), ("go", "stop")])
def test_a_take_reads_only_the_inboxs_pending_messages(names):
    run = lab.wait_once.start()
    claimed = claim(run)
    messages.send(run.pk, "go", "null", None)
    with Plans() as plans:
        assert take(claimed, *names).taken is not None
        assert take(claimed, *names, seq=1).taken is None
    plans.check("workflows_message_inbox", "django_workflows_workflowrun_pkey")


@pytest.mark.parametrize("key", [None, "k"])
def test_a_send_finds_its_run_by_id(key):
    run_id = WorkflowRun.objects.filter(status="suspended").first().pk
    with Plans() as plans:
        messages.send(run_id, "go", "null", key)
        if key is not None:
            assert messages.send(run_id, "go", "null", key).deduplicated
    plans.check(
        "django_workflows_workflowrun_pkey", *(["workflows_message_key"] if key is not None else [])
    )


def test_dead_and_overdue_runs_are_found_by_their_indexes():
    with Plans() as plans:
        assert claims.dead(dialect()) == []
    plans.check("workflows_run_claimed")
    with Plans() as plans:
        assert claims.overdue(dialect()) == []
    plans.check("workflows_run_deadline")


def test_a_run_is_found_by_its_workflow_id():
    with Plans() as plans:
        run = store_runs.get_by_workflow_id("filled-1")
        assert lab.wait_once.using(workflow_id="filled-1").start() == run
        assert lab.wait_once.using(workflow_id="filled-60000").start().deduplicated
        assert not lab.wait_once.using(workflow_id="new").start().deduplicated
    plans.check("workflows_run_workflow_id")


def test_records_are_loaded_and_written_by_key():
    lab.steps.start()
    run_id = WorkflowRun.objects.filter(status="suspended").first().pk
    with Plans() as plans:
        assert len(leases.reload_history(run_id)) == 1
    plans.check("workflows_step_key")


def test_a_listing_reads_only_the_runs_messages():
    run = WorkflowRun.objects.filter(status="suspended").first()
    with Plans() as plans:
        list(messages.listing(run.pk, None, None)[:101])
        list(messages.listing(run.pk, "pending", "other")[:101])
        list(messages.listing(run.pk, "consumed", None)[:101])
    plans.check("workflows_message_run")
