"""(name, version) → definition."""

import importlib
import sys

import pytest

from django_workflows import WorkflowNotRegistered, workflow
from django_workflows.definitions import define
from django_workflows.registry import Registry, registry
from testproject.shop import workflows as shop


def one(ctx): ...


def two(ctx): ...


@pytest.fixture
def own():
    return Registry()


def test_a_definition_is_found_by_name_and_version(own):
    first, second = define(one, name="t", version=1), define(two, name="t", version=2)
    own.register(second)
    own.register(first)

    assert own.get("t", "1") is first
    assert own.get("t", "2") is second
    assert own.pairs() == [("t", "1"), ("t", "2")]
    assert own.definitions() == [first, second]


@pytest.mark.parametrize(
    ("versions", "newest"),
    [
        (["9", "10"], "10"),
        (["1", "1.9", "1.10"], "1.10"),
        (["2026-02", "2026-10", "2025-12"], "2026-10"),
        (["v2", "v10"], "v10"),
        (["beta", "1"], "1"),
    ],
)
def test_without_a_version_the_newest_is_found(own, versions, newest):
    for version in versions:
        own.register(define(one, name="t", version=version))

    assert own.get("t").version == newest


def test_an_unknown_name_or_version_says_what_is_registered(own):
    with pytest.raises(WorkflowNotRegistered) as caught:
        own.get("t")
    assert str(caught.value) == (
        "No workflow named 't' is registered. Registered: none. Put it into a module called "
        "workflows.py of an installed app."
    )
    own.register(define(one, name="b"))
    own.register(define(one, name="a"))
    with pytest.raises(WorkflowNotRegistered) as caught:
        own.get("a", "7")

    assert (caught.value.name, caught.value.version) == ("a", "7")
    assert str(caught.value) == (
        "No workflow named 'a version 7' is registered. Registered: a, b. Put it into a module "
        "called workflows.py of an installed app."
    )


# https://github.com/zigflow/zigflow/issues/549
def test_two_functions_of_one_name_and_version_are_a_clash_and_the_later_one_counts(own):
    own.register(define(one, name="t"))
    own.register(define(two, name="t"))
    own.register(define(one, name="t", version="2"))

    assert own.clashes() == {("t", "1"): (f"{__name__}.one", f"{__name__}.two")}
    assert own.get("t", "1").fn is two


# https://github.com/zigflow/zigflow/issues/549
def test_a_module_imported_twice_is_no_clash():
    before = registry.pairs()
    importlib.reload(sys.modules[shop.__name__])

    assert registry.clashes() == {}
    assert registry.pairs() == before


def test_a_definition_can_be_forgotten(own):
    own.register(define(one, name="t"))
    own.register(define(two, name="t"))
    own.unregister("t", "1")
    own.unregister("t", "1")

    assert (own.pairs(), own.clashes()) == ([], {})


def test_workflows_modules_of_installed_apps_are_found_by_themselves():
    names = {name for name, _ in registry.pairs()}

    assert "tests.lab.steps" in names
    assert {name for name in names if name.startswith("testproject.shop.")}


def test_the_decorator_registers_in_the_registry_of_the_process():
    flow = workflow(name="t.registered", version="3")(one)

    assert registry.get("t.registered") is flow.definition
