"""Reports of other systems about dimensions that are split: what one device computes, many compute otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import assert_close, interpret
from tests.built_program import BuiltProgram, Inputs

pytestmark = pytest.mark.quick

MESHES = (("rows:2", "n:rows"), ("rows:4", "n:rows"), ("rows:2;cols:3", "n:rows+cols"), ("rows:8", "n:rows"))
"""Most of these do not divide the sizes below, and eight cores are more than some of them."""
MOSTLY_PADDING = 0.9


def test_a_mean_of_uneven_slices_is_the_mean_of_the_elements() -> None:
    """pytorch/pytorch#162692: the mean of the cores' means, and NaN where a core had nothing."""
    for size in (1, 3, 5, 7):
        x = np.arange(4.0 * size).reshape(size, 4)
        program = lambda x: [mtf.reduce_mean(x), *mtf.gradients(mtf.reduce_mean(x), [x])]  # noqa: E731
        for mesh, layout in MESHES:
            mean, grad = interpret(program, _named(x), mesh, layout, max_padding=MOSTLY_PADDING).results
            assert_close(mean, x.mean(), terms=x.size, magnitude=x.max(), what=f"{size} rows on [{mesh}]")
            np.testing.assert_array_equal(grad, np.full_like(x, 1 / x.size))


def test_a_layout_and_back_changes_no_size_and_no_element() -> None:
    """pytorch/pytorch#103306: five rows over four devices came back as eight."""
    x = np.arange(20.0).reshape(5, 4)
    program = lambda x: mtf.replicate(mtf.with_layout(mtf.replicate(x), "n:rows"))  # noqa: E731
    for mesh in ("rows:4", "rows:3", "rows:8"):
        done = interpret(program, _named(x), mesh, max_padding=MOSTLY_PADDING)
        np.testing.assert_array_equal(done.results, x)


