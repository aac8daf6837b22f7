"""The pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
PAGES = [TREE / "README.md", *sorted((TREE / "docs").glob("**/*.md"))]

# Perhaps a mark, a fence with a language and perhaps a title, and the lines up to the closing fence.
_BLOCK = re.compile(r'^(<!-- long -->\n)?```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
      language: "python" runs, "bash" are commands, "gin" is configuration; "text" and "json" are what a program wrote.
      title: the name of a file whose contents the block is; None: it is run.
      is_long: marked with `<!-- long -->`, as one that takes minutes, or what `make train` has made.
      line: the number of its first line in the page.
      text: its lines.
    """

    language: str
    title: str | None
    is_long: bool
    line: int
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command of a block of bash; comments are none."""
        lines = re.sub(r"\\\n", " ", self.text).splitlines() if self.language == "bash" else []
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page, in order."""
    return [
        Block(match[2], match[3], match[1] is not None, text.count("\n", 0, match.start(4)) + 1, match[4])
        for match in _BLOCK.finditer(text)
    ]


def name_of(page: Path) -> str:
    return str(page.relative_to(TREE))
