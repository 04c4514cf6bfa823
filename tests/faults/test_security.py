"""What the package must never do with what it stores or is sent."""

import ast
from pathlib import Path

import pytest

import django_workflows

PACKAGE = Path(django_workflows.__file__).parent
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "telnetlib"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "mark_safe", "csrf_exempt", "RawSQL"}
FILES = sorted(PACKAGE.rglob("*.py"))


def faults(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").split(".")[0], *(alias.name for alias in node.names)}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            names = {node.func.id}
        else:
            continue
        yield from names & (FORBIDDEN_MODULES | FORBIDDEN_CALLS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_is_unpickled_evaluated_or_marked_safe(path):
    assert list(faults(path.read_text())) == []


@pytest.mark.parametrize(
    "source", ["import pickle", "from marshal import loads", "eval('1')", "mark_safe(x)"]
)
def test_the_look_finds_what_it_looks_for(source):
    assert list(faults(source)) != []


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.html")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_templates_escape_everything(path):
    text = path.read_text()
    assert "|safe" not in text
    assert "autoescape off" not in text


def test_the_security_policy_names_what_people_need():
    text = (PACKAGE.parent / "SECURITY.md").read_text()
    for words in ("Supported versions", "Reporting a vulnerability", "CODEC", "in clear"):
        assert words in text
