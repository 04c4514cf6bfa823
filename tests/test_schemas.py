"""`schema=` of every kind, with pydantic and without."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict, TypeVar
from uuid import UUID

import pytest
from django import forms
from django.db import models
from pydantic import BaseModel, ValidationError

from django_workflows.schemas import _resolve_class, form_class, resolve_schema, schema_name


@pytest.fixture
def no_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that pydantic isn't installed in."""
    monkeypatch.setitem(sys.modules, "pydantic", None)
    _resolve_class.cache_clear()


@pytest.fixture(params=["with pydantic", "without pydantic"])
def either_way(request: pytest.FixtureRequest) -> None:
    _resolve_class.cache_clear()
    if request.param == "without pydantic":
        request.getfixturevalue("no_pydantic")


@pytest.fixture(autouse=True)
def _forget_resolved_classes() -> Any:
    yield
    _resolve_class.cache_clear()


class Color(enum.Enum):
    RED = "r"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Item:
    sku: str
    price: Decimal
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Order:
    id: UUID
    items: list[Item]
    placed_at: datetime
    due: date | None = None
    color: Color = Color.RED
    kind: Literal["new", 2] = "new"
    extra: dict[str, float] = field(default_factory=dict)
    pair: tuple[int, str] = (0, "")
    total: int = field(init=False, default=0)


@dataclass
class Node:
    name: str
    children: list[Node] = field(default_factory=list)
    parent: Optional[Node] = None  # noqa: UP045


@dataclass
class Positive:
    amount: int

    def __post_init__(self) -> None:
        if self.amount <= 0:
            raise ValueError("amount must be positive")


class Decision(TypedDict):
    approved: bool
    comment: NotRequired[str]


class Line(TypedDict, total=False):
    amount: int


class Customer(BaseModel):
    name: str
    age: int


class Choice(forms.Form):
    amount = forms.DecimalField(max_digits=5, decimal_places=2)
    colors = forms.MultipleChoiceField(choices=[("r", "Red"), ("b", "Blue")], required=False)
    more = forms.JSONField(required=False)
    agreed = forms.BooleanField(required=False)

    def clean(self) -> None:
        if self.cleaned_data.get("amount") == Decimal("13"):
            raise forms.ValidationError("Not on a Friday.")


ORDER = {
    "id": "00000000-0000-0000-0000-000000000001",
    "items": [{"sku": "a", "price": "9.90"}, {"sku": "b", "price": Decimal("1"), "tags": ["x"]}],
    "placed_at": "2026-01-02T03:04:05+00:00",
    "color": "r",
    "kind": 2,
    "extra": {"weight": 1},
    "pair": [1, "a"],
}


def error_of(schema: Any, data: Any) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        resolve_schema(schema)(data)
    return str(caught.value)


def test_no_schema_leaves_the_data_alone() -> None:
    data = {"a": [1]}
    assert resolve_schema(None)(data) is data


# Types, read by pydantic or by the converter of our own


@pytest.mark.usefixtures("either_way")
def test_a_dataclass_is_built_with_all_that_it_nests() -> None:
    order = resolve_schema(Order)(ORDER)
    assert order == Order(
        id=UUID(int=1),
        items=[Item("a", Decimal("9.90")), Item("b", Decimal("1"), ["x"])],
        placed_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        kind=2,
        extra={"weight": 1.0},
        pair=(1, "a"),
    )
    assert type(order.extra["weight"]) is float


@pytest.mark.usefixtures("either_way")
def test_a_dataclass_may_hold_itself() -> None:
    read = resolve_schema(Node)
    assert read({"name": "a", "children": [{"name": "b"}], "parent": None}) == Node(
        "a", [Node("b")]
    )


@pytest.mark.usefixtures("either_way")
def test_a_typed_dict_is_read_as_a_dict() -> None:
    read = resolve_schema(Decision)
    assert read({"approved": True}) == {"approved": True}
    assert read({"approved": False, "comment": "no"}) == {"approved": False, "comment": "no"}
    assert resolve_schema(Line)({}) == {}
    assert "comment" in error_of(Decision, {"approved": True, "comment": 1})


