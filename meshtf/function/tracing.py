"""Calls a function over named tensors in a new graph."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.contracts.checked import raise_faults
from meshtf.contracts.hints import RESULT
from meshtf.contracts.matching import Matching
from meshtf.errors import GraphError
from meshtf.function.signature import Signature, Sizes
from meshtf.graph.graph import Graph
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.graph.platform_kernels import NO_KERNELS, PlatformKernels
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType
from meshtf.ops.inputs.placeholder import InputOperation


@dataclasses.dataclass(frozen=True)
class Traced:
    """The record of a function's call: its mesh, its inputs, and its results in their structure."""

    mesh: Mesh
    inputs: Mapping[str, InputOperation]
    results: Any

    @property
    def fetches(self) -> list[Tensor]:
        return [x for x in tf.nest.flatten(self.results) if isinstance(x, Tensor)]


@dataclasses.dataclass(frozen=True)
class Tracing:
    """A function and its signature. It is called in a new graph for each choice of open sizes."""

    fn: Callable[..., Any]
    signature: Signature
    name: str | None
    variable_dtype: VariableDType | None
    seed: int = 0
    kernels: PlatformKernels = NO_KERNELS
    _traced: dict[Sizes, Traced] = dataclasses.field(default_factory=dict)

    @property
    def program_name(self) -> str:
        return self.name or getattr(self.fn, "__name__", "program").strip("<>")

    def at(self, sizes: Sizes) -> Traced:
        """The record of the function's call at these sizes. Only the first request calls the function."""
        if sizes not in self._traced:
            self._traced[sizes] = self.again(sizes)
        return self._traced[sizes]

    def again(self, sizes: Sizes, layers_keep: str | None = None) -> Traced:
        """Calls the function in a new graph, with layers that keep no more than `layers_keep` for the gradient.

        Raises:
          ContractError: a tensor does not fit the function's annotations.
          GraphError: it returned an array, a TensorFlow tensor or an operation instead of an mtf.Tensor.
        """
        graph = Graph(self.program_name, self.variable_dtype, layers_keep=layers_keep, kernels=self.kernels)
        graph.seed = self.seed
        mesh = Mesh(graph)
        specs = self.signature.specs(sizes)
        operations = {n: InputOperation(mesh, s.shape, s.dtype, n) for n, s in specs.items()}
        arguments: dict[str, Any] = {n: o.outputs[0] for n, o in operations.items()}
        matching = Matching(in_order=True)
        self._compare(matching, arguments)
        if "mesh" in inspect.signature(self.fn).parameters and "mesh" not in specs:
            arguments["mesh"] = mesh
        with graph:
            results = self.fn(**arguments)
        _check_results(graph, results)
        self._compare(matching, {RESULT: results})
        return Traced(mesh, operations, results)

    def _compare(self, matching: Matching, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            matching.compare(self.signature.hints.get(name), value, "the result" if name == RESULT else name)
        raise_faults(matching, self.fn)


def _check_results(graph: Graph, results: Any) -> None:
    for leaf in tf.nest.flatten(results):
        if isinstance(leaf, tf.Tensor | tf.Variable | np.ndarray | Operation):
            raise GraphError(f"{graph.name} returned {_described(leaf)}; it must return mtf.Tensors")
        if any(isinstance(part, Tensor) for part in _parts(leaf)):
            raise GraphError(
                f"{graph.name} returned mtf.Tensors in a {type(leaf).__name__}, whose parts would get no values; "
                "return them in a dict, list, tuple or NamedTuple"
            )


def _parts(leaf: object) -> Iterable[object]:
    """The parts of a dataclass or a set, which TensorFlow does not take for structures."""
    if isinstance(leaf, set | frozenset):
        return leaf
    if not dataclasses.is_dataclass(leaf):
        return ()
    return [getattr(leaf, field.name, None) for field in dataclasses.fields(leaf)]


def _described(leaf: object) -> str:
    """Describes an object that a function returned instead of an mtf.Tensor."""
    if isinstance(leaf, Operation):
        return f"the operation {leaf.name}, not its outputs"
    package = "NumPy" if isinstance(leaf, np.ndarray) else "TensorFlow"
    return f"an array of {package}, {type(leaf).__name__}, known before it runs"
