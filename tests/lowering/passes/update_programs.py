"""Training steps of two matrices of any sizes, and their losses on the interpreter."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import meshtf as mtf
from meshtf import optimize
from meshtf.lowering.initial_values import initial_plan
from meshtf.lowering.interpreter import Interpreter
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.report import accounting
from meshtf.planning.plan import Plan
from meshtf.testing import FUNCTION_TERMS, build

OPTIMIZERS: dict[str, optimize.Optimizer] = {
    "adamw": optimize.AdamWOptimizer(0.02, weight_decay=0.1),
    "adafactor": optimize.AdafactorOptimizer(0.02, beta_1=0.5),
    "lamb": optimize.LambOptimizer(0.02, weight_decay=0.1),
    "clipped": optimize.ClippedOptimizer(optimize.MomentumOptimizer(0.05, 0.9), [optimize.ClipByGlobalNorm(0.5)]),
    "rounded": optimize.MasterWeightsOptimizer(optimize.LionOptimizer(0.005)),
}


EVERY_UPDATE_DIVIDED = PassOptions(smallest_divided_update=2)


@dataclasses.dataclass(frozen=True)
class TwoMatrices:
    """`first` [inner, hidden] and `second` [hidden, outer], between x [batch, inner] and y [batch, outer]."""

    inner: mtf.Dimension
    hidden: mtf.Dimension
    outer: mtf.Dimension
    batch: mtf.Dimension

    @classmethod
    def of_sizes(cls, inner: int, hidden: int, outer: int, batch: int = 8) -> TwoMatrices:
        sizes = {"inner": inner, "hidden": hidden, "outer": outer, "batch": batch}
        return cls(*(mtf.Dimension(name, size) for name, size in sizes.items()))

    @property
    def inputs(self) -> dict[str, mtf.TensorSpec]:
        return {"x": mtf.TensorSpec([self.batch, self.inner]), "y": mtf.TensorSpec([self.batch, self.outer])}

    @property
    def terms(self) -> tuple[int, ...]:
        """Roundings on the way to a loss, and through its gradient and an update to the next weights."""
        sizes = self.inner.size, self.hidden.size, self.outer.size, self.batch.size
        update = 4 * FUNCTION_TERMS  # a root, a quotient and two means of each element; norms are sums again
        return (*sizes, *sizes, *sizes, 2 * FUNCTION_TERMS, update)

    def batches(self, count: int) -> list[dict[str, np.ndarray]]:
        generator = np.random.default_rng(0)
        shapes = {name: spec.shape.to_integer_list for name, spec in self.inputs.items()}
        return [{n: generator.normal(size=s).astype(np.float32) for n, s in shapes.items()} for _ in range(count)]

    def step(self, optimizer: optimize.Optimizer) -> Any:
        def step(x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
            normal = mtf.RandomNormal(stddev=0.3)
            first = mtf.get_variable(x.mesh, "first", [self.inner, self.hidden], initializer=normal)
            second = mtf.get_variable(x.mesh, "second", [self.hidden, self.outer], initializer=normal)
            hidden = mtf.tanh(mtf.einsum([x, first], output_shape=[self.batch, self.hidden]))
            loss = mtf.reduce_mean(mtf.square(mtf.einsum([hidden, second], output_shape=[self.batch, self.outer]) - y))
            optimizer.minimize(loss)
            return loss

        return step

    def on_devices(self, optimizer: optimize.Optimizer, mesh_shape: Any, layout: str, **options: Any) -> mtf.Function:
        mesh_impl = mtf.SpmdMeshImpl(mesh_shape, layout, **options)
        return mtf.function(self.step(optimizer), mesh_impl, inputs=self.inputs, pass_options=EVERY_UPDATE_DIVIDED)

    def lowered(
        self, optimizer: optimize.Optimizer, mesh_shape: str, layout: str, **options: bool
    ) -> tuple[mtf.Lowering, Plan]:
        graph, loss = build(self.step(optimizer), self.inputs)
        mesh_impl = mtf.PlanMeshImpl(mesh_shape, layout, **options)
        lowering = mtf.Lowering(graph, {loss.mesh: mesh_impl}, pass_options=EVERY_UPDATE_DIVIDED)
        return lowering, lowering.plan_for((loss,))

    def losses(
        self, optimizer: optimize.Optimizer, mesh_shape: str, layout: str, count: int, **options: bool
    ) -> list[float]:
        """Of so many steps, on the interpreter."""
        lowering, plan = self.lowered(optimizer, mesh_shape, layout, **options)
        interpreter = started(lowering, plan)
        return [float(interpreter.run({**known(plan), **batch})[0]) for batch in self.batches(count)]


def started(lowering: mtf.Lowering, plan: Plan) -> Interpreter:
    """The plan, with the initial values of its variables."""
    layouts = {name: value.layout for name, value in accounting.stored_variables(plan).items()}
    variables: list[Any] = [lowering.graph.variables[name] for name in plan.variable_names]
    rules = lowering.mesh_impl.layout_rules
    initial = initial_plan(variables, layouts, plan.mesh_shape, rules, 0, lowering.axis_parts)
    interpreter = Interpreter(initial)
    interpreter.run(known(initial))
    return Interpreter(plan, interpreter.variables)


def known(plan: Any) -> dict[str, np.ndarray]:
    return {f.name: np.asarray(f.operation.value) for f in plan.feeds if f.operation.value is not None}
