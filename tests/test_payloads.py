"""Values into stored text and back: types, refusals, limits, the codec, exceptions."""

from __future__ import annotations

import asyncio
import base64
import enum
import io
import json
import math
import sys
import threading
import types
from collections import Counter, OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.hashers import make_password
from django.core.exceptions import ImproperlyConfigured
from django.core.files.base import ContentFile
from django.db import models
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from django_workflows.exceptions import PayloadError
from django_workflows.payloads import (
    Encoded,
    decode,
    dump_error,
    dump_json,
    encode,
    encode_error,
    load_error,
    load_json,
    roundtrip,
)

BERLIN = ZoneInfo("Europe/Berlin")
Point = namedtuple("Point", "x y")


class Color(enum.Enum):
    RED = "r"
    CRIMSON = "r"  # noqa: PIE796
    BLUE = ("b", 1)


class Level(enum.IntEnum):
    LOW = 1


class Perm(enum.Flag):
    READ = 1
    WRITE = 2


class OpenFlag(enum.IntFlag):
    READ = 1


class Status(models.TextChoices):
    PAID = "paid", gettext_lazy("Paid")


@dataclass
class Address:
    city: str


class Customer(BaseModel):
    name: str


def same(left: Any, right: Any) -> bool:
    """Equal in value and in every type inside, with NaN equal to itself and dicts in order."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (set, frozenset)):
        return len(left) == len(right) and all(any(same(a, b) for b in right) for a in left)
    if isinstance(left, (float, Decimal, timedelta)):
        return repr(left) == repr(right)
    if isinstance(left, (datetime, time)):
        zones = str(left.tzinfo) == str(right.tzinfo) and type(left.tzinfo) is type(right.tzinfo)
        return zones and left.fold == right.fold and left.isoformat() == right.isoformat()
    return bool(left == right)


def assert_survives(value: Any) -> None:
    text = encode(value)
    assert type(text) is str
    assert text.isascii()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no strict JSON"))
    assert same(decode(text), value)
    stored, seen = roundtrip(value)
    assert stored == text
    assert same(seen, value)


def problem_of(value: Any, where: str = "data") -> str:
    with pytest.raises(PayloadError) as caught:
        encode(value, where)
    return str(caught.value)


# What survives


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1, "1"),
        ("ü", '"\\u00fc"'),
        ({}, "{}"),
        ([], "[]"),
        ({"b": 1, "a": [1e16, -0.0]}, '{"b":1,"a":[1e+16,-0.0]}'),
        (math.inf, '{"$float":"inf"}'),
        ((1, 2), '{"$tuple":[1,2]}'),
        ({1: "a"}, '{"$dict":[[1,"a"]]}'),
        ({"b", "a"}, '{"$set":["a","b"]}'),
        (frozenset({2, 10}), '{"$frozenset":[10,2]}'),
        (Decimal("9.90"), '{"$decimal":"9.90"}'),
        (UUID(int=1), '{"$uuid":"00000000-0000-0000-0000-000000000001"}'),
        (b"\x00\xff", '{"$bytes":"AP8="}'),
        (timedelta(days=-1, seconds=3), '{"$timedelta":[-1,3,0]}'),
        (date(2026, 2, 28), '{"$date":"2026-02-28"}'),
        (time(8, 30), '{"$time":"08:30:00"}'),
        (datetime(2026, 1, 2, 3, 4), '{"$datetime":"2026-01-02T03:04:00"}'),
        (
            datetime(2026, 7, 1, 12, tzinfo=BERLIN),
            '{"$datetime":"2026-07-01T12:00:00+02:00[Europe/Berlin]"}',
        ),
        (Color.RED, f'{{"$enum":["{__name__}:Color","RED"]}}'),
        (Perm.READ | Perm.WRITE, f'{{"$enum":["{__name__}:Perm",3]}}'),
        ("\ud83d\ude00", '{"$text":["\\ud83d","\\ude00"]}'),
    ],
)
def test_the_stored_text_is_readable_json_with_tags_only_where_needed(
    value: Any, text: str
) -> None:
    assert encode(value) == text
    assert_survives(value)


@pytest.mark.parametrize(
    "value",
    [
        "a\x00b",
        "😀",
        "\ud83d",
        "\ude00\ud83d",
        "x\ud83d\ude00y\ud83d\ude01",
        {"\ud83d\ude00": 1, "\x00": 2},
    ],
    ids=ascii,
)
def test_h24_nul_emoji_and_lone_surrogates_survive(value: Any) -> None:
    """https://github.com/kestra-io/kestra/pull/10653"""
    assert_survives(value)


