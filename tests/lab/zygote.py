"""A warm process that forks others: hundreds of short-lived workers and callers in seconds.

`python -m tests.lab.zygote` reads one JSON request a line. `{"target": "module:function",
"arguments": […], "environment": {…}, "log": path}` forks a process that calls the function and
answers its pid; `{"wait": pid, "seconds": n}` answers its exit status, or null after n seconds.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path


def main() -> None:
    import django

    # Before anybody connects or starts a thread: neither survives a fork.
    django.setup()
    importlib.import_module("django_workflows.worker.supervisor")
    importlib.import_module("tests.lab.actors")
    statuses: dict[int, int] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = _wait(request["wait"], request["seconds"], statuses)
        else:
            answer = _fork(request)
        print(json.dumps(answer), flush=True)


def _fork(request: dict) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        _redirect(request["log"])
        os.environ.update(request["environment"])
        from tests.lab import commits, points

        points.install()
        commits.install()
        module, _, name = request["target"].partition(":")
        result = getattr(importlib.import_module(module), name)(*request["arguments"])
        code = result if isinstance(result, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: str) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _wait(pid: int, seconds: float, statuses: dict[int, int]) -> int | None:
    give_up = time.monotonic() + seconds
    while pid not in statuses:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if ended:
            statuses[ended] = os.waitstatus_to_exitcode(status)
        elif time.monotonic() > give_up:
            return None
        else:
            time.sleep(0.005)
    return statuses[pid]


class Zygote:
    """The warm process, and whoever it has forked, seen from a test."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        self._directory = directory
        self._alive: set[int] = set()
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.lab.zygote"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, **request: object) -> int | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: int | None = json.loads(self._process.stdout.readline())
        return answer

    def fork(self, target: str, *arguments: object, **environment: str) -> Forked:
        """Call a function in a process of its own."""
        self._count += 1
        log = self._directory / f"forked-{self._count}.log"
        pid = self._ask(
            target=target, arguments=list(arguments), environment=environment, log=str(log)
        )
        assert pid is not None
        self._alive.add(pid)
        return Forked(self, pid, log)

    def wait(self, pid: int, seconds: float) -> int | None:
        status = self._ask(wait=pid, seconds=seconds)
        if status is not None:
            self._alive.discard(pid)
        return status

    def kill_all(self) -> None:
        """End whoever has been forked and is still there."""
        for pid in list(self._alive):
            # A process that has ended and wasn't waited for keeps its pid.
            os.kill(pid, signal.SIGKILL)
            self.wait(pid, 20.0)

    def close(self) -> None:
        self.kill_all()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


class Forked:
    """One forked process."""

    def __init__(self, zygote: Zygote, pid: int, log: Path) -> None:
        self._zygote = zygote
        self.pid = pid
        self.log = log

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def stop(self, seconds: float = 40.0) -> int:
        """Ask it to stop; its exit status."""
        self.send(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds: float = 30.0) -> int:
        """Its exit status."""
        status = self._zygote.wait(self.pid, seconds)
        assert status is not None, f"still alive after {seconds} s:\n{self.output()}"
        return status

    @property
    def is_alive(self) -> bool:
        return self._zygote.wait(self.pid, 0) is None

    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


if __name__ == "__main__":
    main()
