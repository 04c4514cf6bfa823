"""Links of README and docs lead somewhere, and every page is in a table of contents."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, Page, pages

PAGES = pages()
EXTERNAL = ("https://", "http://", "mailto:")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_internal_link_resolves(page):
    broken = []
    for target in page.links:
        if target.startswith(EXTERNAL):
            continue
        path, _, anchor = target.partition("#")
        found = (page.path.parent / path).resolve() if path else page.path
        if not found.exists() or (anchor and anchor not in Page(found).anchors):
            broken.append(target)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_included_piece_of_code_is_there(page):
    for block in page.blocks:
        directive, _, path = block.info.partition(" ")
        if directive != "{literalinclude}":
            continue
        source = (page.path.parent / path).resolve()
        name = re.search(r":pyobject: (\w+)", block.code)[1]
        assert source.is_relative_to(ROOT)
        assert re.search(rf"^(?:def|class) {name}\b", source.read_text(), re.M), (path, name)


def test_every_page_is_in_a_table_of_contents():
    listed = {DOCS / "index.md"}
    for page in PAGES:
        for block in page.blocks:
            if block.info == "{toctree}":
                names = [line for line in block.code.split() if not line.startswith(":")]
                listed |= {page.path.parent / f"{name}.md" for name in names}

    assert {Path(path) for path in DOCS.rglob("*.md")} - listed == set()


def test_no_page_names_a_path_of_somebodys_machine():
    for page in PAGES:
        assert not re.search(r"(?:/home/|/root/|/tmp/|/Users/|C:\\)", page.text), page