@pytest.mark.parametrize(
    "value",
    [
        Decimal("NaN"),
        Decimal("sNaN123"),
        Decimal("-Infinity"),
        Decimal("-0"),
        Decimal("1E+400"),
        math.nan,
        -math.inf,
        5e-324,
        -(10**4000),
        Color.CRIMSON,
        Color.BLUE,
        Level.LOW,
        Perm(0),
        OpenFlag.READ,
        OpenFlag(9),
        Status.PAID,
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
        datetime(2026, 10, 25, 2, 30, fold=0, tzinfo=BERLIN),
        datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN),
        datetime(2026, 7, 1, fold=1),
        datetime.min.replace(tzinfo=BERLIN),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-23, microseconds=1))),
        time(2, 30, fold=1, tzinfo=BERLIN),
        time(2, 30, tzinfo=UTC),
        {"a": (1, [{(1, 2): {frozenset({b"x"}): {Level.LOW: None}}}])},
        {1: "a", "1": "b", 2: "c", None: "d", 1.5: "e"},
    ],
    ids=ascii,
)
def test_h25_types_that_json_lacks_come_back_the_same(value: Any) -> None:
    """https://github.com/RealOrangeOne/django-tasks/issues/118"""
    assert_survives(value)


@pytest.mark.parametrize(
    "value",
    [
        {"$tuple": [1, 2]},
        {"$dict": [["$uuid", "x"]]},
        {"$enum": ["os:system", "true"]},
        {"$": {"$float": "nan"}},
        {"$date": "2026-01-01", "and": "more"},
        [{"$unknown": {"$decimal": "1"}}],
    ],
)
def test_user_data_that_looks_like_a_tag_survives(value: Any) -> None:
    assert_survives(value)


_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, exclude_categories=()))
    | st.text("$a\ud83d\ude00\x00")
    | st.decimals()
    | st.datetimes(timezones=st.none() | st.timezones(), allow_imaginary=True)
    | st.times()
    | st.dates()
    | st.timedeltas()
    | st.uuids()
    | st.binary()
    | st.sampled_from([*Color, *Level, *Perm, Perm(3), *Status])
)
_hashable = st.recursive(
    _scalars.filter(lambda value: not (isinstance(value, Decimal) and value.is_snan())),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
_payloads = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.sets(_hashable, max_size=3)
        | st.dictionaries(_hashable, inner, max_size=3)
        | st.dictionaries(st.text("$ab", max_size=2), inner, max_size=2)
    ),
    max_leaves=12,
)


@given(_payloads)
def test_any_payload_comes_back_with_the_same_value_and_types(value: Any) -> None:
    assert_survives(value)


@given(st.sets(st.text() | st.integers() | st.binary()))
def test_equal_sets_make_equal_text(value: set[Any]) -> None:
    again: set[Any] = set()
    for item in sorted(value, key=repr):
        again.add(item)
    assert encode(value) == encode(again)


def test_h18_what_the_first_pass_sees_is_no_alias_of_what_was_given() -> None:
    """https://github.com/aws/aws-durable-execution-sdk-python/issues/407"""
    given_value = {"items": [{"n": (1, 2)}], 1: "a"}
    _, seen = roundtrip(given_value)
    assert same(seen, given_value)
    given_value["items"][0]["n"] = "changed"
    assert seen == {"items": [{"n": (1, 2)}], 1: "a"}


def test_a_zone_whose_rules_have_changed_keeps_the_instant() -> None:
    read = decode('{"$datetime":"2026-07-01T12:00:00+05:00[Europe/Berlin]"}')
    assert read.isoformat() == "2026-07-01T09:00:00+02:00"
    assert read.tzinfo is BERLIN


# What is refused


def _generator() -> Iterator[int]:
    yield 1


async def _coroutine() -> int:
    return 1


class Order(models.Model):
    class Meta:
        app_label = "payload_tests"

    def __str__(self) -> str:
        return "an order"


class Text(str):
    pass


