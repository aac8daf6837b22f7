"""Runs drawn programs, on the interpreter or on virtual CPUs, and compares everything with what was expected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import meshtf as mtf
from meshtf.layout import LayoutRules
from meshtf.testing import assert_close, interpret_graph, largest, unit_roundoff
from tests.properties.random_programs.builder import has_gradient
from tests.properties.random_programs.program import Program
from tests.properties.random_programs.roundings import least_precise, terms_of


class DifferenceError(AssertionError):
    """A program gave something else than expected. The message is enough to see what, and to run it again."""


def describe(program: Program, mesh_shape: mtf.Shape, rules: LayoutRules, more: str = "") -> str:
    return f'mesh "{mesh_shape}", layout "{rules}"{more}, cases {program.cases}\n{program}'


def check_on_interpreter(
    program: Program, mesh_shape: mtf.Shape, rules: LayoutRules, options: mtf.MeshOptions | None = None
) -> None:
    """Plans the program and interprets the plan, its gradients included."""
    try:
        done = interpret_graph(program.graph, program.fetches, program.feeds, mesh_shape, rules, options=options)
        check_values(program, done.results, done.variables)
    except Exception as error:
        where = describe(program, mesh_shape, rules, f", {options}")
        raise DifferenceError(f"{type(error).__name__}: {error}\n{where}") from error


def check_values(program: Program, results: Sequence[Any], variables: Any, *, same_kernels: bool = True) -> None:
    """Compares fetches and variables with what was expected, which is in float64 from end to end.

    What rounding has not touched is compared bit for bit, where random numbers come from the kernels that made those
    expected: another compiler's logarithm rounds otherwise.
    """
    dtype = least_precise(program)
    arrays = [node.array for node in program.nodes if unit_roundoff(node.array.dtype)]
    terms, size = terms_of(program), largest(*arrays)
    usual = max((float(np.sqrt(np.mean(np.square(np.abs(x[np.isfinite(x)]))))) for x in arrays if x.size), default=0.0)
    most = max(node.shape.size for node in program.nodes)

    def check(actual: Any, expected: np.ndarray, tensor: mtf.Tensor, what: str, is_exact: bool) -> None:
        if (is_exact and same_kernels) or not has_gradient(tensor.dtype):
            np.testing.assert_array_equal(actual, expected.astype(tensor.dtype.as_numpy_dtype), what)
            return
        # A sum over what the tensor lacks has terms that were rounded, each its own way.
        magnitude = max(size, largest(expected), usual * math.sqrt(most / max(1, tensor.shape.size)))
        assert_close(actual, expected, terms=terms, magnitude=magnitude, dtype=dtype, shape=tensor.shape, what=what)

    fetched = zip(program.labels, program.fetches, results, program.expected, program.exact, strict=True)
    for label, tensor, actual, expected, is_exact in fetched:
        assert np.asarray(actual).dtype == tensor.dtype.as_numpy_dtype, f"{label} came as {actual.dtype}"
        check(actual, expected, tensor, label, is_exact)
    for name, node in program.variables.items():
        if name in variables:
            check(variables[name], node.array, node.tensor, f"variable {name}", node.is_exact)
