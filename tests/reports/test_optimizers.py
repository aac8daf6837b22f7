"""Reports of other systems about learning rates, moments, means of weights and decay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import optimize
from meshtf.testing import interpret
from tests.optimize.interpreted_training import InterpretedTraining

pytestmark = pytest.mark.quick

INPUTS = {"g": mtf.TensorSpec("n:8")}
GRADS = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)


def training(optimizer: optimize.Optimizer, dtype: tf.DType = tf.float32, fetch: str | None = None) -> Any:
    """A weight of eight ones, whose gradients are fed; a step returns what is exported by a name, or the loss."""

    def step(g: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(g.mesh, "w", "n:8", dtype, initializer=mtf.ones)
        loss = mtf.reduce_sum(mtf.cast(w, tf.float32) * g)
        optimizer.minimize(loss)
        return loss.graph.exports[fetch] if fetch else loss

    return InterpretedTraining(step, INPUTS, "rows:1", "")


def rates(schedule: optimize.Schedule, steps: np.ndarray) -> np.ndarray:
    return interpret(schedule, {"step": (f"step:{len(steps)}", steps.astype(np.float32))}, "rows:1").results


def test_a_rate_falls_from_where_the_warm_up_ends() -> None:
    """huggingface/transformers#4940: the decay ran from step 0, and the rate fell where the warm-up ends."""
    schedule = optimize.WarmUpSchedule(10, optimize.CosineSchedule(1.0, 20))
    found = rates(schedule, np.arange(40))
    falling = 0.5 + 0.5 * np.cos(np.pi * np.minimum(np.arange(30) / 20, 1))
    np.testing.assert_allclose(found, np.concatenate([np.arange(10) / 10, falling]), atol=4 * 2**-24)
    assert found.argmax() == 10


@pytest.mark.parametrize("end", [0.0, 1e-9, 0.1, 3.0])
def test_a_rate_begins_and_ends_with_the_numbers_given(end: float) -> None:
    """pytorch/pytorch#35461: 1 + (1e-9 - 1) is 0 in float32, and the last rate of a line was 0."""
    for schedule in (optimize.LinearSchedule(1.0, end, 7), optimize.CosineSchedule(1.0, 7, end)):
        found = rates(schedule, np.array([7, 8, 10**7]))
        np.testing.assert_array_equal(found, np.float32(end))
        np.testing.assert_allclose(rates(schedule, np.array([0])), 1.0, rtol=2**-22)


def test_a_resumed_run_has_the_rate_of_its_step() -> None:
    """huggingface/transformers#24656, deepspeedai/DeepSpeed#4344: it began with the warm-up again, or stood still."""
    schedule = optimize.WarmUpSchedule(4, optimize.LinearSchedule(1.0, 0.0, 4))
    run, second = (training(optimize.AdamWOptimizer(schedule), fetch="adam/learning_rate") for _ in range(2))
    seen = [run.step(g=g) for g in GRADS[:3]]
    for name, value in run.variables.items():
        second[name] = value
    assert seen + [second.step(g=g) for g in GRADS[3:]] == [0.0, 0.25, 0.5, 0.75, 1.0, 0.75]


def test_a_decay_of_0_is_no_division_by_0() -> None:
    """google-deepmind/optax#46: 0^t of integers overflowed, and every 64th step was NaN."""
    run = training(optimize.AdamOptimizer(0.125, beta_1=0, beta_2=0, epsilon=0.0))
    for step in range(1, 130):
        run.step(g=np.where(np.arange(8) % 2, 3.0, -0.5).astype(np.float32))
        moved = np.where(np.arange(8) % 2, 1 - step * 0.125, 1 + step * 0.125)
        np.testing.assert_allclose(run.variables["w"], moved, rtol=4 * 130 * 2**-24)