PLAIN = "None, bool, int, float, str, list, dict, or a type of reference/payloads"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Order(pk=1), "an Order instance can't be stored; pass its pk"),
        (
            lambda: SimpleLazyObject(lambda: Order(pk=1)),
            "a SimpleLazyObject instance can't be stored; pass its pk",
        ),
        (
            lambda: Order._default_manager.all(),
            "a QuerySet instance can't be stored; "
            'pass a list of pks: list(queryset.values_list("pk", flat=True))',
        ),
        (lambda: gettext_lazy("Paid"), "a lazy text can't be stored; pass str(value)"),
        (
            lambda: mark_safe("<b>"),
            'a SafeString instance can\'t be stored; pass value + "", which is a plain str',
        ),
        (lambda: Text("a"), "a Text instance can't be stored; pass str(value)"),
        (lambda: Encoded("1"), "an Encoded instance can't be stored; pass str(value)"),
        (lambda: OrderedDict(a=1), "an OrderedDict instance can't be stored; pass dict(value)"),
        (lambda: defaultdict(int), "a defaultdict instance can't be stored; pass dict(value)"),
        (lambda: Counter("a"), "a Counter instance can't be stored; pass dict(value)"),
        (
            lambda: Point(1, 2),
            "a Point instance can't be stored; pass tuple(value) or value._asdict()",
        ),
        (
            lambda: Address("Bonn"),
            "an Address instance can't be stored; "
            "pass dataclasses.asdict(value), and read it back with schema=Address",
        ),
        (
            lambda: Customer(name="Ada"),
            "a Customer instance can't be stored; "
            "pass value.model_dump(), and read it back with schema=Customer",
        ),
        (
            lambda: io.BytesIO(b"x"),
            "a BytesIO instance can't be stored; store the file and pass its name",
        ),
        (
            lambda: ContentFile(b"x"),
            "a ContentFile instance can't be stored; store the file and pass its name",
        ),
        (lambda: bytearray(b"x"), "a bytearray instance can't be stored; pass bytes(value)"),
        (lambda: range(3), "a range instance can't be stored; pass list(value)"),
        (lambda: {}.keys(), "a dict_keys instance can't be stored; pass list(value)"),
        (
            lambda: iter([1]),
            "a list_iterator instance can't be stored; "
            "return a plain value, for instance list(value)",
        ),
        (lambda: ValueError("x"), "a ValueError instance can't be stored; pass str(value)"),
        (lambda: Order, "a ModelBase instance can't be stored; pass its dotted path as a str"),
        (
            lambda: make_password,
            "a function instance can't be stored; pass its dotted path as a str",
        ),
        (
            lambda: Fraction(1, 2),
            f"a Fraction instance can't be stored; pass a plain value: {PLAIN}",
        ),
    ],
)
def test_h25_what_cant_be_stored_is_refused_with_its_place_and_a_remedy(
    make: Callable[[], Any], problem: str
) -> None:
    """https://github.com/django/django-rest-framework/issues/747"""
    assert problem_of({"amount": make()}) == f"data.amount: {problem}"


@pytest.mark.parametrize(
    "value", [mark_safe("<b>") + "", str(gettext_lazy("Paid")), str(Text("a"))]
)
def test_the_remedies_for_text_give_plain_str(value: str) -> None:
    assert_survives(value)


def test_h22_a_coroutine_is_refused_and_closed_so_that_nothing_warns() -> None:
    """https://github.com/Azure/azure-functions-durable-python/issues/471"""
    coroutine = _coroutine()
    assert problem_of([coroutine]) == (
        "data[0]: a coroutine can't be stored; "
        "return a plain value; a coroutine is the call of an async function"
    )
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        asyncio.run(_await(coroutine))


async def _await(coroutine: Any) -> Any:
    return await coroutine


def test_h22_a_generator_is_refused() -> None:
    """https://github.com/Azure/azure-functions-durable-python/issues/471"""
    assert problem_of(_generator(), "result") == (
        "result: a generator instance can't be stored; "
        "return a plain value, for instance list(value)"
    )


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"items": [0, {"price": 1j}]}, "data.items[1].price"),
        ({"odd key": 1j}, 'data["odd key"]'),
        ({"é\n": 1j}, 'data["\\u00e9\\n"]'),
        ({1: 1j}, "data[1]"),
        ({(1, 2): 1j}, "data[…]"),
        ({1j: 1}, "data.keys()[0]"),
        ({1j}, "data[*]"),
        ({"k" * 70: 1j}, f'data["{"k" * 60}..."]'),
        ([[[[[[[[[[[[[1j]]]]]]]]]]]]], "data" + "[0]" * 11 + "…"),
    ],
)
def test_the_path_names_the_place_in_the_value(value: Any, path: str) -> None:
    problem = problem_of(value)
    assert problem == f"{path}: a complex instance can't be stored; pass a plain value: {PLAIN}"


def test_h25_a_list_that_holds_itself_or_is_nested_too_deep_is_refused() -> None:
    """https://github.com/RealOrangeOne/django-tasks/issues/23"""
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: Any = "end"
    for _ in range(5000):
        deep = [deep]
    told = "nested more than 256 levels deep, or it holds itself; flatten it, or keep it in a model"
    for value in (cycle, deep):
        assert problem_of(value) == f"data{'[0]' * 11}…: {told} and pass its pk"


