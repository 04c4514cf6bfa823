"""The whole story in a minute: `make demo`, or `python -m testproject.demo`.

On a fresh SQLite file the real site and a real worker are started as processes of their own. A
customer places an order and a manager approves it over HTTP, as their browsers would, while the run
is still charging the card. The worker is killed in that very step, after the provider took the
money. Another worker takes over, and the order ships: one charge, no approval lost.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from http.cookiejar import CookieJar
from pathlib import Path
from typing import TypeVar
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

import django

ROOT = Path(__file__).resolve().parent.parent
FILES = ROOT / ".demo"
MANAGE = [sys.executable, str(ROOT / "manage.py")]
LEASE_SECONDS = 2

T = TypeVar("T")


class DemoFailed(Exception):
    """The story went another way than told; the text says where."""


class Story:
    """What the actors do, told with the time since the beginning."""

    def __init__(self) -> None:
        self.begun = time.time()
        self.events: list[tuple[float, str]] = []

    def tell(self, text: str) -> None:
        now = time.time()
        self.events.append((now, text))
        print(f"{now - self.begun:6.1f} s  {text}", flush=True)

    def add(self, when: datetime, text: str) -> None:
        self.events.append((when.timestamp(), text))

    def timeline(self) -> list[str]:
        return [f"{when - self.begun:6.2f} s  {text}" for when, text in sorted(self.events)]


class Process:
    """A command of manage.py with a log file; never outlives the demo."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.name = name
        self.log = FILES / f"{name}.log"
        with self.log.open("w") as log:
            self.popen = subprocess.Popen(
                [*MANAGE, *arguments], cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )

    def check(self) -> None:
        code = self.popen.poll()
        if code is not None:
            raise DemoFailed(f"The {self.name} ended by itself with code {code}.")

    def kill(self) -> None:
        # The whole group, so that no process it may have started lives on.
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()

    def stop(self) -> int:
        self.popen.terminate()
        try:
            return self.popen.wait(timeout=10)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"The {self.name} didn't stop within 10 s of a SIGTERM.") from None


class Browser:
    """Keeps cookies, follows redirects, and sends the CSRF token of the form that it fills in."""

    def __init__(self, site: str) -> None:
        self.site = site
        # A proxy of the environment has no business with a site on this machine.
        self._opener = build_opener(HTTPCookieProcessor(CookieJar()), ProxyHandler({}))
        self.url = site
        self.page = ""

    def get(self, path: str) -> str:
        return self._open(path, None)

    def submit(self, path: str, fields: dict[str, str], *, action: str | None = None) -> str:
        """Open the page at `path`, then send its form."""
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.get(path))
        if token is None:
            raise DemoFailed(f"There is no form at {self.url}:\n{self.page}")
        return self._open(action or path, {**fields, "csrfmiddlewaretoken": token[1]})

    def sign_in(self, name: str) -> None:
        self.submit("/sign-in/", {"username": name, "password": f"{name}-demo"})
        if f">{name}<" not in self.page:
            raise DemoFailed(f"{name} could not sign in:\n{self.page}")

    def _open(self, path: str, fields: dict[str, str] | None) -> str:
        data = None if fields is None else urlencode(fields).encode()
        try:
            with self._opener.open(urljoin(self.site, path), data, timeout=10) as answer:
                self.url, self.page = answer.url, answer.read().decode()
        except HTTPError as error:
            body = error.read().decode(errors="replace")
            raise DemoFailed(f"{error.url} answered {error.code}:\n{body[:2000]}") from error
        return self.page


