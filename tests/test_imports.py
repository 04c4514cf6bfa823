"""`import django_workflows` before Django is set up, and what autodiscovery may find."""

import subprocess
import sys
from pathlib import Path

import pytest

import django_workflows

PACKAGE = Path(django_workflows.__file__).parent
ROOT = PACKAGE.parent

IMPORT_ALL = """
import sys
import django_workflows
missing = [name for name in django_workflows.__all__ if not hasattr(django_workflows, name)]
assert not missing, missing
from django_workflows import *
from django_workflows import WorkflowContext, send_message, step, workflow

@step(atomic=True)
def pay(): ...

@workflow(name="t.early")
def early(ctx, order_id: int): ...

assert early.name == "t.early"
assert "django_workflows.models" not in sys.modules
from django.conf import settings
assert not settings.configured
from django.apps import apps
assert not apps.ready
print("fine")
"""

AFTERWARDS = """
from django_workflows import aget_run, get_run, RunNotFound
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django_workflows"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
try:
    get_run("00000000-0000-0000-0000-000000000000")
except RunNotFound:
    print("fine")
"""


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_every_public_name_works_before_django_is_configured():
    done = run(IMPORT_ALL)

    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


def test_names_imported_early_work_once_django_is_set_up():
    done = run(AFTERWARDS)

    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


def test_the_public_names_are_sorted_and_none_is_told_twice():
    assert django_workflows.__all__ == sorted(set(django_workflows.__all__))


@pytest.mark.parametrize(
    "name",
    [
        "start",
        "signal_with_start",
        "send_message",
        "list_messages",
        "send_signal",
        "approve",
        "reject",
        "cancel",
        "rerun",
        "resume",
        "get_run",
    ],
)
def test_every_function_that_touches_the_database_has_an_async_twin(name):
    plain, twin = getattr(django_workflows, name), getattr(django_workflows, f"a{name}")

    assert twin.__name__ == f"a{name}"
    assert twin.__wrapped__ is plain
    assert {name, f"a{name}"} <= set(django_workflows.__all__)


def test_every_exception_is_a_workflow_error_and_the_suspension_a_base_exception():
    public = [getattr(django_workflows, name) for name in django_workflows.__all__]
    raised = {each for each in public if isinstance(each, type) and issubclass(each, BaseException)}

    assert {each for each in raised if not issubclass(each, django_workflows.WorkflowError)} == {
        django_workflows.WorkflowSuspended
    }
    assert not issubclass(django_workflows.WorkflowSuspended, Exception)


def test_no_module_of_the_package_would_be_taken_for_a_users_workflows():
    assert [path for path in PACKAGE.rglob("*") if path.stem == "workflows"] == []


# Both are imported before the app registry is ready, and have names that need it.
LAZY = {"api.py", "pytest_plugin.py"}


def test_only_what_is_imported_early_imports_inside_functions():
    found = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in PACKAGE.rglob("*.py")
        if path.name not in LAZY
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.startswith("    ") and "from django_workflows" in line.strip()[:21]
    ]

    assert [each for each in found if not _is_type_checking(each)] == []


def _is_type_checking(place):
    name, _, number = place.rpartition(":")
    lines = (PACKAGE / name).read_text().splitlines()[: int(number)]
    opened = next(line for line in reversed(lines) if line and not line.startswith(" "))
    return opened.startswith("if TYPE_CHECKING:")