UserId = NewType("UserId", int)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        (int, 5, 5),
        (float, 5, 5.0),
        (str, "a", "a"),
        (bool, True, True),
        (bytes, b"a", b"a"),
        (Decimal, "1.50", Decimal("1.50")),
        (Decimal, 1.5, Decimal("1.5")),
        (UUID, "00000000-0000-0000-0000-000000000001", UUID(int=1)),
        (date, "2026-01-02", date(2026, 1, 2)),
        (time, "03:04", time(3, 4)),
        (timedelta, timedelta(1), timedelta(1)),
        (Color, "r", Color.RED),
        (Color, Color.RED, Color.RED),
        (list, [1, "a"], [1, "a"]),
        (list[int], [1], [1]),
        (Sequence[int], [1], [1]),
        (set[int], [1, 1], {1}),
        (frozenset[str], ["a"], frozenset({"a"})),
        (tuple[int, ...], [1, 2], (1, 2)),
        (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
        (Mapping[str, int], {"a": 1}, {"a": 1}),
        (int | None, None, None),
        (Decimal | str, "12", "12"),
        (Annotated[int, "years"], 5, 5),
        (Literal["a", 1], 1, 1),
        (UserId, 5, 5),
        (Any, {"a": 1}, {"a": 1}),
    ],
)
def test_plain_types_are_read(schema: Any, data: Any, value: Any) -> None:
    read = resolve_schema(schema)(data)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (int, "abc"),
        (int, None),
        (int, 1.5),
        (str, 1),
        (UUID, "x"),
        (Decimal, "x"),
        (datetime, "yesterday"),
        (Color, "g"),
        (list[int], {"a": 1}),
        (list[int], ["x"]),
        (tuple[int, str], [1]),
        (set[Any], [[]]),
        (int | None, "x"),
        (int | bool, "x"),
        (Literal["a", 1], "b"),
        (dict[str, int], []),
        (Decision, {}),
        (Order, {}),
        (Order, "x"),
    ],
)
def test_data_that_doesnt_fit_is_a_value_error(schema: Any, data: Any) -> None:
    assert error_of(schema, data)


@pytest.mark.usefixtures("no_pydantic")
@pytest.mark.parametrize(
    ("schema", "data", "text"),
    [
        (int, "5", "data: needs int, got str"),
        (int, True, "data: needs int, got bool"),
        (date, datetime(2026, 1, 1), "data: needs date or its text, got datetime"),
        (UUID, "x", "data: this text is no UUID"),
        (float, 10**400, "data: this int is too large for a float"),
        (Order, [], "data: needs a dict for Order, got list"),
        (
            Order,
            {**ORDER, "total": 5},
            "data.total: unknown key; known: id, items, placed_at, due, color, kind, extra, pair",
        ),
        (Order, {"id": ORDER["id"]}, "data.items: missing"),
        (
            Order,
            {**ORDER, "items": [{"sku": "a", "price": "x"}]},
            "data.items[0].price: this text is no Decimal",
        ),
        (Order, {**ORDER, "color": "g"}, "data.color: needs one of 'r'"),
        (Order, {**ORDER, "kind": True}, "data.kind: needs one of 'new', 2"),
        (Order, {**ORDER, "due": 5}, "data.due: needs date or its text, got int"),
        (Order, {**ORDER, "pair": [1]}, "data.pair: needs 2 items, got 1"),
        (dict[str, float], {"odd key": "x"}, 'data["odd key"]: needs float, got str'),
        (Positive, {"amount": -1}, "data: amount must be positive"),
        (Level, True, "data: needs one of 1"),
        (Decision, {"approved": True, "by": 1}, "data.by: unknown key; known: approved, comment"),
        (list[int | str], [None], "data[0]: needs int | str, got NoneType"),
    ],
)
def test_without_pydantic_errors_name_the_place(schema: Any, data: Any, text: str) -> None:
    assert error_of(schema, data) == text


def test_a_pydantic_model_is_validated_in_lax_mode() -> None:
    assert resolve_schema(Customer)({"name": "Ada", "age": "36"}) == Customer(name="Ada", age=36)
    with pytest.raises(ValidationError):
        resolve_schema(Customer)({"name": "Ada"})
    assert resolve_schema(int)("5") == 5