def wait_for(what: str, look: Callable[[], T | None], *processes: Process, seconds: float) -> T:
    """Poll until `look` finds something; fail when time is up or a needed process has ended."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None:
            return found
        for process in processes:
            process.check()
        if time.monotonic() > deadline:
            raise DemoFailed(f"Waited {seconds:g} s for {what}, in vain.")
        time.sleep(0.05)


def prepare() -> str:
    """Fresh files and an environment for this process and those that it starts; the site's URL."""
    shutil.rmtree(FILES, ignore_errors=True)
    FILES.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(
        DJANGO_SETTINGS_MODULE="testproject.settings",
        DATABASE_URL=f"sqlite:///{FILES / 'demo.sqlite3'}",
        DEBUG="on",
        USE_TZ="on",
        PYTHONUNBUFFERED="1",
        SHOP_CHARGE_SECONDS="2",
        SHOP_COOLING_OFF_SECONDS="1",
    )
    for command in (["migrate", "--verbosity", "0"], ["seed_shop"]):
        subprocess.run([*MANAGE, *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    django.setup()
    return f"http://127.0.0.1:{port}"


def play(story: Story, site_url: str, running: ExitStack) -> str:
    """The story itself; returns the number of the order that it was about."""

    def begin(name: str, *arguments: str) -> Process:
        process = Process(name, *arguments)
        running.callback(process.kill)
        return process

    def begin_worker(name: str) -> Process:
        return begin(name, "runworkflows", "--lease", str(LEASE_SECONDS))

    site = begin("site", "runserver", "--noreload", site_url.removeprefix("http://"))
    wait_for("the site to answer", lambda: _answer(site_url), site, seconds=20)
    first = begin_worker("worker-1")
    story.tell(f"site and first worker are up (worker: process {first.popen.pid})")

    customer, manager = Browser(site_url), Browser(site_url)
    customer.sign_in("customer")
    manager.sign_in("manager")
    fields = {"product": _product(customer, "Teapot"), "quantity": "2", "customer": "Ada Lovelace"}
    customer.submit("/orders/new/", fields)
    path = customer.url.removeprefix(site_url)
    number = path.strip("/").rpartition("/")[2]
    if _shown(customer, path, "order-status") is None:
        raise DemoFailed(f"The order wasn't placed:\n{customer.page}")
    story.tell(f"the customer placed order {number}")

    wait_for(
        "the step charge to begin",
        lambda: _shown(customer, path, "charges") == "1" or None,
        site,
        first,
        seconds=20,
    )
    story.tell("the step charge is under way: the money is taken, the answer still to come")

    manager.submit(
        path, {"decision": "approve", "comment": "A good customer."}, action=f"{path}decide/"
    )
    if "You have approved" not in manager.page:
        raise DemoFailed(f"The approval wasn't accepted:\n{manager.page}")
    story.tell("the manager approved, before the run has reached its gate")

    first.kill()
    story.tell("the worker was killed with SIGKILL, in the middle of that step")
    if re.search('data-step="charge"', customer.get(f"{path}progress/")):
        raise DemoFailed("The step charge was over before the worker was killed.")

    second = begin_worker("worker-2")
    story.tell(f"another worker was started (process {second.popen.pid})")
    wait_for(
        "the order page to say shipped",
        lambda: _shown(customer, path, "order-status") == "shipped" or None,
        site,
        second,
        seconds=40,
    )
    wait_for(
        "the run to be completed",
        lambda: _shown(customer, path, "run-status") == "completed" or None,
        site,
        second,
        seconds=10,
    )
    story.tell("the order page says: shipped")
    code = second.stop()
    if code != 0:
        raise DemoFailed(f"The second worker answered SIGTERM with exit code {code}.")
    return number


def report(story: Story, number: str) -> None:
    """Check what the database holds in the end, and print it all in the order of time."""
    from django_workflows import get_run
    from testproject.shop.models import Order

    order = Order.objects.get(number=number)
    run = get_run(workflow_id=order.workflow_id)
    calls = list(order.provider_calls.all())
    charges = list(order.charges.all())
    inbox = list(run.messages.select_related("consumed_by"))
    _expect("run", run.status, "completed")
    _expect("result", run.result, {"status": "shipped", "charge": order.charge_ref})
    _expect("requests to charge", len(calls), 2)
    _expect("charges", [charge.reference for charge in charges], [order.charge_ref])
    takers = [message.consumed_by.key if message.consumed_by else None for message in inbox]
    gates = [step.key for step in run.steps.all() if step.kind == "approval"]
    _expect("steps that took the decisions", takers, gates)

    for count, call in enumerate(calls, 1):
        story.add(call.begun_at, f"  provider: request {count} to {call.what}")
        if call.answered_at:
            story.add(call.answered_at, f"  provider: answered request {count}")
    for charge in charges:
        story.add(charge.charged_at, f"  provider: {charge.amount} € taken, {charge.reference}")
    for message, taker in zip(inbox, takers, strict=True):
        said = "approved" if message.data["approved"] else "rejected"
        who, why = message.data["by"]["text"], message.data["comment"]
        story.add(message.created_at, f"  decision stored: {who} {said}, {why!r}")
        story.add(message.consumed_at, f"  decision checked and taken by step {taker!r}")
    for step in run.steps.all():
        story.add(
            step.finished_at,
            f"  step {step.seq} {step.key!r} ({step.kind}) {step.status}"
            + (f", attempt {step.attempts}" if step.kind == "step" else ""),
        )
    story.add(run.finished_at, f"  run {run.status}: {run.result}")

    print("\nTimeline")
    print("\n".join(story.timeline()))
    print(f"\nOrder {number} is {order.status}; run {run.pk} is {run.status}.")
    print(f"Requests to charge: {len(calls)}. Charges: {len(charges)}.")


def main() -> int:
    story = Story()
    try:
        with ExitStack() as running:
            number = play(story, prepare(), running)
        report(story, number)
    except (DemoFailed, subprocess.SubprocessError, OSError) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        for log in sorted(FILES.glob("*.log")):
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
            print(f"\n--- the end of {log.relative_to(ROOT)}\n{tail}", file=sys.stderr)
        return 1
    print(f"Done in {time.time() - story.begun:.0f} s.")
    return 0


def _answer(site_url: str) -> str | None:
    try:
        return Browser(site_url).get("/sign-in/")
    except OSError:
        return None


def _product(browser: Browser, name: str) -> str:
    option = re.search(rf'<option value="(\d+)">{name}', browser.get("/orders/new/"))
    if option is None:
        raise DemoFailed(f"The shop doesn't sell a {name}:\n{browser.page}")
    return option[1]


def _shown(browser: Browser, path: str, fact: str) -> str | None:
    found = re.search(rf'data-{fact}="([^"]*)"', browser.get(f"{path}progress/"))
    return found and found[1]


def _expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise DemoFailed(f"{what}: expected {wanted!r}, found {found!r}.")


if __name__ == "__main__":
    # Terminated is as good as interrupted: what was started is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(128 + signum))
    sys.exit(main())
