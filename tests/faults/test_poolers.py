"""Poolers and ways of connecting: nothing relies on a session that may be another's."""

import json

import pytest
from django.db import connection, connections

from django_workflows import send_message
from django_workflows.fields import uuid7
from django_workflows.worker.listener import Listener
from tests.conftest import process_environment
from tests.faults import cases
from tests.lab import saga_flows as sagas
from tests.lab import workflows as lab
from tests.lab.models import Effect
from tests.lab.pooler import PgBouncer
from tests.lab.zygote import Zygote
from tests.waiting import eventually

pytestmark = [
    pytest.mark.postgresql("its poolers"),
    pytest.mark.django_db(transaction=True),
]


def given_database():
    given = connection.settings_dict
    return {key: str(given[key]) for key in ("HOST", "PORT", "USER", "PASSWORD", "NAME")}


@pytest.fixture(scope="module")
def _bouncer(django_db_setup, django_db_blocker, tmp_path_factory):
    bouncer = PgBouncer(tmp_path_factory.mktemp("pgbouncer"), given_database())
    yield bouncer
    bouncer.stop()


@pytest.fixture
def bouncer(transactional_db, _bouncer):
    """PgBouncer; whoever connected through it is gone before the tables are emptied."""
    return _bouncer


@pytest.fixture
def environment(bouncer):
    """Environment of processes that connect through it."""
    name = given_database()["NAME"]
    return {
        "DATABASE_URL": f"postgres://any:any@127.0.0.1:{bouncer.port}/{name}",
        "LAB_DATABASE": json.dumps({"DISABLE_SERVER_SIDE_CURSORS": True}),
    }


@pytest.fixture
def forks(tmp_path):
    started = []

    def start(**environment):
        started.append(Zygote(process_environment(**environment), tmp_path))
        return started[-1]

    yield start
    for warm in started:
        warm.close()


def play(warm, workers=2):
    running = [warm.fork("tests.lab.actors:worker", 1.5, 4) for _ in range(workers)]
    story = warm.fork("tests.faults.scenario:play")
    assert story.wait(120) == 0, story.output()
    outputs = []
    for worker in running:
        assert worker.stop() == 0, worker.output()
        outputs.append(worker.output())
    return "".join(outputs)


# https://github.com/cbcoutinho/nextcloud-mcp-server/pull/1032
# https://github.com/graphile/worker/issues/559
def test_everything_works_through_a_transaction_pooler(forks, environment):
    told = play(forks(**environment))
    assert "prepared statement" not in told
    assert "Traceback" not in told


def test_many_messages_pass_a_transaction_pooler_beside_other_work(forks, environment):
    warm = forks(**environment)
    runs = [sagas.inbox.start(count=40) for _ in range(10)]
    workers = [warm.fork("tests.lab.actors:worker", 1.0, 8) for _ in range(3)]
    senders = [
        warm.fork("tests.faults.scenario:send_many", [str(run.pk) for run in runs[n::2]], 40)
        for n in range(2)
    ]
    for sender in senders:
        assert sender.wait(90) == 0, sender.output()
    for run in runs:
        assert run.wait(30).result == list(range(40))
    told = "".join(worker.output() for worker in workers)
    assert "prepared statement" not in told
    assert "Traceback" not in told


@pytest.fixture
def through(bouncer):
    """An alias that connects through the pooler, in this process."""
    there = connection.copy("default")
    there.settings_dict = {
        **connection.settings_dict, "HOST": "127.0.0.1", "PORT": bouncer.port,
        "USER": "any", "DISABLE_SERVER_SIDE_CURSORS": True,
    }  # fmt: skip
    direct = connections["default"]
    connections["default"] = there
    yield there
    there.close()
    connections["default"] = direct


def test_a_worker_knows_that_its_session_is_its_own():
    listener = Listener(uuid7(), (), 10)
    assert listener.listen()
    assert listener.is_direct
    listener.close()


def test_a_worker_behind_a_pooler_never_prepares_statements(through):
    listener = Listener(uuid7(), (), 10)
    assert listener.listen()
    # A notification may get through by chance: it proves nothing about other statements.
    assert not listener.is_direct
    listener.close()


# https://github.com/bensheldon/good_job/issues/1573
# https://planetscale.com/blog/keeping-a-postgres-queue-healthy
@pytest.mark.parametrize("how", ["pooler", "direct"])
def test_no_connection_is_idle_in_a_transaction_while_a_step_runs(
    forks, environment, how, tmp_path
):
    warm = forks(**(environment if how == "pooler" else {}))
    go = tmp_path / "go"
    runs = [lab.held.start(path=str(go)) for _ in range(3)]
    warm.fork("tests.lab.actors:worker", 1.5, 4)
    eventually(lambda: Effect.objects.filter(name="first").count() == 3)
    sender = lab.wait_once.start()
    send_message(sender, "go", 1)
    assert sender.wait(20).result == {"data": 1}
    with connection.cursor() as cursor:
        for _ in range(30):
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(
                "SELECT pid, query FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' "
                "AND datname = current_database() "
                "AND clock_timestamp() - state_change > interval '0.5 seconds'"
            )
            assert cursor.fetchall() == []
            cursor.execute("SELECT pg_sleep(0.05)")
    go.touch()
    for run in runs:
        assert run.wait(20).status == "completed"


WAYS = {
    "psycopg's pool": {"CONN_MAX_AGE": 0, "OPTIONS": {"pool": True}},
    "a small pool": {"OPTIONS": {"pool": {"min_size": 1, "max_size": 8, "timeout": 20}}},
    "a connection per request": {"CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False},
    "connections for a second": {"CONN_MAX_AGE": 1, "CONN_HEALTH_CHECKS": True},
    "connections for ever": {"CONN_MAX_AGE": None},
    "server-side binding": {"OPTIONS": {"server_side_binding": True}},
}


@pytest.mark.parametrize("way", WAYS)
def test_everything_works_with(forks, way):
    told = play(forks(LAB_DATABASE=json.dumps(WAYS[way])), workers=1)
    assert "Traceback" not in told


def test_the_effects_are_those_of_the_scenario(forks):
    """So that a scenario that does nothing can't pass."""
    play(forks(), workers=1)
    assert Effect.objects.filter(name="atomic").count() == 3
    assert Effect.objects.filter(name="leaf").count() >= 3
    assert cases.WorkflowRun.objects.filter(status="completed").count() == 18
