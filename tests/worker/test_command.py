"""Arguments of `manage.py runworkflows`, and the options that come of them."""

import signal
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections
from django.test import override_settings

from django_workflows.management.commands.runworkflows import Command
from django_workflows.models import WorkflowWorker
from django_workflows.registry import registry
from django_workflows.worker.options import WorkerOptions
from tests.lab import workflows as lab


def parse(*arguments):
    parser = Command().create_parser("manage.py", "runworkflows")
    # As call_command does, so that errors are raised instead of printed.
    parser.called_from_command_line = False
    return vars(parser.parse_args(arguments))


def test_options_are_those_of_the_settings_unless_given():
    given = {
        "CONCURRENCY": 3,
        "POLL_SECONDS": 0.5,
        "LEASE_SECONDS": 7.0,
        "SHUTDOWN_SECONDS": 2.5,
    }
    with override_settings(DJANGO_WORKFLOWS=given):
        options = parse()
        assert options["concurrency"] == 3
        assert options["poll_interval"] == 0.5
        assert options["lease"] == 7.0
        assert options["shutdown_timeout"] == 2.5
        assert parse("--concurrency", "9", "--lease", "1.5")["concurrency"] == 9
        assert WorkerOptions() == WorkerOptions(
            queues=(),
            concurrency=3,
            burst=False,
            poll_seconds=0.5,
            lease=timedelta(seconds=7),
            shutdown_seconds=2.5,
        )


def test_without_settings_a_worker_takes_every_queue_in_one_process():
    options = parse()
    assert options["queue"] is None
    assert options["processes"] == 1
    assert options["burst"] is False
    assert options["poll_interval"] is None


def test_queues_add_up():
    assert parse("--queue", "mails", "--queue", "slow")["queue"] == ["mails", "slow"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--concurrency", "0"], "Error: argument --concurrency: must be at least 1"),
        (["--processes", "-1"], "Error: argument --processes: must be at least 1"),
        (
            ["--concurrency", "many"],
            "Error: argument --concurrency: invalid _count value: 'many'",
        ),
        (["--lease", "0"], "Error: argument --lease: must be more than zero seconds"),
        (
            ["--poll-interval", "-1"],
            "Error: argument --poll-interval: must be zero or more seconds",
        ),
        (
            ["--shutdown-timeout", "nan"],
            "Error: argument --shutdown-timeout: must be zero or more seconds",
        ),
    ],
)
def test_bad_numbers_are_refused(arguments, error):
    with pytest.raises(CommandError) as refused:
        parse(*arguments)
    assert str(refused.value) == error


def test_autoreload_is_for_one_process():
    with pytest.raises(CommandError) as refused:
        call_command("runworkflows", "--autoreload", "--processes", "2")
    assert str(refused.value) == "--autoreload works with one process; leave out --processes."


@pytest.mark.django_db(transaction=True)
def test_a_burst_within_this_process_leaves_it_as_it_was():
    run = lab.steps.start(count=2)
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    age = connections["default"].settings_dict["CONN_MAX_AGE"]

    call_command("runworkflows", "--burst", "--queue", "default", "--concurrency", "2")

    assert run.wait(0).result == [0, 1]
    worker = WorkflowWorker.objects.get()
    assert worker.queues == ["default"]
    assert sorted(map(tuple, worker.workflows)) == sorted(registry.pairs())
    assert worker.stopped_at is not None
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert connections["default"].settings_dict["CONN_MAX_AGE"] == age
