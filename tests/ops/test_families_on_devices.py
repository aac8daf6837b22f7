"""Pieces, lookups, maxima and softmax on virtual CPUs, with their collectives."""

from __future__ import annotations

from typing import Any

import numpy as np

import meshtf as mtf
from meshtf.testing import assert_layout_invariant

RNG = np.random.default_rng(0)


def test_pieces() -> None:
    def program(x: mtf.Tensor) -> list[Any]:
        first, second = mtf.split(mtf.concat([x, 2 * x, mtf.square(x)], "b"), "b", [16, 8])
        stacked = mtf.stack(mtf.unstack(second, "a")[:4], "n", axis=1)
        return [mtf.pad(mtf.slice(first, 3, 8, "b"), [4, 4], "b"), mtf.square(stacked)]

    inputs = {"x": ("a:8 b:8", RNG.standard_normal((8, 8)).astype(np.float32))}
    assert_layout_invariant(program, inputs, ["n:rows;b:cols"])


def test_lookups() -> None:
    def program(mesh: mtf.Mesh, where: mtf.Tensor) -> list[Any]:
        table = mtf.get_variable(mesh, "table", "vocab:8 d:4")
        rows = mtf.gather(table, where, "vocab")
        value, index = mtf.top_1(rows, "d")
        return [mtf.square(rows), value, index, mtf.one_hot(index, ("d", 4)), mtf.gather(rows, index, "d")]

    inputs = {"where": ("batch:4 length:4", RNG.integers(-2, 10, (4, 4)))}
    assert_layout_invariant(program, inputs, ["vocab:rows;d:cols", "batch:rows;vocab:cols"])


def test_softmax() -> None:
    def program(x: mtf.Tensor, extra: mtf.Tensor) -> list[Any]:
        return [f(x, "b", extra_logit=e) for f in (mtf.softmax, mtf.log_softmax, mtf.reduce_logsumexp)
                for e in (None, extra)]  # fmt: skip

    inputs = {"x": ("a:4 b:8 c:4", RNG.standard_normal((4, 8, 4))), "extra": ("c:4", RNG.standard_normal(4))}
    assert_layout_invariant(program, inputs, ["b:cols+rows"])


def test_elementwise_functions_and_statistics() -> None:
    """Kernels that a compiled segment computes otherwise than TensorFlow does, and reductions over split dimensions."""

    def program(x: mtf.Tensor, n: mtf.Tensor) -> list[Any]:
        special = [mtf.digamma(x), mtf.erfinv(x), mtf.lgamma(x), mtf.atan2(x, 0.5), mtf.asinh(x)]
        spread = [mtf.reduce_std(x, reduced_dim="b"), mtf.norm(x, reduced_dim="b")]
        slopes = mtf.gradients([mtf.reduce_sum(y) for y in (special[0], *spread)], [x])
        return [*special, *spread, *slopes, mtf.left_shift(n, 3), mtf.argmin(n, "b")]

    inputs = {
        "x": ("a:4 b:8", RNG.uniform(0.1, 0.9, (4, 8))),
        "n": ("a:4 b:8", RNG.integers(-9, 9, (4, 8)).astype(np.int32)),
    }
    assert_layout_invariant(program, inputs, ["a:rows;b:cols"])
