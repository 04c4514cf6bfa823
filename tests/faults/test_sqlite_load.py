"""Many processes on one SQLite file, as a project sets it up that has read nothing."""

import json

import pytest

from tests.conftest import process_environment
from tests.lab.zygote import Zygote

pytestmark = pytest.mark.sqlite("it has one writer at a time")

RUNS, SENDERS, EACH = 10, 4, 25
WAYS = {
    "Django's own options": {"OPTIONS": None},
    "the options of our docs": {},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_thousand_messages_from_four_processes_meet_no_locked_database(
    way, django_db_setup, tmp_path
):
    environment = {
        "DATABASE_URL": f"sqlite:///{tmp_path / 'own.sqlite3'}",
        "LAB_DATABASE": json.dumps(WAYS[way]),
    }
    warm = Zygote(process_environment(**environment), tmp_path)
    try:
        assert warm.fork("tests.lab.actors:migrate").wait(60) == 0
        starter = warm.fork("tests.faults.scenario:start_inboxes", RUNS, SENDERS * EACH)
        assert starter.wait(60) == 0, starter.output()
        workers = [warm.fork("tests.lab.actors:worker", 10.0, 4) for _ in range(2)]
        target = "tests.faults.scenario:send_to_inboxes"
        senders = [warm.fork(target, n, RUNS, EACH) for n in range(SENDERS)]
        for sender in senders:
            assert sender.wait(100) == 0, sender.output()
        checker = warm.fork("tests.faults.scenario:check_inboxes", RUNS, EACH, SENDERS)
        assert checker.wait(100) == 0, checker.output()
        for worker in workers:
            assert worker.stop() == 0, worker.output()
            assert "locked" not in worker.output()
    finally:
        warm.close()
