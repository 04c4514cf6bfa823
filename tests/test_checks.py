"""System checks: stable ids, the problem in the message, the remedy in the hint."""

import pytest
from django.conf import settings
from django.core import checks as django_checks
from django.core.checks import Error
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import override_settings

from django_workflows import checks, workflow

SETTINGS = "DJANGO_WORKFLOWS"


def test_a_sound_project_has_nothing_to_say():
    assert checks.check_settings() == []
    assert checks.check_registry() == []


@pytest.mark.parametrize(
    ("value", "problem", "remedy"),
    [
        ([], "DJANGO_WORKFLOWS must be a dict, not list.", "Make it a dict."),
        (
            {"LEASE_SECONDS": 0},
            "DJANGO_WORKFLOWS['LEASE_SECONDS'] is 0.",
            "It must be a number of at least 1, or left out.",
        ),
        (
            {"DATABASE": "other"},
            "DJANGO_WORKFLOWS['DATABASE'] is 'other'.",
            "It must be a key of DATABASES, or left out.",
        ),
    ],
)
def test_e001_a_fault_in_the_settings(value, problem, remedy):
    with override_settings(**{SETTINGS: value}):
        found = checks.check_settings()

    assert found == [Error(problem, hint=remedy, id="django_workflows.E001")]


def test_e001_an_unknown_key_names_those_that_are_known():
    with override_settings(DJANGO_WORKFLOWS={"LEASE": 30}):
        (found,) = checks.check_settings()

    assert (found.id, found.msg) == (
        "django_workflows.E001",
        "Unknown key 'LEASE' in DJANGO_WORKFLOWS.",
    )
    assert found.hint.startswith("Known keys: DATABASE, MAX_PAYLOAD_BYTES, ")


# https://github.com/zigflow/zigflow/issues/549
def test_e002_two_functions_that_claim_one_name_and_version_are_both_named():
    @workflow(name="t.clash")
    def one(ctx): ...

    @workflow(name="t.clash")
    def two(ctx): ...

    here = f"{__name__}.test_e002_two_functions_that_claim_one_name_and_version_are_both_named"
    assert checks.check_registry() == [
        Error(
            "Workflow 't.clash' version '1' is registered by both "
            f"{here}.<locals>.one and {here}.<locals>.two.",
            hint="Give one of them another name= or version=.",
            id="django_workflows.E002",
        )
    ]
    with pytest.raises(SystemCheckError, match=r"django_workflows\.E002"):
        call_command("check", tags=["django_workflows"])


class Half:
    def encode(self, text):
        return text


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "no.such.Codec",
            "DJANGO_WORKFLOWS['CODEC'] is 'no.such.Codec', which can't be imported and called "
            "without arguments: ModuleNotFoundError: No module named 'no'",
        ),
        (
            f"{__name__}.Half",
            f"DJANGO_WORKFLOWS['CODEC'] is '{__name__}.Half', which lacks encode(str) -> str or "
            "decode(str) -> str.",
        ),
    ],
)
def test_e003_a_codec_that_cannot_be_used(path, text):
    with override_settings(DJANGO_WORKFLOWS={"CODEC": path}):
        found = checks.check_settings()

    hint = "Give the dotted path of a class with encode(str) -> str and decode(str) -> str."
    assert found == [Error(text, hint=hint, id="django_workflows.E003")]


@pytest.fixture
def use_database(monkeypatch):
    def use(engine, **options):
        # Not by override_settings, of which Django warns here: no connection is made meanwhile.
        told = {"ENGINE": f"django.db.backends.{engine}", "OPTIONS": options}
        monkeypatch.setitem(settings.DATABASES, "default", told)

    return use


def test_w001_sqlite_with_deferred_transactions(use_database):
    use_database("sqlite3")

    assert checks.check_database() == [
        django_checks.Warning(
            "SQLite database 'default' opens deferred transactions, so a view that reads and then "
            "starts a run or sends a message can fail with 'database is locked'.",
            hint="Set OPTIONS: {'transaction_mode': 'IMMEDIATE', 'timeout': 20} and WAL mode.",
            id="django_workflows.W001",
        )
    ]


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("sqlite3", {"transaction_mode": "immediate"}),
        ("sqlite3", {"transaction_mode": "EXCLUSIVE"}),
        ("postgresql", {}),
    ],
)
def test_a_database_that_fits_has_nothing_to_say(use_database, engine, options):
    use_database(engine, **options)

    assert checks.check_database() == []


def test_an_unknown_database_is_left_to_the_check_of_the_settings():
    with override_settings(DJANGO_WORKFLOWS={"DATABASE": "nowhere"}):
        assert checks.check_database() == []
        assert [each.id for each in checks.check_settings()] == ["django_workflows.E001"]


@pytest.mark.parametrize("engine", ["mysql", "oracle"])
def test_e004_a_database_that_is_not_supported(use_database, engine):
    use_database(engine)

    assert checks.check_database() == [
        Error(
            f"Database 'default' (django.db.backends.{engine}) isn't supported by "
            "django_workflows.",
            hint="Use PostgreSQL 14 or newer, or SQLite; DJANGO_WORKFLOWS['DATABASE'] can name "
            "another database than the project's default.",
            id="django_workflows.E004",
        )
    ]


def test_the_checks_are_known_to_django():
    registered = django_checks.registry.registry.get_checks()

    assert {checks.check_settings, checks.check_registry, checks.check_database} <= set(registered)
    assert django_checks.tag_exists("django_workflows")
