"""Updates by TensorFlow's training kernels: found where a kernel does what is asked, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import optimize
from meshtf.lowering.emit.emission import EmittedProgram
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.passes.update_fusion import FusedUpdate
from meshtf.testing import FUNCTION_TERMS, assert_close

BATCH, ROWS, COLUMNS = mtf.Dimension("batch", 4), mtf.Dimension("rows", 96), mtf.Dimension("columns", 128)

DIVIDED = PassOptions(smallest_divided_update=1)
DESCENT, MOMENTUM, ADAM = "ResourceApplyGradientDescent", "ResourceApplyMomentum", "ResourceApplyAdam"

OPTIMIZERS: dict[str, tuple[optimize.Optimizer, str | None]] = {
    "sgd": (optimize.SgdOptimizer(0.3), DESCENT),
    "momentum": (optimize.MomentumOptimizer(0.3, 0.8), MOMENTUM),
    "nesterov": (optimize.MomentumOptimizer(0.3, 0.8, nesterov=True), MOMENTUM),
    "adam": (optimize.AdamOptimizer(0.01, epsilon=1e-3), ADAM),
    "adamw": (optimize.AdamWOptimizer(0.01, beta_2=0.97, weight_decay=0.2), ADAM),
    "bert": (optimize.AdamWeightDecayOptimizer(0.001, weight_decay_rate=0.2), ADAM),
    "clipped": (optimize.ClippedOptimizer(optimize.AdamOptimizer(0.01), [optimize.ClipByGlobalNorm(0.1)]), ADAM),
    "lion": (optimize.LionOptimizer(0.01), None),
    "decayed": (optimize.WeightDecayOptimizer(optimize.MomentumOptimizer(0.3, 0.8), rate=0.1), None),
    "averaged": (optimize.MovingAverageOptimizer(optimize.SgdOptimizer(0.3), 0.9), None),
}


def training(
    optimizer: optimize.Optimizer,
    dtype: tf.DType = tf.float32,
    columns: mtf.Dimension = COLUMNS,
    mesh: str = "all:1",
    layout: str = "",
) -> mtf.Function:
    """Of a weight [rows, columns]."""

    def step(x: mtf.Tensor) -> mtf.Tensor:  # [batch, rows]
        weight = mtf.get_variable(x.mesh, "weight", [ROWS, columns], dtype)
        loss = mtf.reduce_mean(mtf.square(mtf.einsum([x, weight], [BATCH, columns]) - 1.0))
        optimizer.minimize(loss)
        return loss

    inputs = {"x": mtf.TensorSpec([BATCH, ROWS], dtype)}
    return mtf.function(step, mtf.SpmdMeshImpl(mesh, layout), inputs, pass_options=DIVIDED)


def fused_updates(step: mtf.Function) -> list[tuple[FusedUpdate, dict[int, int]]]:
    """Those in place; and by the number of an input that is a variable's, the result that it gets."""
    facts = PlanFacts.of(step.lowering.execution([step.results]).plan, writes_in_place=True)
    return [
        (instruction.emit, {n: result for n, (result, _) in pairs.items()})
        for instruction, pairs in facts.in_place.items()
        if isinstance(instruction.emit, FusedUpdate)
    ]


