"""The reference has every public name, and says what the code says."""

import ast
import dataclasses
import inspect
import re

import pytest

import django_workflows
from django_workflows import (
    RetryPolicy,
    WorkflowContext,
    WorkflowError,
    conf,
    models,
    querysets,
    testing,
    values,
)
from django_workflows.management.commands.runworkflows import Command
from tests.docs.pages import DOCS, ROOT, Page

PACKAGE = ROOT / "django_workflows"
REFERENCE = "\n".join(path.read_text() for path in sorted((DOCS / "reference").glob("*.md")))


def reference(name):
    return Page(DOCS / "reference" / f"{name}.md").text


def names_of(text, *, column=0):
    """What stands in backticks in a column of the tables of a page."""
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row[column])}


@pytest.mark.parametrize("name", sorted(django_workflows.__all__))
def test_every_public_name_is_in_the_reference(name):
    assert re.search(rf"`@?(?:Workflow\.|ctx\.)?{name}\b", REFERENCE)


@pytest.mark.parametrize("name", sorted(testing.__all__))
def test_every_test_helper_is_in_the_reference(name):
    assert f"`{name}(" in reference("testing")


def members(cls):
    return [
        name
        for name, value in vars(cls).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    ]


@pytest.mark.parametrize("name", members(WorkflowContext))
def test_every_member_of_the_context_is_in_the_reference(name):
    assert f"`ctx.{name}" in reference("context")


@pytest.mark.parametrize("name", ["wait_for_approval", "wait_for_message", "start_child"])
def test_every_argument_of_the_long_calls_is_in_the_reference(name):
    for argument in inspect.signature(getattr(WorkflowContext, name)).parameters:
        assert argument == "self" or re.search(rf"\b{argument}\b", reference("context"))


def test_the_table_of_settings_is_the_codes():
    page = reference("settings")
    told = dict(re.findall(r"^\| `([A-Z_]+)` \| `([^`]+)` \|", page, re.M))
    defaults = {
        field.name.upper(): repr(field.default).replace("'", '"')
        for field in dataclasses.fields(conf.Config)
    }

    assert told == defaults
    assert set(told) == set(conf.RULES)


def test_every_check_is_in_the_reference():
    ids = set(re.findall(r"django_workflows\.[EW]\d+", (PACKAGE / "checks.py").read_text()))

    assert names_of(reference("checks")) >= ids
    assert {name for name in names_of(reference("checks")) if name.startswith("django_w")} == ids


def test_every_command_and_its_options_are_in_the_reference():
    commands = {
        path.stem
        for path in (PACKAGE / "management" / "commands").glob("*.py")
        if path.stem != "__init__"
    }
    page = reference("commands")
    assert set(re.findall(r"^## `(\w+)`", page, re.M)) == commands

    for command in commands:
        section = page.split(f"## `{command}`")[1].split("\n## ")[0]
        source = (PACKAGE / "management" / "commands" / f"{command}.py").read_text()
        options = re.findall(r'"(--[a-z-]+)"', source)
        assert [option for option in options if f"`{option}" not in section] == []


def test_the_workers_defaults_are_those_of_the_settings():
    parser = Command().create_parser("manage.py", "runworkflows")

    assert parser.get_default("concurrency") == conf.config().concurrency
    assert parser.get_default("lease") == conf.config().lease_seconds
    assert parser.get_default("shutdown_timeout") == conf.config().shutdown_seconds


def errors():
    found = [
        getattr(django_workflows, name)
        for name in django_workflows.__all__
        if isinstance(getattr(django_workflows, name), type)
    ]
    return [cls for cls in found if issubclass(cls, WorkflowError) and cls is not WorkflowError]


@pytest.mark.parametrize("error", errors(), ids=lambda cls: cls.__name__)
def test_every_error_and_its_attributes_are_in_the_reference(error):
    [row] = re.findall(rf"^\| `{error.__name__}\b.*$", reference("errors"), re.M)
    if error.__name__ in ("RetryAfter", "DeadlineExceeded", "LeaseLost", "NonRetryableError"):
        return
    for attribute in list(inspect.signature(error.__init__).parameters)[1:]:
        if attribute not in ("args", "kwargs", "timeout"):
            assert f"`{attribute}`" in row


def emitted():
    """Event → (fields, level) of every call of `emit` in the package."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "emit"):
                continue
            event, *level = node.args
            fields, _ = found.setdefault(event.value, (set(), [*level, None][0]))
            fields.update(keyword.arg for keyword in node.keywords)
    return {
        event: (fields, "debug" if level is None else level.attr.lower())
        for event, (fields, level) in found.items()
    }


def test_the_table_of_events_is_the_codes():
    told = {}
    for line in reference("telemetry").splitlines():
        if line.startswith("| `"):
            event, fields, level, _ = [cell.strip() for cell in line.split("|")[1:-1]]
            told[event.strip("`")] = (set(re.findall(r"`(\w+)`", fields)), level)

    assert told == emitted()


@pytest.mark.parametrize(
    "cls",
    [values.Message, values.Approval, values.Page, values.SignalWithStart, RetryPolicy],
    ids=lambda cls: cls.__name__,
)
def test_every_field_of_a_value_is_in_the_reference(cls):
    page = reference("api" if cls is RetryPolicy else "values")

    for field in dataclasses.fields(cls):
        assert f"`{field.name}`" in page


PRIVATE = {
    "WorkflowRun": {
        "claim_count",
        "crashes",
        "problem_count",
        "claim_token",
        "claimed_by",
        "on_parent_close",
        "parent_told",
        "waiting_for",
    },
    "WorkflowStep": {"id", "details"},
    "WorkflowMessage": {"id", "routed", "decides"},
    "WorkflowSignal": {"id", "routed"},
    "WorkflowWorker": {"id", "version"},
}


@pytest.mark.parametrize("name", sorted(PRIVATE))
def test_every_public_field_of_a_model_is_in_the_reference(name):
    section = reference("models").split(f"## `{name}`")[1].split("\n## ")[0]
    fields = {field.name for field in getattr(models, name)._meta.fields}

    assert PRIVATE[name] <= fields
    assert {field for field in fields - PRIVATE[name] if f"`{field}`" not in section} == set()


@pytest.mark.parametrize("cls", [querysets.RunQuerySet, querysets.MessageQuerySet])
def test_every_verb_of_the_querysets_is_in_the_reference(cls):
    for name in members(cls):
        assert f"`{name}(" in reference("models")
