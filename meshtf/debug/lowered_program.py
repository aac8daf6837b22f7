"""The program to debug: an `mtf.function` or an `mtf.Lowering`, with the tensors that it returns."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import tensorflow as tf

from meshtf.call_sites import user_site
from meshtf.errors import GraphError, UsageError, nearest
from meshtf.function.program import Function
from meshtf.graph.tensor import Tensor
from meshtf.lowering.lowering import Lowering

AnyProgram: TypeAlias = "Function | Lowering"


@dataclasses.dataclass(frozen=True)
class LoweredProgram:
    """A program on its mesh.

    Attributes:
      lowering: the graph on the mesh.
      fetches: the tensors that the program returns.
    """

    lowering: Lowering
    fetches: tuple[Tensor, ...]

    @classmethod
    def of(cls, program: AnyProgram) -> LoweredProgram:
        """Returns the program of a function or a lowering. Raises UsageError for anything else."""
        if isinstance(program, Lowering):
            return cls(program, program.planned_fetches)
        if isinstance(program, Function):
            fetches = tuple(x for x in tf.nest.flatten(program.results) if isinstance(x, Tensor))
            return cls(program.lowering, fetches)
        raise UsageError(
            f"a program is needed, from mtf.function or mtf.Lowering, and not {type(program).__name__}\n"
            f"  at {user_site()}"
        )

    def tensor(self, wanted: object) -> Tensor:
        """Returns a tensor of the program, given the tensor itself or a name.

        The name may be of an operation, a variable or an export, or a label of an operation in reports.

        Raises:
          GraphError: if no tensor has the name, or the tensor is of another program.
          UsageError: if it is neither a tensor nor a name.
        """
        graph = self.lowering.graph
        if isinstance(wanted, Tensor):
            if wanted.graph is not graph:
                raise GraphError(f'{wanted} is no tensor of program "{graph.name}"\n  at {user_site()}')
            return wanted
        if not isinstance(wanted, str):
            raise UsageError(f"a tensor of the program or its name is needed, and not {wanted!r}\n  at {user_site()}")
        named: dict[str, Tensor] = {}
        for operation in graph.every_operation():
            for x in operation.outputs:
                named.setdefault(x.name, x)
                named.setdefault(operation.label, x)
        named = {**named, **graph.exports}
        if wanted not in named:
            hint = nearest(wanted, named) or f"; the names of its tensors are in {_SHOWS_NAMES}"
            raise GraphError(f'no tensor "{wanted}" in program "{graph.name}"{hint}\n  at {user_site()}')
        return named[wanted]


_SHOWS_NAMES = "print(step.report().text(tensors=True))"
