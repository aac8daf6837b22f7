"""Every Python block of README.md and docs/*.md runs: the blocks of one file in order, as one program.

Each file gets a process of its own, with eight virtual CPUs; a block may set them up itself.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.fresh_process import run_fresh

TREE = Path(__file__).resolve().parents[2]
PAGES = [TREE / "README.md", *sorted((TREE / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)

SET_UP = "import meshtf\nmeshtf.virtual_cpus(8)\n"


def program_of(text: str) -> str:
    """The page's Python blocks, each at its own line of the page, so that an error points there."""
    lines: list[str] = []
    for match in BLOCK.finditer(text):
        first_line = text.count("\n", 0, match.start(1))
        lines += [""] * (first_line - len(lines))
        lines += match[1].splitlines()
    return "\n".join(lines) + "\n"


def test_blocks_keep_their_line_numbers() -> None:
    page = textwrap.dedent(
        """\
        # Title
        ```python
        a = 1
        ```
        ```bash
        ignored
        ```
        ```python
        b = a
        ```
        """
    )
    assert program_of(page) == "\n\na = 1\n\n\n\n\n\nb = a\n"


def test_readme_has_python_blocks() -> None:
    assert program_of(PAGES[0].read_text()).strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TREE)))
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    program = program_of(page.read_text())
    if not program.strip():
        return
    runner = f"{SET_UP}exec(compile({program!r}, {str(page)!r}, 'exec'), {{'__name__': '__main__'}})"
    done = run_fresh(["-c", runner], tmp_path)
    assert done.status == 0, f"{page.name}:\n{done.stdout}\n{done.stderr}"