@pytest.mark.parametrize("make", [optimize.AdamOptimizer, optimize.LambOptimizer, optimize.AdamWOptimizer])
def test_bias_is_corrected_after_any_number_of_steps(make: Callable[..., optimize.Optimizer]) -> None:
    """google-deepmind/optax#187: the count of steps is a signed number, and must not come back from its end."""
    ours, plain = training(make(1e-3)), training(make(1e-3))
    counter = next(name for name in ours.variables if name.endswith("/step"))
    for count in (10**6, 2**24, 2**30):
        ours[counter] = np.int32(count)
        ours["w"] = np.ones(8, np.float32)
        for name in ("w/adam_m", "w/adam_v"):
            ours[name] = np.full(8, 0.25, np.float32)
        ours.step(g=np.full(8, 0.5, np.float32))
        m, v = 0.9 * 0.25 + 0.1 * 0.5, 0.999 * 0.25 + 0.001 * 0.25
        assert ours.variables[counter] == count + 1
        assert np.all(ours.variables["w"] < 1)
        if make is optimize.AdamOptimizer:
            np.testing.assert_allclose(ours.variables["w"], 1 - 1e-3 * m / np.sqrt(v), rtol=4 * 2**-24)
    assert counter in plain.variables


def test_adafactor_decays_from_the_first_step_on() -> None:
    """google-deepmind/optax#1791: a power of a count below 0 was NaN, and stayed in the second moment."""
    run = training(optimize.AdafactorOptimizer(0.1))
    for g in GRADS:
        run.step(g=g)
    assert np.isfinite(run.variables["w"]).all()
    first = training(optimize.AdafactorOptimizer(0.1))
    first.step(g=GRADS[0])
    np.testing.assert_allclose(first.variables["w/adafactor_v"], GRADS[0] ** 2, rtol=4 * 2**-24)


def test_weights_decay_with_the_rate_or_by_themselves() -> None:
    """NVIDIA/apex#1849, keras-team/keras#16517: whether the schedule multiplies the decay; here each by its name."""
    schedule = optimize.LinearSchedule(0.5, 0.25, 1)
    coupled = training(optimize.AdamWOptimizer(schedule, weight_decay=0.1))
    apart = training(optimize.WeightDecayOptimizer(optimize.AdamOptimizer(schedule), rate=0.1))
    expected = {"coupled": 1.0, "apart": 1.0}
    for rate in (0.5, 0.25, 0.25):
        for run in (coupled, apart):
            run.step(g=np.zeros(8, np.float32))
        expected = {"coupled": expected["coupled"] * (1 - rate * 0.1), "apart": expected["apart"] * (1 - 0.1)}
        for name, run in (("coupled", coupled), ("apart", apart)):
            np.testing.assert_allclose(run.variables["w"], expected[name], rtol=16 * 2**-24)


def test_means_of_bfloat16_weights_move() -> None:
    """d8ahazard/sd_dreambooth_extension#1417: 0.001 of a weight is below bfloat16's last digit, and no mean moved."""
    decay, run = 0.999, training(optimize.MovingAverageOptimizer(optimize.SgdOptimizer(0.25), 0.999), tf.bfloat16)
    weights: list[np.ndarray] = []
    for _ in range(20):
        run.step(g=np.full(8, 0.0625, np.float32))
        weights.append(run.variables["w"].astype(np.float64))
    shares = decay ** np.arange(19, -1, -1)
    expected = (np.array(weights) * shares[:, None]).sum(0) / shares.sum()
    assert run.variables["w/ema"].dtype == np.float32
    np.testing.assert_allclose(run.variables["w/ema"], expected, rtol=40 * 2**-24)
    assert len(set(weights[0] - weights[-1])) == 1
    assert weights[-1][0] < weights[0][0]


def test_a_shared_weight_has_the_sum_of_its_gradients_and_counts_once() -> None:
    """NVIDIA/Megatron-LM#7228: a tied weight was two, and the norm of all gradients too large by the root of 2."""

    def step(g: mtf.Tensor) -> Mapping[str, mtf.Tensor]:
        w = mtf.get_variable(g.mesh, "w", "n:8", initializer=mtf.ones)
        again = mtf.get_variable(g.mesh, "w", "n:8", initializer=mtf.ones)
        clip = [optimize.ClipByGlobalNorm(1e9)]
        loss = mtf.reduce_sum(w * g) + mtf.reduce_sum(again * g * 2.0)
        optimize.ClippedOptimizer(optimize.SgdOptimizer(0.5), clip).minimize(loss)
        return loss.graph.exports["clip_by_global_norm/gradient_norm"]

    done = interpret(step, {"g": ("n:8", GRADS[0])}, "rows:2", "n:rows")
    np.testing.assert_allclose(done.results, 3 * np.sqrt((GRADS[0].astype(np.float64) ** 2).sum()), rtol=16 * 2**-24)
    np.testing.assert_allclose(done.variables["w"], 1 - 1.5 * GRADS[0], atol=8 * 2**-24)
