from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import optimize
from meshtf.errors import GraphError
from meshtf.lowering.passes.pass_options import DEFAULT_PASS_OPTIONS, PassOptions
from meshtf.testing import FUNCTION_TERMS, assert_close

BATCH, INNER, OUTER = mtf.Dimension("batch", 4), mtf.Dimension("inner", 4), mtf.Dimension("outer", 2)
INPUTS = {"x": mtf.TensorSpec([BATCH, INNER])}
X = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)


def model(x: mtf.Tensor) -> mtf.Tensor:
    w = mtf.get_variable(x.mesh, "w", [INNER, OUTER])
    scale = mtf.get_variable(x.mesh, "scale", [OUTER], initializer=mtf.ones, trainable=False)
    return mtf.einsum([x, w], output_shape=[BATCH, OUTER]) * scale


def training_program(
    optimizer: optimize.Optimizer, mesh_impl: mtf.SpmdMeshImpl, pass_options: PassOptions = DEFAULT_PASS_OPTIONS
) -> mtf.Function:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        loss = mtf.reduce_mean(mtf.square(model(x) - 1.0))
        optimizer.minimize(loss)
        return loss

    return mtf.function(step, mesh_impl, inputs=INPUTS, pass_options=pass_options)


def test_a_program_evaluates_with_the_means() -> None:
    """As they are when it runs, though they are kept in shares and the weights whole."""
    mesh_impl = mtf.SpmdMeshImpl("all:2", "batch:all")
    optimizer = optimize.MovingAverageOptimizer(optimize.SgdOptimizer(0.5), 0.5)
    step = training_program(optimizer, mesh_impl, PassOptions(smallest_divided_update=2))
    step(x=X)
    assert step.variables.slices("w/ema").layout != step.variables.slices("w").layout
    evaluate = mtf.function(model, mesh_impl, inputs=INPUTS, variables=optimize.averaged(step.variables))
    for _ in range(2):
        step(x=X)
        mean = step.variables["w/ema"]
        assert not np.allclose(mean, step.variables["w"])
        assert_close(evaluate(x=X), X @ mean, terms=4)


def test_the_first_mean_is_the_weight() -> None:
    step = training_program(
        optimize.MovingAverageOptimizer(optimize.SgdOptimizer(0.5), 0.999), mtf.SpmdMeshImpl("all:1", "")
    )
    step(x=X)
    assert_close(step.variables["w/ema"], step.variables["w"], terms=2 * FUNCTION_TERMS)


def test_a_decay_of_weights_that_are_averaged_before_is_refused() -> None:
    """Its mean would be of weights that the program never had."""
    averaging, mesh_impl = optimize.MovingAverageOptimizer(optimize.SgdOptimizer(0.5)), mtf.SpmdMeshImpl("all:1", "")
    groups = optimize.ParameterGroups([("w", averaging)], optimize.SgdOptimizer(0.5))
    with pytest.raises(GraphError, match=r"decays w after MovingAverageOptimizer has averaged it, so w/ema would be"):
        training_program(optimize.WeightDecayOptimizer(groups, 0.5), mesh_impl)
    groups = optimize.ParameterGroups([("w", optimize.SgdOptimizer(0.5))], averaging)
    training_program(optimize.WeightDecayOptimizer(groups, 0.5), mesh_impl)
    training_program(optimize.WeightDecayOptimizer(averaging, 0.5, exclude=["w"]), mesh_impl)


def test_there_must_be_means() -> None:
    with pytest.raises(GraphError, match=r"no variable is called <name>/ema: train with MovingAverageOptimizer"):
        optimize.averaged(mtf.VariableStore())


def test_a_variable_whose_own_name_ends_like_a_mean() -> None:
    """Such as the moving codebook of a model."""
    store = mtf.VariableStore()
    program = mtf.function(named_ema, mtf.SpmdMeshImpl("all:1", ""), variables=store)
    program()
    assert set(optimize.averaged(store)) == {"w", "codebook/ema", "ema/step"}
    np.testing.assert_array_equal(optimize.averaged(store)["codebook/ema"], [1.0] * INNER.size)


def named_ema(mesh: mtf.Mesh) -> mtf.Tensor:
    w = mtf.get_variable(mesh, "w", [INNER], initializer=mtf.ones)
    codebook = mtf.get_variable(mesh, "codebook/ema", [INNER], initializer=mtf.ones, trainable=False)
    optimize.MovingAverageOptimizer(optimize.SgdOptimizer(0.5)).minimize(mtf.reduce_sum(w * codebook))
    return mtf.reduce_sum(w)


def test_means_of_narrow_weights_are_wider() -> None:
    def step(mesh: mtf.Mesh) -> mtf.Tensor:
        w = mtf.get_variable(mesh, "w", [INNER], tf.bfloat16, initializer=mtf.ones)
        loss = mtf.reduce_sum(w)
        optimize.MovingAverageOptimizer(optimize.SgdOptimizer(0.5)).minimize(loss)
        return loss

    program = mtf.function(step, mtf.SpmdMeshImpl("all:1", ""))
    program()
    with pytest.raises(GraphError, match=r"w is bfloat16, but its mean w/ema is float32, .*evaluate narrow weights"):
        optimize.averaged(program.variables)


def test_decay_of_one() -> None:
    with pytest.raises(ValueError, match=r"MovingAverageOptimizer: decay must be in \[0, 1\), and is 1"):
        optimize.MovingAverageOptimizer(optimize.SgdOptimizer(0.1), 1)
