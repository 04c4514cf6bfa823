"""What can be declared, and what is refused with which words."""

import functools
from datetime import timedelta

import pytest

from django_workflows import NonRetryableError, RetryPolicy, step
from django_workflows.definitions import (
    DEFAULT_OPTIONS,
    StepOptions,
    as_seconds,
    check_message_name,
    check_name,
    check_version,
    default_name,
    define,
    options_of,
)


class Text(str):
    """A str whose equality is its own, as SafeString's hash may be."""

    def __eq__(self, other):
        return False

    __hash__ = str.__hash__


@pytest.mark.parametrize("name", ["a", "a b", "é:/$", "x" * 200, "\U0001f680"])
def test_a_name_is_any_text_of_a_length_that_can_be_stored(name):
    assert check_name(name, "A name") == name


def test_a_name_is_taken_as_plain_text():
    assert type(check_name(Text("go"), "A name")) is str


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("", ValueError, "A name must not be empty."),
        (" \t\n", ValueError, "A name must not be empty."),
        (None, TypeError, "A name must be a str, not NoneType."),
        (b"go", TypeError, "A name must be a str, not bytes."),
        ("x" * 201, ValueError, "A name must have at most 200 characters; this has 201."),
        ("a\x00", ValueError, "A name must not contain NUL or lone surrogates: 'a\\x00'."),
        ("\ud800", ValueError, "A name must not contain NUL or lone surrogates: '\\ud800'."),
    ],
)
def test_other_names_are_refused(name, error, text):
    with pytest.raises(error) as caught:
        check_name(name, "A name")

    assert str(caught.value) == text


def test_message_names_of_the_package_itself_are_refused():
    with pytest.raises(ValueError, match=r"^Message names that begin with '\$' are reserved"):
        check_message_name("$approval:manager")

    assert check_message_name("go$") == "go$"


@pytest.mark.parametrize(
    ("value", "seconds"), [(timedelta(minutes=1), 60.0), (5, 5.0), (0.5, 0.5), (0, 0.0)]
)
def test_a_duration_is_a_timedelta_or_seconds(value, seconds):
    assert as_seconds(value, "It") == seconds


@pytest.mark.parametrize(
    ("version", "text"), [(1, "1"), (12, "12"), ("2026-01", "2026-01"), ("v2", "v2")]
)
def test_a_version_is_text_or_a_number_taken_as_its_digits(version, text):
    assert check_version(version) == text


@pytest.mark.parametrize(
    ("version", "error"), [("", ValueError), (None, TypeError), (1.5, TypeError)]
)
def test_other_versions_are_refused(version, error):
    with pytest.raises(error, match=r"^A workflow's version must "):
        check_version(version)


def test_the_default_name_is_the_package_that_holds_workflows_and_the_function():
    def fulfil(ctx): ...

    for module, name in [
        ("shop.workflows", "shop.fulfil"),
        ("project.shop.workflows", "project.shop.fulfil"),
        ("shop.workflows.orders", "shop.fulfil"),
        ("shop.flows", "shop.flows.fulfil"),
        ("workflows_of.shop", "workflows_of.shop.fulfil"),
    ]:
        fulfil.__module__ = module
        assert default_name(fulfil) == name


class Orders:
    def fulfil(self, ctx, order_id): ...


def test_a_methods_default_name_is_its_class_and_itself():
    class Local:
        def fulfil(self, ctx): ...

    assert default_name(Orders.fulfil) == "Orders.fulfil"
    assert default_name(Local.fulfil) == "Local.fulfil"
    assert define(Orders.fulfil).is_method
    assert not define(lambda ctx: None).is_method


async def async_function(ctx): ...


async def async_generator(ctx):
    yield


class AsyncCall:
    async def __call__(self, ctx): ...


# https://github.com/Azure/azure-functions-durable-python/issues/471
@pytest.mark.parametrize(
    "fn", [async_function, async_generator, functools.partial(async_function), AsyncCall()]
)
def test_an_async_function_is_refused_as_workflow_and_as_step(fn):
    with pytest.raises(TypeError, match=r"^Workflow .* is async; write it as a plain def\. "):
        define(fn)
    with pytest.raises(TypeError, match=r"^Step .* is async; write it as a plain def\. "):
        step(fn)


def no_parameters(): ...


def keyword_only(*, ctx): ...


def only_keywords(**ctx): ...


@pytest.mark.parametrize("fn", [no_parameters, keyword_only, only_keywords])
def test_a_workflow_must_take_the_context_first(fn):
    with pytest.raises(TypeError) as caught:
        define(fn)

    assert str(caught.value) == (
        f"Workflow {fn.__name__!r} must take the context as its first parameter: "
        f"def {fn.__name__}(ctx, …)."
    )


def positional(ctx, order_id, /): ...


def starred(ctx, *order_id): ...


