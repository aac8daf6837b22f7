from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import optimize
from meshtf.errors import GraphError
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.testing import assert_close
from tests.optimize.interpreted_training import InterpretedTraining

pytestmark = pytest.mark.plain_cpu

ROWS = mtf.Dimension("rows", 4096)
STEP = 2.0**-13  # of which bfloat16 has 32 between 1 and the number below


def trained(
    optimizer: optimize.Optimizer, dtype: mtf.VariableDType, num_steps: int, layout: str = "", steps_of: float = STEP
) -> InterpretedTraining:
    """Weights of 1, from which every step takes `steps_of`, less than half of what bfloat16 can tell from 1."""

    def step(mesh: mtf.Mesh) -> mtf.Tensor:
        w = mtf.get_variable(mesh, "w", [ROWS], dtype, initializer=mtf.ones)
        loss = mtf.reduce_sum(mtf.cast(w, tf.float32)) * steps_of
        optimizer.minimize(loss)
        return loss

    training = InterpretedTraining(step, {}, "all:4", layout)
    for _ in range(num_steps):
        training.step()
    return training


BFLOAT16 = mtf.VariableDType(tf.bfloat16)
NARROW = mtf.VariableDType(tf.bfloat16, activation_dtype=tf.float32)
SGD = optimize.SgdOptimizer(1.0)


def plain(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32)


def test_without_help_small_updates_are_lost() -> None:
    assert (plain(trained(SGD, BFLOAT16, 20)["w"]) == 1).all()


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
@pytest.mark.parametrize("layout", ["", "rows:all"])
def test_master_weights_are_those_of_float32_training(dtype: tf.DType, layout: str) -> None:
    narrow = trained(optimize.MasterWeightsOptimizer(SGD), mtf.VariableDType(dtype), 100, layout)
    wide = trained(SGD, mtf.VariableDType(tf.float32), 100)
    np.testing.assert_array_equal(narrow["w/master"], wide["w"])
    np.testing.assert_array_equal(plain(narrow["w"]), plain(tf.cast(wide["w"], dtype).numpy()))


@pytest.mark.parametrize(("dtype", "value"), [(tf.bfloat16, 3.0), (tf.float16, 1 + 2 * 2.0**-10)])
def test_weights_that_were_set_win_over_their_copies(dtype: tf.DType, value: float) -> None:
    """Even those that are only two numbers of float16 away."""
    training = trained(optimize.MasterWeightsOptimizer(SGD), mtf.VariableDType(dtype), 3)
    training["w"] = np.full(ROWS.size, value).astype(dtype.as_numpy_dtype)
    training.step()
    np.testing.assert_array_equal(training["w/master"], np.float32(value - STEP))


def test_tiny_weights_of_bfloat16_are_not_taken_for_rounded_zeros() -> None:
    training = trained(optimize.MasterWeightsOptimizer(SGD), BFLOAT16, 0, steps_of=0.0)
    training["w"] = np.full(ROWS.size, 2.0**-30).astype(tf.bfloat16.as_numpy_dtype)
    training.step()
    np.testing.assert_array_equal(training["w/master"], np.float32(2.0**-30))


class Narrowing(optimize.Optimizer):
    """Rounds the new weights to bfloat16."""

    def update(self, parameters: Sequence[optimize.Parameter]) -> list[mtf.Tensor]:
        return [mtf.cast(p.value - STEP / 2, tf.bfloat16) for p in parameters]


def test_a_weight_that_an_optimizer_rounds_is_stored_rounded() -> None:
    found = trained(Narrowing(), mtf.VariableDType(tf.float32), 1)["w"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, found.astype(tf.bfloat16.as_numpy_dtype).astype(np.float32))


def test_wide_weights_need_no_copies() -> None:
    training = trained(optimize.MasterWeightsOptimizer(SGD), mtf.VariableDType(tf.float32), 1)
    assert set(training.variables) == {"w"}


