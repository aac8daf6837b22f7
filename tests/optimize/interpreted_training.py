"""Many steps of a program on the interpreter of plans, its weight updates sharded as they are on devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import meshtf as mtf
from meshtf.layout import MAX_PADDING
from meshtf.lowering.core_slices import joined
from meshtf.lowering.initial_values import initial_plan
from meshtf.lowering.interpreter import Interpreter
from meshtf.lowering.passes.pass_options import DEFAULT_PASS_OPTIONS, PassOptions
from meshtf.lowering.report.accounting import stored_variables
from meshtf.planning.plan import Plan
from meshtf.testing import build

BATCH, INNER, HIDDEN, OUTER = (
    mtf.Dimension(name, size) for name, size in (("batch", 8), ("inner", 16), ("hidden", 24), ("outer", 8))
)
INPUTS = {"x": mtf.TensorSpec([BATCH, INNER]), "y": mtf.TensorSpec([BATCH, OUTER])}

LAYOUTS = (
    ("data:2", "batch:data"),
    ("data:2", "hidden:data"),
    ("rows:2;cols:2", "batch:rows;hidden:cols"),
    ("rows:2;cols:2", "batch:rows+cols"),
    ("rows:2;cols:2", "inner:rows;outer:cols"),
)


class InterpretedTraining:
    """A program that returns one tensor, and may assign, with its variables, on a mesh of any shape."""

    def __init__(
        self,
        fn: Callable[..., Any],
        inputs: Mapping[str, mtf.TensorSpec],
        mesh_shape: str,
        layout: str,
        parameter_layout: str | None = None,
        pass_options: PassOptions = DEFAULT_PASS_OPTIONS,
        activation_layout: str | None = None,
        max_padding: float = MAX_PADDING,
    ) -> None:
        graph, result = build(fn, inputs)
        options = mtf.MeshOptions(
            parameter_layout=parameter_layout, activation_layout=activation_layout, max_padding=max_padding
        )
        mesh_impl = mtf.SpmdMeshImpl(mesh_shape, layout, options=options)
        self.lowering = mtf.Lowering(graph, {result.mesh: mesh_impl}, pass_options=pass_options)
        self.plan = self.lowering.plan_for((result,))
        self._layouts = {name: value.layout for name, value in stored_variables(self.plan).items()}
        variables: list[Any] = [graph.variables[name] for name in self.plan.variable_names]
        rules, mesh_shape = mesh_impl.layout_rules, self.plan.mesh_shape
        initial = initial_plan(variables, self._layouts, mesh_shape, rules, 0, self.lowering.axis_parts)
        interpreter = Interpreter(initial)
        interpreter.run(known(initial))
        self._interpreter = Interpreter(self.plan, interpreter.variables)

    def step(self, **feeds: np.ndarray) -> float:
        return float(self.result(**feeds))

    def result(self, **feeds: np.ndarray) -> np.ndarray:
        return self._interpreter.run({**known(self.plan), **feeds})[0]

    def __getitem__(self, name: str) -> np.ndarray:
        return joined(self._interpreter.variables[name], self._layouts[name], self.plan)

    def __setitem__(self, name: str, value: np.ndarray) -> None:
        self._interpreter.variables[name] = [np.asarray(value)] * self.plan.mesh_shape.size

    @property
    def variables(self) -> dict[str, np.ndarray]:
        return {name: self[name] for name in self._layouts}

    def share_per_core(self, name: str) -> float:
        """What part of a variable one core holds."""
        value = stored_variables(self.plan)[name]
        return float(np.prod(value.slice_shape)) / value.shape.size


def known(plan: Plan) -> dict[str, np.ndarray]:
    values: dict[str, Any] = {feed.name: feed.operation.value for feed in plan.feeds}  # type: ignore[attr-defined]
    return {name: np.asarray(value) for name, value in values.items() if value is not None}


def perceptron_step(
    optimizer: mtf.optimize.Optimizer, dtype: mtf.VariableDType | None = None
) -> Callable[..., mtf.Tensor]:
    """A training step of a perceptron of two layers, whose weights are of this dtype."""

    def step(x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
        normal = mtf.RandomNormal(stddev=0.3)
        w1 = mtf.get_variable(x.mesh, "first/kernel", [INNER, HIDDEN], dtype, initializer=normal)
        w2 = mtf.get_variable(x.mesh, "second/kernel", [HIDDEN, OUTER], dtype, initializer=normal)
        bias = mtf.get_variable(x.mesh, "second/bias", [OUTER], dtype, initializer=mtf.zeros)
        hidden = mtf.tanh(mtf.einsum([x, w1], output_shape=[BATCH, HIDDEN]))
        loss = mtf.reduce_mean(mtf.square(mtf.einsum([hidden, w2], output_shape=[BATCH, OUTER]) + bias - y))
        optimizer.minimize(loss)
        return loss

    return step


def perceptron_batches(count: int) -> list[dict[str, np.ndarray]]:
    """Inputs, and what a fixed linear map makes of them."""
    generator = np.random.default_rng(0)
    wanted = generator.normal(size=(INNER.size, OUTER.size)) / 4
    xs = generator.normal(size=(count, BATCH.size, INNER.size))
    return [{"x": x.astype(np.float32), "y": (x @ wanted).astype(np.float32)} for x in xs]
