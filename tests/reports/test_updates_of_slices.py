"""Reports of other systems about updates of weights of which each device has a slice, and about steps of no size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import optimize
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.testing import interpret
from tests.optimize.interpreted_training import InterpretedTraining

pytestmark = pytest.mark.quick

BATCH, INNER, MID, VOCAB = (
    mtf.Dimension(name, size) for name, size in (("batch", 6), ("inner", 5), ("mid", 3), ("vocab", 7))
)
INPUTS = {"x": mtf.TensorSpec([BATCH, INNER]), "ids": mtf.TensorSpec([BATCH], tf.int32)}
DIVIDED = PassOptions(smallest_divided_update=2)
CLIP = optimize.ClipByGlobalNorm(0.3)

OPTIMIZERS: dict[str, optimize.Optimizer] = {
    "lamb": optimize.LambOptimizer(0.1, weight_decay=0.1),
    "adafactor": optimize.AdafactorOptimizer(0.1, beta_1=0.5),
    "mean of clipped adafactor": optimize.MovingAverageOptimizer(
        optimize.ClippedOptimizer(optimize.AdafactorOptimizer(0.1), [CLIP]), 0.9
    ),
}
LAYOUTS = (
    ("a:2", "batch:a", "vocab:a;mid:a"),
    ("a:2", "vocab:a", None),
    ("a:2;b:3", "batch:b;vocab:a", "inner:b"),
    ("a:4", "batch:a", "inner:a"),
)
"""None divides all of the sizes; the third argument is that of the parameters as they are kept."""


def tied_step(optimizer: optimize.Optimizer) -> Callable[..., mtf.Tensor]:
    """A step of a model of which one table is looked up and gives the logits."""

    def step(x: mtf.Tensor, ids: mtf.Tensor) -> mtf.Tensor:
        normal = mtf.RandomNormal(stddev=0.5)
        table = mtf.get_variable(x.mesh, "table", [VOCAB, INNER], initializer=normal)
        down = mtf.get_variable(x.mesh, "down", [INNER, MID], initializer=normal)
        up = mtf.get_variable(x.mesh, "up", [MID, INNER], initializer=normal)
        h = mtf.tanh(mtf.einsum([mtf.gather(table, ids, VOCAB) + x, down], output_shape=[BATCH, MID]))
        h = mtf.einsum([h, up], output_shape=[BATCH, INNER])
        logits = mtf.einsum([h, table], output_shape=[BATCH, VOCAB])
        loss = mtf.layers.softmax_cross_entropy_with_logits(logits, ids, VOCAB, 1e-2, label_smoothing=0.1)
        mean = mtf.reduce_mean(loss)
        optimizer.minimize(mean)
        return mean

    return step


def trained(name: str, mesh: str, layout: str, parameters: str | None) -> tuple[list[float], dict[str, np.ndarray]]:
    run = InterpretedTraining(tied_step(OPTIMIZERS[name]), INPUTS, mesh, layout, parameters, DIVIDED, max_padding=0.9)
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(3):
        x, ids = rng.normal(size=(6, 5)).astype(np.float32), rng.integers(0, 7, 6).astype(np.int32)
        losses.append(run.step(x=x, ids=ids))
    return losses, run.variables


@pytest.mark.parametrize(
    "name",
    ["mean of clipped adafactor", *(pytest.param(name, marks=pytest.mark.long) for name in ("lamb", "adafactor"))],
)
def test_statistics_of_whole_weights_know_nothing_of_slices_and_padding(name: str) -> None:
    """deepspeedai/DeepSpeed#490, #88, google-research/text-to-text-transfer-transformer#66, hpcaitech/ColossalAI#5484,
    pytorch/torchtitan#2495, facebookresearch/lingua#84: norms of layers cut anew by a partition, means over rows of
    which each device has a part, and a table that is kept in slices and used twice."""
    losses, variables = trained(name, "a:1", "", None)
    assert losses[0] != losses[1]
    for mesh, layout, parameters in LAYOUTS:
        found, others = trained(name, mesh, layout, parameters)
        np.testing.assert_allclose(found, losses, rtol=1e-5, err_msg=f"[{mesh}] {layout}")
        for variable, value in variables.items():
            own = others[variable][tuple(slice(size) for size in value.shape)]  # without padding
            np.testing.assert_allclose(own, value, rtol=1e-4, atol=1e-5, err_msg=f"{variable} [{mesh}] {layout}")


def stepped(optimizer: optimize.Optimizer, g: np.ndarray, layout: str, start: mtf.Initializer = mtf.ones) -> np.ndarray:
    """Weights and others whose gradient is 1, after a step in which that of the first was given."""

    def step(g: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(g.mesh, "w", "n:6", initializer=start)
        other = mtf.get_variable(g.mesh, "other", "n:6", initializer=start)
        loss = mtf.reduce_sum(w * g) + mtf.reduce_sum(other)
        optimizer.minimize(loss)
        return loss

    done = interpret(step, {"g": ("n:6", g.astype(np.float32))}, "rows:2", layout)
    return np.stack([done.variables["w"], done.variables["other"]])


@pytest.mark.parametrize("layout", ["", "n:rows"])
@pytest.mark.parametrize("size", [np.inf, np.nan])
def test_gradients_without_a_length_are_not_clipped_to_0(size: float, layout: str) -> None:
    """tensorflow/tensorflow#21363: 1 / inf is 0, and a step that trained nothing looked like any other."""
    clipped = optimize.ClippedOptimizer(optimize.SgdOptimizer(1.0), [optimize.ClipByGlobalNorm(1.0)])
    assert np.isnan(stepped(clipped, np.array([size, 1, 1, 1, 1, 1]), layout)).all()