@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: {"k": v}, lambda v: (v,), lambda v: {1: v}]
)
def test_256_levels_survive_and_257_are_refused(wrap: Callable[[Any], Any]) -> None:
    value: Any = "end"
    for _ in range(256):
        value = wrap(value)
    text = encode(value)
    # In a thread of its own, whose stack pytest hasn't filled yet.
    outcome: list[Any] = []
    thread = threading.Thread(target=lambda: outcome.append(encode(decode(text)) == text))
    thread.start()
    thread.join()
    assert outcome == [True]
    assert "nested more than 256 levels deep" in problem_of(wrap(value))


def test_no_recursion_limit_left_is_a_payload_error() -> None:
    value: Any = (1,)
    for _ in range(200):
        value = (value,)

    def dig(levels: int) -> str:
        return problem_of(value) if levels == 0 else dig(levels - 1)

    free = sys.getrecursionlimit() - len(list(_frames()))
    assert dig(free - 150) == (
        "data: nested too deep for the recursion limit that is left here; flatten it"
    )


def _frames() -> Iterator[types.FrameType]:
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def test_an_int_with_more_digits_than_python_writes_is_refused() -> None:
    limit = sys.get_int_max_str_digits()
    assert problem_of({"n": 10**limit}) == (
        f"data.n: an int of more than {limit:,} digits can't be stored; pass hex(value)"
    )


class OtherZone(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(0)


def test_a_time_zone_of_another_class_is_refused() -> None:
    assert problem_of({"at": datetime(2026, 1, 1, tzinfo=OtherZone())}) == (
        "data.at: a time zone of type OtherZone can't be stored; use zoneinfo.ZoneInfo with a key "
        "or datetime.timezone, for instance value.astimezone(datetime.timezone.utc)"
    )


def test_an_enum_that_a_worker_cant_import_is_refused() -> None:
    local = enum.Enum("local", "A", module=__name__, qualname="make.<locals>.local")
    assert problem_of(local.A) == (
        f"data: the Enum class {__name__}:make.<locals>.local can't be imported by that name in a "
        "worker; define it at the top level of a module"
    )
    shell = enum.Enum("shell", "A", module="__main__")
    assert "the Enum class __main__:shell can't be imported" in problem_of(shell.A)


# What can't be read


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (f'["{__name__}:Color","GREEN"]', f"the Enum member 'GREEN' of {__name__}:Color is gone"),
        (f'["{__name__}:Gone","A"]', f"the Enum member 'A' of {__name__}:Gone is gone"),
        ('["no_such_module:A","A"]', "the Enum member 'A' of no_such_module:A is gone"),
        (f'["{__name__}:Color",1]', f"{__name__}:Color is no Flag class"),
        ('["os:system","true"]', "os:system is no Enum class"),
    ],
)
def test_an_enum_member_that_is_gone_is_named(body: str, problem: str) -> None:
    with pytest.raises(PayloadError) as caught:
        decode(f'{{"$enum":{body}}}')
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "the stored text can't be read: JSONDecodeError"),
        ('{"$decimal":"x"}', "the stored text can't be read: InvalidOperation"),
        ('{"$datetime":"2026-01-01T00:00:00+00:00[No/Zone]"}', "ZoneInfoNotFoundError"),
        ('{"$later":1}', "unknown tag '$later'; it takes a newer django_workflows"),
    ],
)
def test_text_that_cant_be_read_is_a_payload_error(text: str, problem: str) -> None:
    with pytest.raises(PayloadError) as caught:
        decode(text)
    assert problem in str(caught.value)


# Size and codec


def test_h27_too_much_data_is_refused_at_the_call(settings: Any) -> None:
    """https://github.com/n8n-io/n8n/pull/32508"""
    settings.DJANGO_WORKFLOWS = {"MAX_PAYLOAD_BYTES": 1000}
    encode("x" * 998)
    assert problem_of("x" * 1234, "input") == (
        "input: 1,236 bytes as JSON; at most MAX_PAYLOAD_BYTES (1,000) can be stored; "
        "keep the data in a model or a file and pass its id, or raise the setting"
    )