# Forms


def test_a_form_gives_its_cleaned_data() -> None:
    data = {"amount": Decimal("9.90"), "colors": ["r", "b"], "more": [1, 2], "agreed": True}
    assert resolve_schema(Choice)(data) == data
    assert resolve_schema(Choice)({"amount": 1}) == {
        "amount": Decimal("1"),
        "colors": [],
        "more": None,
        "agreed": False,
    }


def test_a_form_tells_all_of_its_errors() -> None:
    assert error_of(Choice, {"colors": ["x"]}) == (
        "data.amount: This field is required.; "
        "data.colors: Select a valid choice. x is not one of the available choices."
    )
    assert error_of(Choice, {"amount": 13}) == "data: Not on a Friday."
    assert error_of(Choice, ["x"]) == "data: Choice takes a dict, not list"


def test_form_class_tells_forms_from_the_rest() -> None:
    assert form_class(Choice) is Choice
    assert form_class(Order) is None
    assert form_class(None) is None


# Callables, and what is no schema


def double(data: int) -> int:
    return data * 2


class Doubler:
    def __call__(self, data: int) -> int:
        return data * 2

    def method(self, data: int) -> int:
        return data * 2


class Money:
    def __init__(self, data: dict[str, Any]) -> None:
        self.amount = data["amount"]


@pytest.mark.parametrize(
    "schema", [double, lambda data: data * 2, partial(double), Doubler(), Doubler().method]
)
def test_a_callable_is_called_with_the_data(schema: Callable[[int], int]) -> None:
    assert resolve_schema(schema)(4) == 8


@pytest.mark.usefixtures("either_way")
def test_a_class_of_ones_own_is_called_with_the_data() -> None:
    assert resolve_schema(Money)({"amount": 5}).amount == 5


async def later(data: Any) -> Any:
    return data


class Product(models.Model):
    class Meta:
        app_label = "schema_tests"

    def __str__(self) -> str:
        return "a product"


class Serializer:
    def __init__(self, instance: Any) -> None: ...

    def is_valid(self) -> bool:
        return True


ALLOWED = (
    "a dataclass, a TypedDict, a pydantic model, a type that pydantic's TypeAdapter takes, "
    "a Django Form class, or a callable data -> value"
)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("schema", ["int", 5, {"a": int}, TypeVar("T"), Optional])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(TypeError) as caught:
        resolve_schema(schema)
    assert str(caught.value) == f"schema must be {ALLOWED}, not {schema!r}."


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("schema", [Product, Serializer])
def test_a_class_that_validates_nothing_when_called_is_refused(schema: Any) -> None:
    with pytest.raises(TypeError) as caught:
        resolve_schema(schema)
    assert str(caught.value) == (
        f"schema can't be {schema.__name__}, as calling it validates nothing; "
        f"wrap it in a function. Allowed: {ALLOWED}."
    )


def test_an_async_function_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^schema later is async; it must be a plain function\.$"):
        resolve_schema(later)


@dataclass
class Sale:
    product: Product
    bonus: InitVar[int] = 0


@pytest.mark.usefixtures("either_way")
def test_a_dataclass_with_a_field_that_no_data_fits_is_refused() -> None:
    with pytest.raises(TypeError) as caught:
        resolve_schema(Sale)
    assert str(caught.value) == (
        f"schema holds {Product!r}, a type that can't be read from data; "
        "use a plain type there, or a callable data -> value as the schema"
    )


@pytest.mark.usefixtures("either_way")
def test_an_annotation_that_cant_be_resolved_is_refused() -> None:
    class Local: ...

    @dataclass
    class Hidden:
        local: Local

    with pytest.raises(TypeError, match="has an annotation that can't be resolved"):
        resolve_schema(Hidden)


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        (None, ""),
        (Order, "Order"),
        (Choice, "Choice"),
        (double, "double"),
        (partial(double), "double"),
        (Doubler(), "Doubler"),
        (list[int], "list[int]"),
        (Optional[int], "Optional[int]"),  # noqa: UP045
        (UserId, "UserId"),
    ],
)
def test_a_schema_has_a_name_to_show(schema: Any, name: str) -> None:
    assert schema_name(schema) == name
