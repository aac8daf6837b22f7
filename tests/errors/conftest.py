"""Reads an error as a user would: what was wrong, their own line, and nothing of TensorFlow's insides."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

import meshtf as mtf

Read: TypeAlias = Callable[..., str]


def _marked_line(fn: Callable[..., Any]) -> int:
    """The line of `fn` that ends in the comment `# here`; its last one where there is none."""
    lines, first = inspect.getsourcelines(fn)
    marked = [i for i, line in enumerate(lines) if line.rstrip().endswith("# here")]
    return first + (marked[0] if marked else len(lines) - 1)


@pytest.fixture
def read() -> Read:
    """`read(kind, wrong, *args)` calls `wrong`, which must raise exactly `kind`, and gives the checked message.

    The message names the file and line of `wrong` (that marked `# here`, or the last).
    """

    def read_message(kind: type[mtf.errors.MeshtfError], wrong: Callable[..., Any], *args: Any) -> str:
        with pytest.raises(kind) as caught:
            wrong(*args)
        assert type(caught.value) is kind
        text = str(caught.value)
        assert f"at {inspect.getsourcefile(wrong)}:{_marked_line(wrong)}" in text, text
        assert text.count("\n  at ") == 1, text
        for unwanted in ("Traceback", "tensorflow/python", "{{node", "site-packages", "autograph"):
            assert unwanted not in text, text
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
        return text

    return read_message


@pytest.fixture
def refused() -> Callable[..., None]:
    """`refused(wrong, kind, words)` calls `wrong`, which must raise exactly `kind` with these words.

    An error of meshtf's own names the file and the line of `wrong`, and nothing of TensorFlow's insides.
    """

    def check(wrong: Callable[[], Any], kind: type[Exception], words: str) -> None:
        with pytest.raises(kind) as caught:
            wrong()
        assert type(caught.value).__name__ == kind.__name__  # gin raises a class of its own of this name
        text = str(caught.value)
        assert words in text, text
        for unwanted in ("Traceback", "tensorflow/python", "{{node", "site-packages"):
            assert unwanted not in text, text
        if isinstance(caught.value, mtf.errors.MeshtfError) and "\n  at " in text:
            assert f"at {wrong.__code__.co_filename}:" in text, text

    return check
