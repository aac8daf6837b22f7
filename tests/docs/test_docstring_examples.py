"""Every public name's docstring has an example, which gives what it says.

The names that examples may use are few: see `public_names.example_names`. What they build is planned and interpreted,
and needs no device, but where a mesh is made.
"""

from __future__ import annotations

import doctest
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import meshtf as mtf

sys.path.insert(0, str(Path(__file__).parent))  # makes public_names importable
from public_names import example_names, language

LONGEST = 8
"""Lines of code of an example; it shows one thing."""


@pytest.mark.parametrize(("name", "thing"), [*language().items()], ids=[*language()])
def test_the_example(name: str, thing: Callable[..., Any]) -> None:
    text = inspect.getdoc(thing) or ""
    graph = mtf.Graph()
    test = doctest.DocTestParser().get_doctest(text, example_names(graph), name, name, 0)
    assert any(re.search(rf"{name}\b", each.source) for each in test.examples), f"{name} has no example that calls it"
    assert sum(len(each.source.splitlines()) for each in test.examples) <= LONGEST
    said: list[str] = []
    with graph:
        doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not said, "".join(said)


def test_an_example_that_is_wrong_fails() -> None:
    def wrong() -> None:
        """Is wrong.

        Examples:
          >>> mtf.zeros(mesh, "n:2")
          zeros [n:3] float32
        """

    with pytest.raises(AssertionError, match=r"(?s)Expected:.*n:3.*Got:.*n:2"):
        test_the_example("mtf.zeros", wrong)
