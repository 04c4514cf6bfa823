"""The DJANGO_WORKFLOWS dict."""

from dataclasses import fields

import pytest
from django.test import override_settings

from django_workflows import conf


def test_every_key_has_a_default_and_a_rule():
    assert {field.name.upper() for field in fields(conf.Config)} == set(conf.RULES)
    with override_settings(DJANGO_WORKFLOWS={}):
        assert conf.config() == conf.Config()
        assert conf.problems() == []


def test_a_default_keeps_its_own_rule():
    defaults = {name.upper(): value for name, value in vars(conf.Config()).items()}
    with override_settings(DJANGO_WORKFLOWS=defaults):
        assert conf.problems() == []


def test_what_is_given_goes_before_the_default_and_the_rest_stays():
    with override_settings(DJANGO_WORKFLOWS={"LEASE_SECONDS": 5, "LISTEN": False}):
        assert conf.config() == conf.Config(lease_seconds=5, listen=False)


def test_a_change_of_the_settings_is_seen_at_once_and_undone_with_them():
    before = conf.config()
    with override_settings(DJANGO_WORKFLOWS={"CONCURRENCY": 3}):
        assert conf.config().concurrency == 3
        with override_settings(DJANGO_WORKFLOWS={"CONCURRENCY": 4}):
            assert conf.config().concurrency == 4
        assert conf.config().concurrency == 3

    assert conf.config() == before


@pytest.mark.parametrize("value", [None, [], "x"])
def test_what_is_no_dict_leaves_the_defaults_until_the_check_says_so(value):
    with override_settings(DJANGO_WORKFLOWS=value):
        assert conf.config() == conf.Config()
        assert conf.problems() == [
            (f"DJANGO_WORKFLOWS must be a dict, not {type(value).__name__}.", "Make it a dict.")
        ]


BAD = {
    "DATABASE": [1, "nowhere", None],
    "MAX_PAYLOAD_BYTES": [0, -1, 1.5, True, "1"],
    "CODEC": ["nodots", 1],
    "LEASE_SECONDS": [0, 0.5, 86401, "30", None, True],
    "POLL_SECONDS": [0, 0.001, 3601, "1", True],
    "CONCURRENCY": [0, 1.5, True, None],
    "SHUTDOWN_SECONDS": [-1, "1", None],
    "LISTEN": [1, None, "yes"],
    "MAX_CRASHES": [0, -1, 1.5, True],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in BAD.items() for value in values], ids=repr
)
def test_a_bad_value_is_told_with_what_it_must_be(key, value):
    with override_settings(DJANGO_WORKFLOWS={key: value}):
        ((problem, remedy),) = conf.problems()

    assert problem == f"DJANGO_WORKFLOWS[{key!r}] is {value!r}."
    assert remedy == f"It must be {conf.RULES[key][0]}, or left out."


def test_every_key_is_refused_some_value():
    assert set(BAD) == set(conf.RULES)


def test_several_faults_are_told_at_once():
    with override_settings(DJANGO_WORKFLOWS={"LISTEN": 1, "listen": True, "MAX_CRASHES": 0}):
        assert [problem for problem, _ in conf.problems()] == [
            "DJANGO_WORKFLOWS['LISTEN'] is 1.",
            "Unknown key 'listen' in DJANGO_WORKFLOWS.",
            "DJANGO_WORKFLOWS['MAX_CRASHES'] is 0.",
        ]
