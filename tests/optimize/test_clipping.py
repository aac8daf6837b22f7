from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

import meshtf as mtf
from meshtf import optimize
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.optimize.interpreted_training import LAYOUTS, InterpretedTraining

BATCH, INNER, OUTER = mtf.Dimension("batch", 8), mtf.Dimension("inner", 4), mtf.Dimension("outer", 4)


def gradients_after(clips: object, mesh_shape: str, layout: str, wanted: np.ndarray) -> Mapping[str, np.ndarray]:
    """What a step of one takes off weights whose gradients are `wanted` and its column sums, which cores sum."""

    def step(x: mtf.Tensor, mesh: mtf.Mesh) -> mtf.Tensor:
        w = mtf.get_variable(mesh, "w", [INNER, OUTER], initializer=mtf.zeros)
        b = mtf.get_variable(mesh, "b", [OUTER], initializer=mtf.zeros)
        loss = mtf.reduce_sum(x * (w + b))
        optimize.ClippedOptimizer(optimize.SgdOptimizer(1.0), clips).minimize(loss)  # type: ignore[arg-type]
        return loss

    training = InterpretedTraining(step, {"x": mtf.TensorSpec([BATCH, INNER, OUTER])}, mesh_shape, layout)
    training.step(x=np.broadcast_to(wanted / BATCH.size, (8, 4, 4)).astype(np.float32))
    return {name: -training[name] for name in ("w", "b")}


WANTED = np.random.default_rng(0).normal(size=(4, 4))
WHOLE = {"w": WANTED, "b": WANTED.sum(0)}
NORM = float(np.sqrt(sum((g**2).sum() for g in WHOLE.values())))


@pytest.mark.parametrize(("mesh_shape", "layout"), [("all:1", ""), *LAYOUTS])
@pytest.mark.parametrize(("max_norm", "factor"), [(NORM / 4, 0.25), (NORM * 1.01, 1.0)])
def test_global_norm_is_exact_under_layouts(mesh_shape: str, layout: str, max_norm: float, factor: float) -> None:
    layout = layout.replace("hidden", "outer")
    actual = gradients_after([optimize.ClipByGlobalNorm(max_norm)], mesh_shape, layout, WANTED)
    for name, whole in WHOLE.items():
        assert_close(actual[name], whole * factor, terms=(8, 20, 2 * FUNCTION_TERMS))


@pytest.mark.parametrize(("mesh_shape", "layout"), [("all:1", ""), ("rows:2;cols:2", "batch:rows;outer:cols")])
def test_values_are_clipped_of_the_whole_gradient(mesh_shape: str, layout: str) -> None:
    """Not of the terms of its sum, which the cores hold."""
    actual = gradients_after(optimize.ClipByValue(0.5), mesh_shape, layout, WANTED)
    for name, whole in WHOLE.items():
        assert_close(actual[name], np.clip(whole, -0.5, 0.5), terms=8)


def test_clips_are_done_in_order() -> None:
    clips = [optimize.ClipByValue(0.5), optimize.ClipByGlobalNorm(0.1)]
    actual = gradients_after(clips, "all:1", "", WANTED)
    limited = {name: np.clip(whole, -0.5, 0.5) for name, whole in WHOLE.items()}
    norm = np.sqrt(sum((g**2).sum() for g in limited.values()))
    for name, whole in limited.items():
        assert_close(actual[name], whole * 0.1 / norm, terms=(8, 20, 2 * FUNCTION_TERMS))


def test_gradients_of_zero_stay_zero() -> None:
    actual = gradients_after([optimize.ClipByGlobalNorm(1.0)], "all:1", "", np.zeros((4, 4)))
    assert not actual["w"].any()


