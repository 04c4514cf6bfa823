"""What the main thread of a worker sleeps on."""

import os
from uuid import uuid4

import pytest
from django.db import connection
from django.test import override_settings

from django_workflows.db.postgresql import CHANNEL
from django_workflows.worker.listener import Listener
from tests.waiting import Background, eventually

postgresql = pytest.mark.postgresql("SQLite has no notifications")
FOR_EVER = 60


@pytest.fixture
def listener(transactional_db):
    listener = Listener(uuid4(), ("mails",), heartbeat_seconds=10)
    yield listener
    listener.close()
    # LISTEN is the connection's, which later tests use.
    connection.close()


def tell(channel, payload=""):
    def send():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, %s)", [channel, payload])

    Background(send).result()


def hear(listener):
    listener.wait(FOR_EVER)
    return listener.take_told()


def test_a_wake_up_before_the_sleep_is_not_lost(listener):
    listener.wake()
    listener.wait(FOR_EVER)


def test_a_wake_up_from_another_thread_ends_the_sleep(listener):
    sleeping = Background(lambda: listener.wait(FOR_EVER))
    listener.wake()
    sleeping.result()


def test_wake_ups_that_nobody_reads_do_not_block(listener):
    for _ in range(100_000):
        listener.wake()
    listener.wait(FOR_EVER)
    listener.wait(0)


def test_a_closed_listener_leaves_no_file_open(transactional_db):
    listener = Listener(uuid4(), (), heartbeat_seconds=10)
    listener.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(listener.write_end)


@pytest.mark.sqlite("PostgreSQL can listen")
def test_where_there_are_no_notifications_nothing_is_listened_to(listener):
    assert not listener.listen()
    assert not listener.is_trusted


@postgresql
def test_listening_can_be_switched_off(listener):
    with override_settings(DJANGO_WORKFLOWS={"LISTEN": False}):
        assert not listener.listen()


@postgresql
def test_notifications_for_its_queues_and_for_any_queue_are_told(listener):
    assert listener.listen()
    assert not listener.listen()

    tell(CHANNEL, "due:mails")
    assert hear(listener) == {"due"}
    tell(CHANNEL, "child:")
    assert hear(listener) == {"child"}
    tell(CHANNEL, "due:other")
    tell(CHANNEL, "message:mails")
    told = set()
    eventually(lambda: told.update(hear(listener)) or told)
    assert told == {"message"}


@postgresql
def test_notifications_that_came_with_another_statements_answer_are_told_without_a_sleep(
    listener,
):
    listener.listen()
    tell(CHANNEL, "due:mails")
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")

    assert hear(listener) == {"due"}


@postgresql
def test_notifications_are_trusted_once_the_heartbeats_own_came_through(listener):
    listener.listen()
    assert not listener.is_trusted

    tell(CHANNEL, "due:mails")
    hear(listener)
    assert not listener.is_trusted

    tell(listener._own)
    listener.wait(FOR_EVER)
    assert listener.is_trusted


@postgresql
def test_a_replaced_connection_is_listened_to_anew_and_trusted_anew(listener):
    listener.listen()
    tell(listener._own)
    listener.wait(FOR_EVER)

    connection.close()

    assert listener.listen()
    assert not listener.is_trusted
    tell(CHANNEL, "due:mails")
    assert hear(listener) == {"due"}


@postgresql
def test_a_connection_that_the_server_ends_ends_the_sleep(listener):
    listener.listen()
    victim = connection.connection.info.backend_pid

    def terminate():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [victim])

    Background(terminate).result()
    # The server's last words come first, then the end.
    eventually(lambda: listener.wait(FOR_EVER) or connection.connection is None)

    assert listener.listen()