def test_a_concatenation_of_split_and_whole_is_written_once() -> None:
    """jax-ml/jax#24576 and #19106: every element came out multiplied by the number of replicas."""

    def joined(x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
        return mtf.concat([x, y], "n")

    x, y = np.ones([4, 2]), np.full([12, 2], 3.0)
    inputs: Inputs = {"x": ("n:4 m:2", x), "y": ("n:12 m:2", y)}
    program = BuiltProgram(joined, inputs)
    for mesh, layout in (("data:4;model:2", "n:data"), ("data:4;model:2", "m:model"), ("data:4;model:2", "n:model")):
        np.testing.assert_array_equal(program.interpret(mesh, layout).results, np.concatenate([x, y]))

    whole = lambda x, y: joined(mtf.replicate(x), y)  # noqa: E731
    np.testing.assert_array_equal(interpret(whole, inputs, "data:4;model:2", "n:data").results, np.concatenate([x, y]))


def test_two_rolls_of_one_element_each_have_gradients() -> None:
    """jax-ml/jax#39301: with one element on a device, the transpose of two rolls became no program."""
    x, w = np.arange(1.0, 5.0), np.array([1.0, 10.0, 100.0, 1000.0])

    def grads(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        y = (mtf.roll(x, 1, "n") + mtf.roll(x, 3, "n")) * w
        return mtf.gradients(mtf.reduce_sum(y), [x])[0]

    done = interpret(grads, {"x": ("n:4", x), "w": ("n:4", w)}, "d:4", "n:d")
    np.testing.assert_array_equal(done.results, np.roll(w, -1) + np.roll(w, -3))


@pytest.mark.parametrize("begin", [7, -3, 2])
def test_a_slice_is_clamped_in_the_whole_dimension(begin: int) -> None:
    """openxla/xla#49122: each device clamped the beginning for itself, and all had the same last columns."""
    x, first = np.arange(16, dtype=np.int32).reshape(2, 8), min(max(begin, 0), 2)
    update = np.full([2, 6], -1, np.int32)

    def cut(x: mtf.Tensor, begin: mtf.Tensor) -> list[mtf.Tensor]:
        piece = mtf.constant(x.mesh, -1, "m:2 n:6", tf.int32)
        return [mtf.dynamic_slice(x, begin, 6, "n"), mtf.dynamic_update_slice(x, piece, begin, "n")]

    expected = x.copy()
    expected[:, first : first + 6] = update
    program = BuiltProgram(cut, {"x": ("m:2 n:8", x), "begin": ("", np.int32(begin))})
    for mesh, layout in (("rows:2", "n:rows"), ("rows:4", "n:rows"), ("rows:2;cols:2", "m:cols;n:rows")):
        piece, updated = program.interpret(mesh, layout).results
        np.testing.assert_array_equal(piece, x[:, first : first + 6])
        np.testing.assert_array_equal(updated, expected)


def test_the_place_of_a_maximum_is_that_in_the_whole_dimension() -> None:
    """pytorch/pytorch#168940: a maximum's place was the place in its slice, or the largest of such places."""
    x = np.array([[10, 5, 3, 8], [-1, -2, -3, 4], [1, 1, 7, 7], [0, 9, 9, 0]], np.float32)

    def found(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.argmax(x, "n"), *mtf.top_1(x, "n"), mtf.top_k(x, "n", ("k", 2))[1], mtf.argsort(x, "n")]

    order = np.argsort(-x, 1, kind="stable")
    expected = [x.argmax(1), x.max(1), x.argmax(1), order[:, :2], np.argsort(x, 1, kind="stable")]
    program = BuiltProgram(found, {"x": ("m:4 n:4", x)})
    for mesh, layout in (("rows:2", "n:rows"), ("rows:4", "n:rows"), ("rows:2;cols:2", "m:rows;n:cols")):
        for result, wanted in zip(program.interpret(mesh, layout).results, expected, strict=True):
            np.testing.assert_array_equal(result, wanted)


def test_running_sums_go_on_from_core_to_core() -> None:
    """pytorch/pytorch#151071: a running sum along a split dimension, forward, backward, and without its element."""
    x = np.arange(1.0, 8.0)

    def sums(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.cumsum(x, "n", exclusive=e, reverse=r) for e in (False, True) for r in (False, True)]

    forward, back = np.cumsum(x), np.cumsum(x[::-1])[::-1]
    for mesh, layout in MESHES:
        results = interpret(sums, {"x": ("n:7", x)}, mesh, layout, max_padding=MOSTLY_PADDING).results
        for result, wanted in zip(results, [forward, back, forward - x, back - x], strict=True):
            np.testing.assert_array_equal(result, wanted)


def test_a_pending_sum_becomes_split_over_one_axis_and_whole_over_another() -> None:
    """openxla/xla#40034: the sum over one of the axes was left out, and replicas held different numbers."""
    x, w = np.random.default_rng(0).normal(size=(2, 4, 8))
    inputs: Inputs = {"x": ("m:4 k:8", x), "w": ("n:4 k:8", w)}

    def product(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor]:
        y = mtf.einsum([x, w], output_shape="m:4 n:4")
        return [mtf.with_layout(y, layout) for layout in ("m:a", "n:b", "m:a;n:b", "")]

    program = BuiltProgram(product, inputs)
    for layout in ("k:a+b", "k:b+a", "k:a+b+c", "k:c+a"):
        for result in program.interpret("a:2;b:2;c:2", layout).results:
            assert_close(result, x @ w.T, terms=8, magnitude=np.abs(x).max() * np.abs(w).max() * 8)


def test_the_norm_of_all_gradients_counts_a_replicated_weight_once() -> None:
    """NVIDIA-NeMo/RL#3788: a weight that every device has was counted once for each, and clipped too often."""

    def step(x: mtf.Tensor) -> mtf.Tensor:
        kernel = mtf.get_variable(x.mesh, "kernel", "k:8 hidden:4", initializer=mtf.ones)
        scale = mtf.get_variable(x.mesh, "scale", "k:8", initializer=mtf.ones)
        loss = mtf.reduce_sum(mtf.einsum([x * scale, kernel], output_shape="m:4 hidden:4"))
        clip = mtf.optimize.ClipByGlobalNorm(1.0)
        mtf.optimize.ClippedOptimizer(mtf.optimize.SgdOptimizer(1.0), [clip]).minimize(loss)
        return loss.graph.exports["clip_by_global_norm/gradient_norm"]

    x = np.random.default_rng(1).normal(size=(4, 8))
    by_kernel, by_scale = np.repeat(x.sum(0)[:, None], 4, 1), 4 * x.sum(0)
    norm = np.sqrt((by_kernel**2).sum() + (by_scale**2).sum())
    for mesh, layout in (("a:1", ""), ("a:4", "hidden:a"), ("a:2;b:2", "m:a;hidden:b"), ("a:4", "m:a"), ("a:4", "k:a")):
        done = interpret(step, {"x": ("m:4 k:8", x.astype(np.float32))}, mesh, layout)
        assert_close(done.results, np.float32(norm), terms=4 * 8 + 4 * 8 + 8, magnitude=norm, what=f"[{mesh}] {layout}")
        assert_close(done.variables["scale"], (1 - by_scale / norm).astype(np.float32), terms=80, magnitude=1.0)


def _named(x: np.ndarray) -> Inputs:
    return {"x": (f"n:{len(x)} m:{x.shape[1]}", x)}