def test_a_step_whose_gradient_is_no_number_is_seen() -> None:
    """Scaling must not turn it into one."""
    wanted = WANTED.copy()
    wanted[0, 0] = np.nan
    assert np.isnan(gradients_after([optimize.ClipByGlobalNorm(1.0)], "all:1", "", wanted)["w"]).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optimize.ClipByGlobalNorm(0.0), r"ClipByGlobalNorm: max_norm must be above 0, and is 0\.0"),
        (lambda: optimize.ClipByValue(-1.0), r"ClipByValue: limit must be above 0, and is -1\.0"),
        (
            lambda: optimize.ClippedOptimizer(optimize.SgdOptimizer(0.1), [1.0]),
            r"clips must be a list, each a GradientTransformation, and is \[1\.0\]",
        ),
        (
            lambda: optimize.ClippedOptimizer(optimize.SgdOptimizer, [optimize.ClipByValue(1.0)]),
            r"ClippedOptimizer: optimizer must be an Optimizer, and is <class.*SgdOptimizer'>; in gin @Name\(\)",
        ),
    ],
)
def test_what_clipping_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("mesh_shape", "layout"), [("all:1", ""), ("rows:2;cols:2", "batch:rows;outer:cols")])
@pytest.mark.parametrize("size", [1e20, 1e37, 1e-19, 1e-30])
def test_norms_are_right_where_squares_are_no_float32(size: float, mesh_shape: str, layout: str) -> None:
    """The norm of WANTED and its column sums is NORM; that of `size` times these is `size` times it."""
    max_norm = min(size, 1.0)
    clipped = gradients_after([optimize.ClipByGlobalNorm(max_norm)], mesh_shape, layout, WANTED * size)
    for name, whole in WHOLE.items():
        assert_close(clipped[name], whole * (max_norm / NORM), terms=(8, 20, 2 * FUNCTION_TERMS))


def test_a_norm_may_be_larger_than_any_number_with_a_reciprocal() -> None:
    """1 / 1e38 is no float32, and 100 / 1e38 is one."""
    clipped = gradients_after([optimize.ClipByGlobalNorm(100.0)], "all:1", "", WANTED * (1.2e38 / NORM))
    for name, whole in WHOLE.items():
        assert_close(clipped[name], whole * (100.0 / NORM), terms=(8, 20, 2 * FUNCTION_TERMS))


@pytest.mark.parametrize(("mesh_shape", "layout"), [("all:1", ""), ("rows:2;cols:2", "batch:rows;outer:cols")])
def test_a_gradient_that_cannot_be_scaled_is_seen(mesh_shape: str, layout: str) -> None:
    """An infinite one has no direction, and 1 / 1e38 is no float32: neither becomes 0."""
    infinite = WANTED.copy()
    infinite[0, 0] = np.inf
    for wanted, max_norm in ((infinite, 1.0), (WANTED * 1e37, 1e-3)):
        assert np.isnan(gradients_after([optimize.ClipByGlobalNorm(max_norm)], mesh_shape, layout, wanted)["w"]).all()


@pytest.mark.parametrize("size", [1e20, 1.0, 1e-25])
def test_steps_relative_to_the_weights_do_not_hang_on_the_size_of_the_gradient(size: float) -> None:
    """The step of LARS is as long as the weights, times its coefficient, whatever the gradient's length."""

    def step(x: mtf.Tensor, mesh: mtf.Mesh) -> mtf.Tensor:
        w = mtf.get_variable(mesh, "w", [INNER, OUTER], initializer=mtf.ones)
        loss = mtf.reduce_sum(x * w)
        optimize.LarsOptimizer(1.0, momentum=0.0, trust_coefficient=0.25).minimize(loss)
        return loss

    training = InterpretedTraining(step, {"x": mtf.TensorSpec([INNER, OUTER])}, "rows:2;cols:2", "outer:cols")
    training.step(x=(WANTED * size).astype(np.float32))
    expected = 1.0 - WANTED / np.linalg.norm(WANTED) * (0.25 * np.linalg.norm(np.ones((4, 4))))
    assert_close(training["w"], expected, terms=(16, 16, 3 * FUNCTION_TERMS))
