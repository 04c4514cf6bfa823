"""django_workflows as a peer of the side-by-side benchmark: the same workloads as the others.

Takes a workload's name (w1 … w6); BENCH_DSN names an empty database of its own. The module
`common` that measures comes with the benchmark, by PYTHONPATH.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

import psycopg
from common import (
    DSN,
    Worker,
    connect,
    emit,
    hand_shake,
    idle_cost,
    throughput,
    wait_until,
    wake_latency,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

MODES: dict[str, list[str]] = {
    "default": [],
    "tuned": ["--concurrency", "16"],
}
RUN = "django_workflows_workflowrun"
STEP = "django_workflows_workflowstep"


def setup():
    """Configure Django on the benchmark's database; the module that holds the workflows."""
    import django
    from django.conf import settings

    info = psycopg.conninfo.conninfo_to_dict(DSN)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": info["dbname"],
        "HOST": info["host"],
        "PORT": info["port"],
        "USER": info["user"],
        "CONN_MAX_AGE": None,
    }
    settings.configure(
        DATABASES={"default": database},
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_workflows"],
        USE_TZ=True,
        LOGGING_CONFIG=None,
    )
    django.setup()
    from tests.benchmarks import bench_workflows

    return bench_workflows


def worker(mode: str) -> None:
    setup()
    from django.core.management import call_command

    hand_shake()
    call_command("runworkflows", *MODES[mode])


def prepare():
    app = setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    return app


DONE = f"SELECT count(*) FROM {RUN} WHERE status = 'completed' AND workflow_name = %s"
SPAN = (
    "SELECT extract(epoch FROM max(finished_at) - min(started_at))::float8"
    f" FROM {RUN} WHERE workflow_name = %s AND status = 'completed'"
)
PARKED = f"SELECT 1 FROM {RUN} WHERE id = %s AND status = 'suspended'"
STATUS = f"SELECT status FROM {RUN} WHERE id = %s"


def count_done(conn, name="three") -> int:
    return conn.execute(DONE, (name,)).fetchone()[0]


def span(conn, name="three") -> float:
    return conn.execute(SPAN, (name,)).fetchone()[0]


def is_parked(conn, run) -> bool:
    return bool(conn.execute(PARKED, (run,)).fetchone())


def is_done(conn, run) -> bool:
    return conn.execute(STATUS, (run,)).fetchone()[0] == "completed"


def clear(name: str) -> None:
    conn = connect()
    ids = f"(SELECT id FROM {RUN} WHERE workflow_name = %s)"
    conn.execute(f"DELETE FROM django_workflows_workflowmessage WHERE run_id IN {ids}", (name,))
    conn.execute(f"DELETE FROM {STEP} WHERE run_id IN {ids}", (name,))
    conn.execute(f"DELETE FROM {RUN} WHERE workflow_name = %s", (name,))


def w1(app, n: int, suffix: str = "", workload: str = "W1", modes=tuple(MODES)) -> None:
    for mode in modes:
        clear("three")
        throughput(
            workload=workload,
            variant=f"{mode}{suffix}",
            n=n,
            steps=3,
            start=lambda i: app.three.start(n=i),
            worker=lambda mode=mode: Worker("worker", mode),
            count_done=count_done,
            span=span,
        )


def w2(
    app,
    trials: int,
    suffix: str = "",
    workload: str = "W2",
    modes=("default",),
    budget: float = 150,
) -> None:
    from django_workflows import send_message

    for mode in modes:
        w = Worker("worker", mode).ready().go()
        try:
            wake_latency(
                workload=workload,
                variant=f"message {mode}{suffix}",
                trials=trials,
                start=lambda i: str(app.wait.start().pk),
                is_parked=is_parked,
                send=lambda run, i: send_message(run, "go", i),
                is_done=is_done,
                budget_s=budget,
            )
        finally:
            w.stop()


