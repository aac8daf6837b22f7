"""Runs drawn programs, on the interpreter or on virtual CPUs, and compares everything with what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from random_programs.generate import layout_text
from random_programs.program import Program

import meshtf as mtf
from meshtf.layout import LayoutRules
from meshtf.testing import assert_close, interpret_graph

_TOLERANCES: dict[tf.DType, float] = {
    # The reference is in float64 from end to end, and programs amplify: wider than between two layouts.
    tf.float64: 1e-9,
    tf.float32: 3e-4,
    tf.float16: 2e-2,
    tf.bfloat16: 1e-1,
}


class DifferenceError(AssertionError):
    """A program gave something else than expected. The message is enough to see what, and to run it again."""


def describe(program: Program, mesh_shape: mtf.Shape, rules: LayoutRules, more: str = "") -> str:
    return f'mesh "{mesh_shape}", layout "{layout_text(rules)}"{more}, cases {program.cases}\n{program}'


def check_on_interpreter(
    program: Program, mesh_shape: mtf.Shape, rules: LayoutRules, parameter_rules: LayoutRules | None = None
) -> None:
    """Plans the program and interprets the plan, its gradients included."""
    try:
        done = interpret_graph(
            program.graph, program.fetches, program.feeds, mesh_shape, rules, parameter_layout=parameter_rules
        )
        check_values(program, done.results, done.variables)
    except Exception as error:
        where = describe(program, mesh_shape, rules)
        raise DifferenceError(f"{type(error).__name__}: {error}\n{where}") from error


def check_values(program: Program, results: Sequence[Any], variables: Any) -> None:
    """Compares fetches and variables with what was expected."""
    loosest = max((_TOLERANCES.get(d, 0.0) for d in program.dtypes), default=0.0)
    for label, tensor, actual, expected in zip(program.labels, program.fetches, results, program.expected, strict=True):
        assert np.asarray(actual).dtype == tensor.dtype.as_numpy_dtype, f"{label} came as {actual.dtype}"
        tolerance = loosest if tensor.dtype.is_floating else 0.0
        assert_close(actual, expected, tensor.dtype, label, tolerance)
    for name, node in program.variables.items():
        if name in variables:
            assert_close(variables[name], node.array, node.tensor.dtype, f"variable {name}", loosest)