@pytest.mark.parametrize("fn", [positional, starred])
def test_input_that_cannot_be_given_by_name_is_refused(fn):
    with pytest.raises(TypeError) as caught:
        define(fn)

    assert str(caught.value) == (
        f"Parameter 'order_id' of workflow {fn.__name__!r} can't be given by name; input is "
        "stored by name, so use ordinary or keyword-only parameters."
    )


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"name": ""}, ValueError, "A workflow's name must not be empty."),
        ({"queue_name": ""}, ValueError, "A queue's name must not be empty."),
        (
            {"queue_name": "q" * 101},
            ValueError,
            "A queue's name must have at most 100 characters; this has 101.",
        ),
        ({"retry": 3}, TypeError, "workflow(retry=) needs a RetryPolicy, not int."),
        ({"timeout": 0}, ValueError, "A workflow's timeout must be more than zero."),
        ({"timeout": -1}, ValueError, "A workflow's timeout must be zero or more, got -1."),
        (
            {"timeout": "1"},
            TypeError,
            "A workflow's timeout must be a timedelta or a number of seconds, not str.",
        ),
    ],
)
def test_bad_options_of_a_workflow_are_refused(options, error, text):
    with pytest.raises(error) as caught:
        define(lambda ctx: None, **options)

    assert str(caught.value) == text


def test_a_workflow_has_one_attempt_the_default_queue_and_no_timeout_unless_told():
    plain = define(lambda ctx: None)
    told = define(
        lambda ctx: None, queue_name="slow", retry=RetryPolicy(), timeout=timedelta(hours=1)
    )

    assert (plain.version, plain.queue_name, plain.timeout) == ("1", "default", None)
    assert plain.retry.max_attempts == 1
    assert (told.queue_name, told.timeout, told.retry) == ("slow", 3600.0, RetryPolicy())


def bindable(ctx, order_id, note="none", *, fast=False, **extra): ...


@pytest.mark.parametrize(
    ("args", "kwargs", "given"),
    [
        ((7,), {}, {"order_id": 7}),
        ((), {"order_id": 7, "fast": True}, {"order_id": 7, "fast": True}),
        ((7, "n"), {"a": 1, "extra": 2}, {"order_id": 7, "note": "n", "a": 1, "extra": 2}),
    ],
)
def test_input_is_bound_by_name_as_given(args, kwargs, given):
    assert define(bindable, name="t").bind(args, kwargs) == given


def strict(ctx, order_id, note="none"): ...


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((), {}, "missing a required argument: 'order_id'"),
        ((7, "n", 8), {}, "too many positional arguments"),
        ((7,), {"colour": 1}, "got an unexpected keyword argument 'colour'"),
        ((7,), {"ctx": 1}, "multiple values for argument 'ctx'"),
    ],
)
def test_input_that_does_not_fit_the_signature_is_a_type_error_naming_the_workflow(
    args, kwargs, why
):
    with pytest.raises(TypeError) as caught:
        define(strict, name="shop.strict").bind(args, kwargs)

    assert str(caught.value) == f"Input of workflow 'shop.strict': {why}."


def test_the_context_is_not_part_of_the_input_of_a_method_either():
    assert define(Orders.fulfil).bind((7,), {}) == {"order_id": 7}


def test_step_as_a_decorator_and_as_a_wrapper_attaches_options_and_leaves_the_callable():
    policy = RetryPolicy(max_attempts=2)

    def plain(a, b=2):
        """Add."""
        return a + b

    @step(retry=policy, timeout=timedelta(seconds=3), at_most_once=True, name="add")
    def decorated(a, b=2):
        return a + b

    wrapped = step(plain, atomic=True)
    bare = step(plain)

    assert options_of(decorated) == StepOptions(policy, 3.0, False, True, "add")
    assert options_of(wrapped) == StepOptions(atomic=True)
    assert options_of(bare) == options_of(plain) == DEFAULT_OPTIONS
    assert (decorated(1), wrapped(1, b=3), bare(1)) == (3, 4, 3)
    assert (wrapped.__name__, wrapped.__doc__) == ("plain", "Add.")


def test_the_outer_options_of_a_step_that_is_wrapped_again_hold():
    inner = step(lambda: 1, at_most_once=True)

    assert options_of(step(inner, atomic=True)) == StepOptions(atomic=True)
    assert options_of(inner) == StepOptions(at_most_once=True)


def test_options_of_anything_else_are_the_defaults():
    assert options_of(int) == options_of(NonRetryableError) == DEFAULT_OPTIONS
    assert DEFAULT_OPTIONS.retry == RetryPolicy(max_attempts=10)


@pytest.mark.parametrize(
    ("fn", "options", "error", "text"),
    [
        (5, {}, TypeError, "step() needs a callable, not int."),
        (int, {"retry": 3}, TypeError, "step(retry=) needs a RetryPolicy, not int."),
        (int, {"timeout": 0}, ValueError, "A step's timeout must be more than zero."),
        (int, {"name": ""}, ValueError, "A step's name must not be empty."),
        (
            int,
            {"atomic": True, "at_most_once": True},
            ValueError,
            "A step can't be both atomic and at_most_once: an atomic step's crash leaves nothing "
            "behind, so it is safe to call again.",
        ),
    ],
)
def test_bad_options_of_a_step_are_refused(fn, options, error, text):
    with pytest.raises(error) as caught:
        step(fn, **options)

    assert str(caught.value) == text
