"""200,000 runs, 600,000 steps and 1,000,000 messages, written by SQL: how a busy site looks after
a quarter of a year."""

from django.db import connection

RUNS = 200_000
MESSAGES_PER_RUN = 5
STEPS_PER_RUN = 3

# Ids as the package makes them: the time in milliseconds, version 7, then whatever.
_RUNS = """
INSERT INTO django_workflows_workflowrun (id, workflow_id, workflow_name, version, queue_name,
    priority, status, input, result, error, state, attempts, claim_count, crashes, available_at,
    waiting_kind, waiting_for, waiting_since, problem, problem_count, on_parent_close, parent_told,
    subject_type, subject_pk, created_at, started_at, finished_at)
SELECT CAST(lpad(to_hex(CAST(extract(epoch FROM at) * 1000 AS bigint)), 12, '0') || '7000'
        || '8000' || lpad(to_hex(n), 12, '0') AS uuid),
    'order-' || n, CASE WHEN n %% 4000 = 1 THEN 'shop.rare' ELSE 'shop.order_' || n %% 5 END,
    '1', CASE WHEN n %% 50 = 0 THEN 'slow' ELSE 'default' END, 0, status,
    '{"note":"' || repeat('x', 300) || '"}', NULL, NULL, '{"done":1,"total":3}', 0, 1, 0, NULL,
    CASE WHEN status <> 'suspended' THEN '' WHEN n %% 80 = 0 THEN 'approval' ELSE 'message' END,
    CASE WHEN status = 'suspended' THEN '["go"]' ELSE '' END,
    CASE WHEN status = 'suspended' THEN at END, '', 0, '', TRUE, '', '', at, at,
    CASE WHEN status IN ('completed', 'failed', 'canceled') THEN at + interval '1 minute' END
FROM (SELECT n, now() - (%(runs)s - n) * interval '40 seconds' AS at,
    CASE WHEN n %% 40 = 0 THEN 'suspended' WHEN n %% 97 = 0 THEN 'failed'
        WHEN n %% 501 = 0 THEN 'canceled' WHEN n > %(runs)s - 300 THEN 'pending'
        ELSE 'completed' END AS status
    FROM generate_series(1, %(runs)s) n) drawn
"""
_STEPS = """
INSERT INTO django_workflows_workflowstep (run_id, seq, key, name, kind, status, attempts, result,
    details, created_at, started_at, finished_at)
SELECT id, seq, 'step-' || seq, 'step-' || seq,
    CASE WHEN seq = 2 AND waiting_kind = 'approval' THEN 'approval' ELSE 'step' END,
    CASE WHEN seq = 2 AND status = 'suspended' THEN 'waiting'
        WHEN seq = 2 AND status = 'failed' THEN 'failed' ELSE 'completed' END,
    1, CASE WHEN seq = 2 AND status = 'suspended' THEN NULL ELSE '"y"' END,
    CASE WHEN seq = 2 AND waiting_kind = 'approval' THEN '{"gate":{"title":"Ship"}}' ELSE '' END,
    created_at, created_at, created_at + seq * interval '2 seconds'
FROM django_workflows_workflowrun, generate_series(0, %(steps)s - 1) seq ORDER BY id, seq
"""
_MESSAGES = """
INSERT INTO django_workflows_workflowmessage (run_id, name, data, routed, consumed_by_id,
    consumed_at, refused, created_at)
SELECT run.id, 'm-' || n, '"' || repeat('z', 200) || '"', TRUE,
    CASE WHEN run.status = 'suspended' AND n = 1 THEN NULL ELSE step.id END,
    CASE WHEN run.status = 'suspended' AND n = 1 THEN NULL ELSE run.created_at END, '',
    run.created_at
FROM django_workflows_workflowrun run
    JOIN django_workflows_workflowstep step ON step.run_id = run.id AND step.seq = 1,
    generate_series(1, %(messages)s) n ORDER BY run.id, n
"""
TABLES = ("workflowmessage", "workflowstep", "workflowrun")


def fill(runs=RUNS):
    """Write the rows, and let the planner know them."""
    given = {"runs": runs, "steps": STEPS_PER_RUN, "messages": MESSAGES_PER_RUN}
    with connection.cursor() as cursor:
        for statement in (_RUNS, _STEPS, _MESSAGES):
            cursor.execute(statement, given)
        for table in TABLES:
            cursor.execute(f"VACUUM ANALYZE django_workflows_{table}")


def clear():
    tables = ", ".join(f"django_workflows_{table}" for table in TABLES)
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {tables} CASCADE")