def w3(app) -> None:
    from django_workflows import send_message

    conn = connect()
    for runs, each in ((1, 1000), (50, 20)):
        clear("consume")
        ids = [app.consume.start(m=each).pk for _ in range(runs)]
        t0 = time.monotonic()
        for i in range(each):
            for run in ids:
                send_message(run, "m", i)
        sent = runs * each / (time.monotonic() - t0)
        w = Worker("worker", "default").ready().go()
        try:
            wait_until(lambda runs=runs: count_done(conn, "consume") >= runs, 300)
        finally:
            w.stop()
        consumed = runs * each / span(conn, "consume")
        emit(
            "W3",
            f"{runs} run(s), {each} each",
            sent_per_s=round(sent, 1),
            consumed_per_s=round(consumed, 1),
        )


def w4(app) -> None:
    from django_workflows import send_message

    conn = connect()
    for n in (100, 1000, 5000):
        run = app.long.start(n=n).pk
        w = Worker("worker", "default").ready().go()
        marks = w.note()["marks"]
        per = [(b - a) / 50 * 1000 for a, b in itertools.pairwise(marks)]
        wait_until(lambda run=run: is_parked(conn, run), 30)
        w.stop(hard=True)
        w = Worker("worker", "default").ready().go()
        time.sleep(1.5)
        t0 = time.monotonic()
        send_message(run, "go", 1)
        again = w.note()["marks"]
        wait_until(lambda run=run: is_done(conn, run), 60, every=0.002)
        total = time.monotonic() - t0
        w.stop()
        emit(
            "W4",
            f"{n} steps",
            ms_per_step=round((marks[-1] - marks[0]) / n * 1000, 3),
            first_50_ms=round(per[0], 3),
            last_50_ms=round(per[-1], 3),
            replay_s=round(again[-1] - again[0], 4),
            wake_to_done_s=round(total, 3),
        )


def copy_rows(conn, table: str, where: str, have: int, target: int, **other: str) -> None:
    """Copies of a template row, `other` by SQL over `g`."""
    columns = [
        row[0]
        for row in conn.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = %s", (table,)
        )
        if row[0] != "id" or "id" in other
    ]
    cells = [other.get(column, f's."{column}"') for column in columns]
    conn.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(cells)} FROM {table} s,"
        f" generate_series({have + 1}, {target}) g WHERE {where}",
        prepare=False,
    )


def w5(app, parked: list[int], trials: int) -> None:
    conn = connect()
    w = Worker("worker", "default").ready().go()
    run = app.wait.start().pk
    wait_until(lambda: is_parked(conn, run), 30)
    done = app.three.start(n=-1).pk
    wait_until(lambda: is_done(conn, done), 30)
    w.stop()
    have = 0
    for target in [0, *parked]:
        if target:
            new = "md5('p' || g)::uuid"
            copy_rows(
                conn, RUN, f"s.id = '{run}'", have, target, id=new, workflow_id="'parked' || g"
            )
            copy_rows(conn, STEP, f"s.run_id = '{run}'", have, target, run_id=new)
            if os.environ.get("BENCH_FINISHED"):
                each = int(os.environ["BENCH_FINISHED"]) // max(parked)
                ended = "md5('f' || g)::uuid"
                copy_rows(
                    conn,
                    RUN,
                    f"s.id = '{done}'",
                    have * each,
                    target * each,
                    id=ended,
                    workflow_id="'done' || g",
                    workflow_name="'other'",
                )
            conn.execute("ANALYZE")
            have = target
        w1(app, 300, f", {target} parked", "W5", ("default",))
        w2(app, trials, f", {target} parked", "W5", ("default",), budget=40)


def w6() -> None:
    idle_cost(variant="default", worker=lambda: Worker("worker", "default"))


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "worker":
        worker(*rest)
        sys.exit()
    n = int(os.environ.get("BENCH_N", "1000"))
    trials = int(os.environ.get("BENCH_TRIALS", "200"))
    parked = [int(x) for x in os.environ.get("BENCH_PARKED", "20000,100000").split(",") if x]
    app = prepare()
    {
        "w1": lambda: w1(app, n),
        "w2": lambda: w2(app, trials),
        "w3": lambda: w3(app),
        "w4": lambda: w4(app),
        "w5": lambda: w5(app, parked, 60),
        "w6": w6,
    }[what]()
