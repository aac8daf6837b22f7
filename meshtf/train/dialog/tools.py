"""Tools that a model may query for facts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Tool(Protocol):
    """Answers a query with texts, best first. There may be none (Thoppilan et al. 2022, section 6.2)."""

    @property
    def name(self) -> str:
        """The name in reports."""
        ...

    def answers(self, query: str) -> Sequence[str]: ...


@dataclasses.dataclass(frozen=True)
class Toolset:
    """Several tools, all of which receive each query. Their answers are in the order of the tools.

    Attributes:
      tools: the tools.

    Examples:
      >>> from meshtf.train.dialog.calculator import Calculator
      >>> from meshtf.train.dialog.retrieval import Retrieval
      >>> toolset = Toolset([Calculator(), Retrieval(["vera ford keeps bees ."])])
      >>> toolset.answers("17 + 25"), toolset.answers("vera ford keeps")
      (['17 + 25 = 42'], ['vera ford keeps bees .'])
    """

    tools: Sequence[Tool]

    def answers(self, query: str) -> list[str]:
        """The answers of all tools, each a single line."""
        return [" ".join(answer.split()) for tool in self.tools for answer in tool.answers(query)]