def kernels_of(step: mtf.Function) -> list[str]:
    """Which operations its core runs."""
    program = step._execution.program
    assert isinstance(program, EmittedProgram)
    types = [o.type for f in program.core_functions for o in f.graph.get_operations()]
    return [t for t in types if t in (DESCENT, MOMENTUM, ADAM)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_that_have_a_kernel(name: str) -> None:
    optimizer, expected = OPTIMIZERS[name]
    step = training(optimizer)
    x = np.random.default_rng(0).normal(size=(BATCH.size, ROWS.size)).astype(np.float32)
    losses = [float(step(x=x)) for _ in range(3)]
    assert losses[2] < losses[1] < losses[0]
    assert kernels_of(step) == ([expected] if expected else [])


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("name", [n for n, (_, kernel) in OPTIMIZERS.items() if kernel])
def test_a_kernel_does_what_the_compiled_update_does(name: str, dtype: tf.DType) -> None:
    ((update, assigned),) = fused_updates(training(OPTIMIZERS[name][0], dtype))
    generator = np.random.default_rng(0)
    given = [tf.constant(np.abs(generator.normal(size=shape)), own) for shape, own in update.inputs]
    by_kernel, compiled = ([tf.Variable(given[n]) for n in assigned] for _ in range(2))
    slices = {n: x for n, x in enumerate(given) if n not in assigned}
    kernel = update.training_kernel(assigned)
    assert kernel is not None

    def by_xla(handles: list[tf.Tensor]) -> None:
        variables = {n: (result, handle) for (n, result), handle in zip(assigned.items(), handles, strict=True)}
        assert update.in_place(variables, [*slices.values()], on_processors=False) == {}

    kernel.emit({n: x.handle for n, x in zip(assigned, by_kernel, strict=True)}, kernel.update.values(slices))
    tf.function(by_xla, autograph=False)([x.handle for x in compiled])
    for number, one, other in zip(assigned, by_kernel, compiled, strict=True):
        assert_close(one.numpy(), other.numpy(), terms=2 * FUNCTION_TERMS, what=f"input {number}")
        assert not np.array_equal(one.numpy(), given[number].numpy())


def test_large_updates_are_compiled_where_a_kernel_does_not_do_all() -> None:
    def has_kernel(optimizer: optimize.Optimizer) -> bool:
        ((update, assigned),) = fused_updates(training(optimizer, columns=mtf.Dimension("columns", 1024)))
        return update.training_kernel(assigned) is not None

    assert not has_kernel(optimize.MomentumOptimizer(0.1, 0.9))
    assert not has_kernel(optimize.AdamWOptimizer(0.1))
    assert has_kernel(optimize.AdamOptimizer(0.1))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parts_of_a_weight_are_updated_by_kernels_too(name: str) -> None:
    """Where cores divide an update among themselves, a part of the weight is no variable: it is gathered afterwards."""
    optimizer, expected = OPTIMIZERS[name]
    x = np.random.default_rng(0).normal(size=(BATCH.size, ROWS.size)).astype(np.float32)
    one, two = (
        training(optimizer, mesh=mesh, layout=layout) for mesh, layout in (("all:1", ""), ("all:2", "batch:all"))
    )
    weights = {"weight": np.random.default_rng(1).normal(size=(ROWS.size, COLUMNS.size)).astype(np.float32)}
    for step in (one, two):
        step.initialize(weights)
        for _ in range(2):
            step(x=x)
    for variable, value in one.variables.items():
        assert_close(two.variables[variable], value, terms=BATCH.size * 4 * FUNCTION_TERMS, what=variable)
    assert kernels_of(two) == ([expected] if expected else [])


Rule = Callable[..., tuple[Any, Any, Any]]
"""New w, m and v from those, g and a square root: of tensors of a program, and of arrays."""


def momentum_rule(w: Any, m: Any, v: Any, g: Any, sqrt: Any) -> tuple[Any, Any, Any]:
    velocity = m * 0.5 + g
    return w - velocity, velocity, None


def others_rule(w: Any, m: Any, v: Any, g: Any, sqrt: Any) -> tuple[Any, Any, Any]:
    return m - g * 0.5, w - g * 0.5, None


def adam_rule(w: Any, m: Any, v: Any, g: Any, sqrt: Any) -> tuple[Any, Any, Any]:
    mean, square = m + (g - m) * 0.25, v + (g * g - v) * 0.125
    return w - mean * 0.5 / (sqrt(square) + 0.125), mean, square


BY_USERS: dict[str, Rule] = {
    "the velocity of before": lambda w, m, v, g, sqrt: (w - m, m * 0.5 + g, None),
    "two momentums": lambda w, m, v, g, sqrt: (w - ((m * 0.5 + g) * 0.75 + g), m * 0.5 + g, None),
    "twice the gradient": lambda w, m, v, g, sqrt: (w - ((m * 0.5 + g) * 0.5 + g * 2.0), m * 0.5 + g, None),
    "the other way": lambda w, m, v, g, sqrt: (w + (m * 0.5 + g), m * 0.5 + g, None),
    "a decayed gradient": lambda w, m, v, g, sqrt: (w - (m * 0.5 + (g + w * 0.25)), m * 0.5 + (g + w * 0.25), None),
    "a rate for each element": lambda w, m, v, g, sqrt: (w - g * g, None, None),
    "the mean of before": lambda w, m, v, g, sqrt: (
        w - m * 0.5 / (sqrt(v + (g * g - v) * 0.125) + 0.125), *adam_rule(w, m, v, g, sqrt)[1:],
    ),
    "the squares of before": lambda w, m, v, g, sqrt: (
        w - (m + (g - m) * 0.25) * 0.5 / (sqrt(v) + 0.125), *adam_rule(w, m, v, g, sqrt)[1:],
    ),
    "a mean in the squares' place": lambda w, m, v, g, sqrt: (
        w - (m + (g - m) * 0.25) * 0.5 / (sqrt(v + (g * 2.0 - v) * 0.125) + 0.125),
        m + (g - m) * 0.25, v + (g * 2.0 - v) * 0.125,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "expected"),
    [*((rule, []) for rule in BY_USERS.values()), (others_rule, [DESCENT] * 2), (momentum_rule, [MOMENTUM])],
    ids=[*BY_USERS, "each other's values", "momentum"],
)
def test_updates_that_users_write(rule: Rule, expected: list[str]) -> None:
    """What no kernel does is compiled as it stands."""
    shape = (ROWS.size, COLUMNS.size)
    generator = np.random.default_rng(0)
    names = ["weight", "m", "v"]
    initial = {name: generator.uniform(1.0, 2.0, shape).astype(np.float32) for name in names}
    g = generator.uniform(0.5, 1.5, shape).astype(np.float32)

    def step(x: mtf.Tensor) -> mtf.Tensor:  # [rows, columns]
        variables = [mtf.get_variable(x.mesh, n, [ROWS, COLUMNS], initializer=initial[n]) for n in names]
        for variable, new in zip(variables, rule(*variables, x, mtf.sqrt), strict=True):
            mtf.assign(variable, variable if new is None else new)
        return mtf.reduce_sum(x)

    program = mtf.function(step, mtf.SpmdMeshImpl("all:1", ""), inputs={"x": mtf.TensorSpec([ROWS, COLUMNS])})
    program(x=g)
    assert kernels_of(program) == expected
    values = rule(*(initial[n].astype(np.float64) for n in names), g.astype(np.float64), np.sqrt)
    for name, value in zip(names, values, strict=True):
        wanted = initial[name] if value is None else value
        assert_close(program.variables[name], wanted, terms=2 * FUNCTION_TERMS, what=name)