class Base64Codec:
    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    def encode(self, text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    def decode(self, text: str) -> str:
        return base64.b64decode(text).decode()


class BytesCodec(Base64Codec):
    def encode(self, text: str) -> Any:
        return text.encode()


class HalfCodec:
    def encode(self, text: str) -> str:
        return text


def use_codec(settings: Any, name: str, **more: Any) -> None:
    settings.DJANGO_WORKFLOWS = {"CODEC": f"{__name__}.{name}", **more}


def test_the_codec_wraps_payloads_and_errors_and_is_made_once(settings: Any) -> None:
    use_codec(settings, "Base64Codec", MAX_PAYLOAD_BYTES=10)
    Base64Codec.made = 0
    assert encode("12345678") == base64.b64encode(b'"12345678"').decode()
    assert roundtrip([1]) == (encode([1]), [1])
    assert decode(encode([1])) == [1]
    error = encode_error(ValueError("secret"))
    assert "secret" not in dump_error(error)
    assert load_error(dump_error(error)) == error
    assert dump_json([1]) == "[1]"
    assert Base64Codec.made == 1
    settings.DJANGO_WORKFLOWS = {}
    assert encode([1]) == "[1]"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "NoCodec",
            "can't be imported and called without arguments: ImportError: "
            f'Module "{__name__}" does not define a "NoCodec" attribute/class',
        ),
        ("HalfCodec", "lacks encode(str) -> str or decode(str) -> str."),
    ],
)
def test_a_codec_that_cant_be_used_is_improperly_configured(
    settings: Any, name: str, problem: str
) -> None:
    use_codec(settings, name)
    with pytest.raises(ImproperlyConfigured) as caught:
        encode(1)
    assert str(caught.value) == (
        f"DJANGO_WORKFLOWS['CODEC'] is '{__name__}.{name}', which {problem}"
    )


def test_a_codec_that_returns_bytes_is_improperly_configured(settings: Any) -> None:
    use_codec(settings, "BytesCodec")
    with pytest.raises(ImproperlyConfigured) as caught:
        encode(1)
    assert str(caught.value) == (
        f"DJANGO_WORKFLOWS['CODEC'] is '{__name__}.BytesCodec', whose encode() returned bytes. "
        "It must return str; for bytes use base64."
    )


# Exceptions


class Needy(Exception):
    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(code)
        self.why = why


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def caught_from(make: Callable[[], BaseException]) -> BaseException:
    try:
        raise make()
    except BaseException as exc:
        return exc


def test_h26_an_exception_with_its_own_signature_is_kept_as_text() -> None:
    """https://github.com/dbos-inc/dbos-transact-py/issues/371"""
    error = encode_error(caught_from(lambda: Needy(7, why="late")))
    assert (error["type"], error["message"]) == ("Needy", "7")
    assert error["traceback"].startswith("Traceback (most recent call last):\n")
    assert error["traceback"].endswith("Needy: 7\n")
    assert load_error(dump_error(error)) == error


def test_h26_an_exception_whose_str_raises_is_kept() -> None:
    """https://github.com/dbos-inc/dbos-transact-py/issues/371"""
    error = encode_error(caught_from(Mute))
    assert error["type"] == "Mute"
    assert error["message"] == "<Mute.__str__ raised RuntimeError>"
    assert "Mute: <exception str() failed>" in error["traceback"]


def test_h26_a_huge_message_is_cut_and_leaves_the_frames_readable() -> None:
    """https://github.com/dbos-inc/dbos-transact-py/issues/371"""
    error = encode_error(caught_from(lambda: ValueError("m" * 1_000_000)))
    assert error["message"] == "m" * 10_000 + "… (cut; 1,000,000 characters in all)"
    assert "in caught_from" in error["traceback"]
    assert len(error["traceback"]) < 5_000


def test_a_long_traceback_keeps_its_end() -> None:
    exc = caught_from(lambda: ValueError("the last"))
    for number in range(400):
        exc.add_note(f"note {number} " + "n" * 1000)
    traceback = encode_error(exc)["traceback"]
    assert traceback.startswith("(the last 50,000 of ")
    assert traceback.rstrip().endswith("n" * 1000)
    assert len(traceback) < 50_100


def test_h24_bad_characters_of_an_exception_are_replaced() -> None:
    """https://github.com/osbuild/osbuild-composer/pull/4779"""
    error = encode_error(caught_from(lambda: ValueError("a\x00b\ud83d😀")))
    assert error["message"] == "a\ufffdb\ufffd😀"
    assert "\x00" not in error["traceback"]
    assert "\ud83d" not in error["traceback"]


def test_json_of_our_own_has_no_tags() -> None:
    assert dump_json({"a": [1, "ü"]}) == '{"a":[1,"\\u00fc"]}'
    assert load_json('{"$tuple":[1]}') == {"$tuple": [1]}