@pytest.mark.parametrize("rounding", [optimize.MasterWeightsOptimizer, optimize.StochasticRoundingOptimizer])
def test_a_decay_of_weights_that_are_rounded_before_is_refused(
    rounding: Callable[[optimize.Optimizer], optimize.Optimizer],
) -> None:
    inside = rounding(optimize.WeightDecayOptimizer(SGD, STEP))
    assert np.mean(plain(trained(inside, BFLOAT16, 64, steps_of=0.0)["w"])) < 1 - 32 * STEP
    around = optimize.WeightDecayOptimizer(optimize.ParameterGroups([("w", rounding(SGD))], SGD), STEP)
    with pytest.raises(GraphError, match=rf"decays w, which is bfloat16, after {rounding.__name__} has rounded it"):
        trained(around, BFLOAT16, 1)
    assert (trained(around, mtf.VariableDType(tf.float32), 1, steps_of=0.0)["w"] < 1).all()


def test_float32_weights_that_programs_read_in_bfloat16_are_updated_in_float32() -> None:
    training = trained(SGD, mtf.VariableDType(tf.float32, activation_dtype=tf.bfloat16), 5)
    assert_close(training["w"], 1 - 5 * STEP, terms=5)


def test_stochastic_rounding_is_right_in_the_mean() -> None:
    weights = plain(trained(optimize.StochasticRoundingOptimizer(SGD), BFLOAT16, 20)["w"])
    assert set(np.unique(weights)) <= {np.float32(1 - i / 256) for i in range(21)}
    deviation = np.sqrt(20 / 32 / ROWS.size) / 256  # of the mean: each step takes off 0 or, once in 32 times, 1/256
    assert abs(float(weights.mean()) - (1 - 20 * STEP)) < 5 * deviation


@pytest.mark.parametrize(
    "optimizer",
    [
        optimize.StochasticRoundingOptimizer(optimize.MasterWeightsOptimizer(SGD)),
        optimize.MasterWeightsOptimizer(optimize.StochasticRoundingOptimizer(SGD)),
    ],
)
def test_weights_with_copies_are_not_rounded_at_random(optimizer: optimize.Optimizer) -> None:
    training = trained(optimizer, BFLOAT16, 0)
    training["w"] = np.full(ROWS.size, 1 + 2.0**-5).astype(tf.bfloat16.as_numpy_dtype)
    for _ in range(4):
        training.step()
    np.testing.assert_array_equal(training["w/master"], np.float32(1 + 2.0**-5 - 4 * STEP))


def test_stochastic_rounding_does_not_depend_on_the_layout() -> None:
    optimizer = optimize.StochasticRoundingOptimizer(SGD)
    whole, split = (plain(trained(optimizer, BFLOAT16, 3, layout)["w"]) for layout in ("", "rows:all"))
    np.testing.assert_array_equal(whole, split)
    assert (whole != 1).any()


def test_stochastic_rounding_does_not_depend_on_micro_batches() -> None:
    batch, optimizer = mtf.Dimension("batch", 8), optimize.StochasticRoundingOptimizer(SGD)

    def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        x = features["x"]
        w = mtf.get_variable(x.mesh, "w", [ROWS], NARROW, initializer=mtf.ones)
        return {"loss": mtf.reduce_sum(w) * mtf.reduce_sum(x)}

    def step(x: mtf.Tensor) -> mtf.Tensor:
        gradients, outputs = mtf.serialize_training_step({"x": x}, model, batch, num_splits=4)
        optimizer.apply_grads(gradients, x.graph.trainable_variables)
        return outputs["loss"]

    in_parts = InterpretedTraining(step, {"x": mtf.TensorSpec([batch])}, "all:1", "")
    for _ in range(3):
        in_parts.step(x=np.full([8], STEP / 8, np.float32))
    np.testing.assert_array_equal(plain(in_parts["w"]), plain(trained(optimizer, NARROW, 3)["w"]))
    assert (plain(in_parts["w"]) != 1).any()