@pytest.mark.parametrize("layout", ["", "n:rows"])
def test_gradients_whose_squares_are_no_float32_have_a_length(layout: str) -> None:
    """The same thread: 1e30 is clipped to 1, and the others are small beside it."""
    clipped = optimize.ClippedOptimizer(optimize.SgdOptimizer(1.0), [optimize.ClipByGlobalNorm(1.0)])
    w, other = stepped(clipped, np.array([1e30, 1, 1, 1, 1, 1]), layout)
    np.testing.assert_array_equal(w, [0, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(other, np.ones(6))


@pytest.mark.parametrize("size", [np.inf, np.nan])
def test_a_gradient_without_a_length_has_no_ratio_of_trust(size: float) -> None:
    """The same in LARS: a ratio of 0 moved nothing, and with a NaN a ratio of 1 moved a thousand times too far."""
    w, other = stepped(optimize.LarsOptimizer(0.5), np.array([size, 1, 1, 1, 1, 1]), "n:rows")
    assert np.isnan(w).all()
    assert np.all((other > 0.9) & (other < 1))


@pytest.mark.parametrize("layout", ["", "n:rows"])
def test_gradients_of_0_are_no_division_by_0(layout: str) -> None:
    """PaddlePaddle/Paddle#26282, keras-team/keras#14075, cybertronai/pytorch-lamb#6: a length of 0, of all gradients,
    of an update or of a weight."""
    clipped = optimize.ClippedOptimizer(optimize.SgdOptimizer(1.0), [optimize.ClipByGlobalNorm(1e-3)])
    lamb = optimize.LambOptimizer(0.5)
    for optimizer in (clipped, lamb, optimize.LarsOptimizer(0.5)):
        w, other = stepped(optimizer, np.zeros(6), layout)
        np.testing.assert_array_equal(w, np.ones(6))
        assert np.all(other < 1)
    w, other = stepped(lamb, np.zeros(6), layout, mtf.zeros)
    np.testing.assert_array_equal(w, np.zeros(6))
    np.testing.assert_allclose(other, np.full(6, -0.5), rtol=1e-5)  # of a weight of no length the ratio is 1


def test_bounds_and_decays_that_would_divide_by_0_are_refused() -> None:
    """google-deepmind/optax#1752, tinygrad/tinygrad#15724: a largest norm of 0, and a decay of 1."""
    with pytest.raises(ValueError, match="max_norm"):
        optimize.ClipByGlobalNorm(0.0)
    for field in ("beta_1", "beta_2"):
        with pytest.raises(ValueError, match=field):
            optimize.LambOptimizer(0.1, **{field: 1.0})  # type: ignore[arg-type]


def test_a_resumed_run_goes_on_from_the_weights_and_keeps_their_means() -> None:
    """ultralytics/yolov5#310, m2lines/Samudra#282: the means became the weights, and their count began anew."""
    grads = np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)

    def run() -> InterpretedTraining:
        def step(g: mtf.Tensor) -> mtf.Tensor:
            loss = mtf.reduce_sum(mtf.get_variable(g.mesh, "w", "n:8", initializer=mtf.ones) * g)
            optimize.MovingAverageOptimizer(optimize.AdamOptimizer(0.1), 0.9).minimize(loss)
            return loss

        return InterpretedTraining(step, {"g": mtf.TensorSpec("n:8")}, "rows:1", "")

    whole, first, second = run(), run(), run()
    for g in grads:
        whole.step(g=g)
    for g in grads[:3]:
        first.step(g=g)
    for name, value in first.variables.items():
        second[name] = value
    for g in grads[3:]:
        second.step(g=g)
    for name, value in whole.variables.items():
        np.testing.assert_array_equal(second[name], value)
    assert np.abs(whole["w"] - whole["w/ema"]).max() > 0.01
