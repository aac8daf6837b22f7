"""`stop_gradient` where a condition holds: what is stopped is zero, NaN or not, and sums over cores wait behind it."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret, plan
from meshtf.thresholds import SMALL_ELEMENTS

ROWS, COLS, OUT = mtf.Dimension("rows", 4), mtf.Dimension("cols", 6), mtf.Dimension("out", 3)
X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
IS_STOPPED = np.array([True, False, False, True])


def gradient_of_root(x: mtf.Tensor, is_stopped: mtf.Tensor) -> list[mtf.Tensor]:
    """The second too: the gradient of the squared gradient."""
    y = mtf.reduce_sum(mtf.sqrt(mtf.stop_gradient(x, where=is_stopped)))
    (first,) = mtf.gradients(y, [x])
    return [first, mtf.gradients(mtf.reduce_sum(mtf.square(first)), [x])[0]]


@pytest.mark.parametrize("layout", ["", "rows:a", "rows:a;cols:b", "cols:a+b"])
def test_what_is_stopped_is_zero_also_where_the_gradient_would_be_a_nan(layout: str) -> None:
    x = np.where(IS_STOPPED[:, None], -1.0, np.abs(X) + 0.5).astype(np.float32)
    feeds = {"x": (mtf.Shape([ROWS, COLS]), x), "is_stopped": (mtf.Shape([ROWS]), IS_STOPPED)}
    first, second = interpret(gradient_of_root, feeds, "a:2;b:2" if "+" not in layout else "a:2;b:3", layout).results
    flowing = ~IS_STOPPED[:, None] * np.ones_like(x)
    assert_close(first, flowing * 0.5 / np.sqrt(np.abs(x)), terms=FUNCTION_TERMS)
    assert_close(second, flowing * -0.25 / np.square(x), terms=2 * FUNCTION_TERMS)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_large_slice_with_one_condition_is_kept_or_dropped_as_a_whole(is_stopped: bool) -> None:
    rows, cols = mtf.Dimension("rows", 2), mtf.Dimension("cols", SMALL_ELEMENTS)
    x = np.full([2, cols.size], 4.0, np.float32)
    conditions = np.array([is_stopped, not is_stopped])
    specs = {"x": mtf.TensorSpec([rows, cols]), "is_stopped": mtf.TensorSpec([rows], "bool")}
    for mesh_impl in (mtf.SpmdMeshImpl("all:2", "rows:all"), mtf.SpmdMeshImpl("all:1", "")):
        first, second = mtf.function(gradient_of_root, mesh_impl, inputs=specs)(x=x, is_stopped=conditions)
        assert_close(first, np.where(conditions[:, None], 0.0, 0.25 * np.ones_like(x)), terms=FUNCTION_TERMS)
        assert_close(second, np.where(conditions[:, None], 0.0, -0.25 / 16 * np.ones_like(x)), terms=2 * FUNCTION_TERMS)


def test_a_sum_over_cores_is_done_once_behind_it() -> None:
    """In a loop over steps the gradient of weights is summed over the cores after the last, not in each."""
    steps = mtf.Dimension("steps", 5)

    def program(x: mtf.Tensor, is_stopped: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [COLS, OUT])

        def step(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            own = mtf.stop_gradient(w, where=parts[0])
            h = mtf.einsum([carried[0], own], output_shape=[ROWS, OUT])
            return [carried[0] + mtf.einsum([h, own], output_shape=x.shape)], []

        (y,), _ = mtf.scan(step, x, [is_stopped], steps)
        return mtf.gradients(mtf.reduce_sum(mtf.square(y)), [w])[0]

    mesh_impl = mtf.PlanMeshImpl("all:2", "rows:all")
    specs = {"x": mtf.TensorSpec([ROWS, COLS]), "is_stopped": mtf.TensorSpec([steps], "bool")}
    found = mtf.function(program, mesh_impl, inputs=specs).report().collectives
    assert [(c.kind, c.times) for c in found] == [("all_reduce", 1)]


def test_conditions_that_are_none_are_refused() -> None:
    spec = {"x": mtf.TensorSpec([ROWS, COLS])}
    with pytest.raises(DtypeError, match="where must be a bool condition, not float32; make one with a comparison"):
        plan(lambda x: mtf.stop_gradient(x, where=x), spec, "all:1")
    with pytest.raises(ShapeError, match='"out"'):
        plan(lambda x: mtf.stop_gradient(x, where=mtf.zeros(x.mesh, [OUT], "bool")), spec, "all:1")
