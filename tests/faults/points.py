"""Every commit of the package and the case that passes it.

Names are those of `tests/lab/commits.py`. Nobody has to remember this list: one test compares it
with what the cases really pass, another with the functions of `django_workflows/store/`.
"""

from django.db import connection

BOTH = {
    "approvals.decide": "approve",
    "approvals.take": "waits",
    "children.start": "family",
    "children.take": "family",
    "leases.catch_up": "resume",
    "leases.claim_batch by claims.claim_batch": "orphan",
    "leases.claim_one by claims.claim_one": "resume",
    "leases.fail_overdue": "overdue",
    "leases.register_worker by claims.register_worker": "orphan",
    "leases.renew by claims.renew": "orphan",
    "leases.route": "waits",
    "leases.stop_worker by claims.stop_worker": "orphan",
    "leases.take_over_dead": "poison",
    "leases.take_over_dead by claims.take_over": "orphan",
    "messages.send by inbox.send": "send",
    "messages.take": "waits",
    "recorder.record by records.write": "work",
    "recorder.record by runs.forget_crashes": "orphan",
    "recorder.record in its caller's transaction": "work",
    "reruns.rerun": "rerun",
    "retention.purge_batch": "purge",
    "runs.cancel": "cancel",
    "runs.finish": "family",
    "runs.finish by runs.finish": "work",
    "runs.give_back by runs.give_back": "stopped",
    "runs.park": "waits",
    "runs.retry_body": "work",
    "runs.start": "start",
    "runs.wake": "wake",
    "runs.write_state by runs.write_state": "work",
    "signal_with_start.signal_with_start": "signal_with_start",
    "signals.send": "signal",
    "signals.take": "waits",
}
# Statements that do the work of several, and what only a lost connection leads to.
POSTGRESQL = {
    "leases.claim_waiting by claims.claim_waiting": "waits",
    "leases.release_strays by claims.release": "stray",
    "messages.take by inbox.take": "waits",
    "recorder.record by batches.write_all": "crowd",
    "recorder.record_taken by records.write_taken": "inbox",
    "runs.finish by batches.write_all": "crowd",
}
SQLITE: dict[str, str] = {}

POINTS = {**BOTH, **(POSTGRESQL if connection.vendor == "postgresql" else SQLITE)}

# Functions of the store that only look, or that others of it call in their transaction.
_NO_COMMIT = {
    "approvals": "asked_of latest message_name of_step pending standing to_approval why_refused",
    "authority": "dereference find_user people permission_text reference why_not",
    "children": "derived_id has_ended",
    "diagnosis": (
        "diagnose find_clock_offset find_missing_indexes find_missing_workers "
        "find_nondeterministic find_overdue find_poison find_stale_workers find_unclaimed "
        "find_unknown find_unrouted find_unsafe_settings"
    ),
    "ending": "canceled_error close_children end_run tell_parent",
    "leases": "fail_if_overdue load_histories look reload_history",
    "locks": "fenced locked_run transaction",
    "messages": "fill find is_there listing read_ahead",
    "recorder": "finish share_writes",
    "runs": "find_open get get_by_workflow_id insert_unless_open newest standing",
    "signals": "is_there",
}
NO_COMMIT = {f"{module}.{name}" for module, names in _NO_COMMIT.items() for name in names.split()}