@pytest.mark.parametrize("num_rows", [4096, 4099])
def test_stochastic_rounding_is_divided_among_cores(num_rows: int) -> None:
    """Each rounds its share of the weights, and draws the bits for them alone; where shares are padded too."""
    batch, rows = mtf.Dimension("batch", 8), mtf.Dimension("rows", num_rows)

    def step(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [rows], NARROW, initializer=mtf.ones)
        loss = mtf.reduce_sum(x * w) * STEP
        optimize.StochasticRoundingOptimizer(SGD).minimize(loss)
        return loss

    def training(layout: str) -> InterpretedTraining:
        options = PassOptions(smallest_divided_update=2)
        return InterpretedTraining(step, {"x": mtf.TensorSpec([batch, rows])}, "data:8", layout, pass_options=options)

    divided, whole = training("batch:data"), training("")
    x = np.random.default_rng(0).integers(-64, 64, [8, num_rows]).astype(np.float32) / 64  # sums of which are exact
    for _ in range(2):
        assert_close(divided.step(x=x), whole.step(x=x), terms=8 * num_rows, dtype="float32")
    np.testing.assert_array_equal(plain(divided["w"]), plain(whole["w"]))
    assert len(np.unique(plain(whole["w"]))) > 2
    drawn = {c.outputs[0].slice_shape for c in divided.plan.instructions if getattr(c, "kind", "") == "random"}
    assert drawn == {(-(-num_rows // 8),)}
    assert [c.step.kind for c in divided.plan.collectives if c.output.shape.ndims] == ["reduce_scatter", "all_gather"]


@pytest.mark.parametrize(("outer_unrolled", "inner_unrolled"), [(True, True), (True, False), (False, True)])
def test_a_scan_is_rounded_as_its_layers_are(outer_unrolled: bool, inner_unrolled: bool) -> None:
    """Stacks inside stacks too."""
    layers, blocks, rows = mtf.Dimension("layers", 3), mtf.Dimension("blocks", 2), mtf.Dimension("rows", 64)

    def weights(is_outer_unrolled: bool, is_inner_unrolled: bool, mesh_shape: str) -> dict[str, np.ndarray]:
        def block(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            w = mtf.get_variable(carried[0].mesh, "w", [rows], NARROW, initializer=mtf.ones)
            return [carried[0] + mtf.reduce_sum(w) * STEP], []

        def layer(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            return mtf.layer_stack(block, carried, blocks, unroll=is_inner_unrolled, name="block")

        def step(mesh: mtf.Mesh) -> mtf.Tensor:
            (loss,), _ = mtf.layer_stack(layer, mtf.zeros(mesh, []), layers, unroll=is_outer_unrolled)
            optimize.StochasticRoundingOptimizer(SGD).minimize(loss)
            return loss

        training = InterpretedTraining(step, {}, mesh_shape, "rows:all")
        for _ in range(2):
            training.step()
        return by_layer(training)

    scan = weights(False, False, "all:2")
    assert len(scan) == layers.size * blocks.size
    assert len({w.tobytes() for w in scan.values()}) == len(scan)
    unrolled = weights(outer_unrolled, inner_unrolled, "all:1")
    assert set(unrolled) == set(scan)
    for name, w in scan.items():
        np.testing.assert_array_equal(unrolled[name], w, err_msg=name)


def by_layer(training: InterpretedTraining) -> dict[str, np.ndarray]:
    """The trained weights under their names in files."""
    variables = training.lowering.graph.trainable_variables
    return {
        name: part
        for v in variables
        for name, part in zip(v.saved_names, plain(training[v.full_name]).reshape(-1, 64), strict=True)
    }


def test_what_bfloat16_has_is_not_rounded() -> None:
    training = trained(optimize.StochasticRoundingOptimizer(SGD), BFLOAT16, 4, steps_of=0.25)
    assert (plain(training["w"]) == 0).all()


def test_infinities_stay() -> None:
    training = trained(optimize.StochasticRoundingOptimizer(SGD), BFLOAT16, 1, steps_of=float("-inf"))
    assert (plain(training["w"]) == np.inf).all()
