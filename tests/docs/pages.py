"""The Markdown pages of the project, with their code blocks, links and anchors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"

# A fence of backticks with its info string, up to a line of as many backticks.
_FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=fence)\s*$", re.M | re.S
)
_LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (?P<text>.+?)\s*$", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block: its info string, its code, and the line of the page where the code begins."""

    info: str
    code: str
    line: int

    @property
    def is_python(self) -> bool:
        return self.info.split()[:1] == ["python"]

    @property
    def runs(self) -> bool:
        return self.info.split() == ["python", "run"]


@dataclass(frozen=True)
class Page:
    """A Markdown file."""

    path: Path

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def blocks(self) -> list[Block]:
        return [
            Block(
                found["info"].strip(), found["code"], self.text[: found.start("code")].count("\n")
            )
            for found in _FENCE.finditer(self.text)
        ]

    @cached_property
    def prose(self) -> str:
        return _FENCE.sub("", self.text)

    @cached_property
    def links(self) -> list[str]:
        return [found["target"] for found in _LINK.finditer(self.prose)]

    @cached_property
    def anchors(self) -> set[str]:
        """As GitHub and MyST make them from headings."""
        return {slug(found["text"]) for found in _HEADING.finditer(self.prose)}

    def run(self, namespace: dict[str, object]) -> None:
        """Execute the blocks that are marked so, one after the other, in one namespace."""
        for block in self.blocks:
            if block.runs:
                # Empty lines in front, so that a traceback shows the page's own line numbers.
                code = compile("\n" * block.line + block.code, str(self.path), "exec")
                exec(code, namespace)


def slug(heading: str) -> str:
    text = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return text.replace(" ", "-")


def pages() -> list[Page]:
    paths = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
    return [Page(path) for path in paths]
