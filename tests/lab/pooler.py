"""PgBouncer in transaction mode, in front of the test server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import psycopg

from tests.server import account
from tests.waiting import eventually

# So few that clients really share them, and meet what another has left behind.
POOL_SIZE = 3

_CONFIG = """
[databases]
* = host={host} port={port} user={user} password='{password}'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 200
logfile = {directory}/log
pidfile = {directory}/pid
"""


class PgBouncer:
    """One pooler process; its address is `port` on 127.0.0.1."""

    def __init__(self, directory: Path, database: dict[str, str]) -> None:
        program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program, "pgbouncer isn't installed: apt-get install pgbouncer"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        config = directory / "pgbouncer.ini"
        config.write_text(
            _CONFIG.format(
                host=database["HOST"],
                port=database["PORT"],
                user=database["USER"],
                password=database["PASSWORD"].replace("'", "''"),
                own_port=self.port,
                size=POOL_SIZE,
                directory=directory,
            )
        )
        given = account()
        if given:
            # It refuses to run as root, and its directory is closed to others.
            for path in (directory, config):
                os.chown(path, given["user"], given["group"])
            for parent in directory.parents:
                if parent.owner() == "root" and not parent.stat().st_mode & 0o001:
                    parent.chmod(parent.stat().st_mode | 0o011)
        self._log = directory / "log"
        self._process = subprocess.Popen(
            [program, str(config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **given,
        )
        self._database = database["NAME"]
        eventually(self._answers)

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            with psycopg.connect(
                host="127.0.0.1", port=self.port, user="any", dbname=self._database
            ):
                return True
        except psycopg.OperationalError:
            return False

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)
