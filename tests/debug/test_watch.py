"""Watching tensors changes no bit of a program's results, and sees what the program computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import FeedError, GraphError, UsageError

X = np.arange(8, dtype=np.float32).reshape(4, 2)
SPECS = {"x": mtf.TensorSpec("batch:4 hidden:2")}


def noisy_sum(x: mtf.Tensor) -> list[mtf.Tensor]:
    """Two steps differ: in the variable, and in the random bits."""
    total = mtf.get_variable(x.mesh, "total", "hidden:2", initializer=mtf.zeros)
    noise = mtf.export(mtf.random_uniform(x.mesh, x.shape), "noise")
    new = mtf.assign(total, total + mtf.reduce_sum(x + noise, reduced_dim="batch", name="sum"))
    return [new, noise]


def test_results_have_the_same_bits_and_what_is_seen_is_what_the_program_computes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain, other = (mtf.function(noisy_sum, mtf.SpmdMeshImpl("rows:2", "batch:rows"), SPECS, seed=5) for _ in range(2))
    seen: list[Mapping[str, Any]] = []
    watched = mtf.debug.watch(other, "noise", "total", call=seen.append)
    for step in range(2):
        expected, found = plain(X), watched(x=X)
        for own, same in zip(expected, found, strict=True):
            assert own.numpy().tobytes() == same.numpy().tobytes()
        assert seen[step]["noise"].tobytes() == found[1].numpy().tobytes()
        assert (seen[step]["total"] == 0).all() == (step == 0)
    slices = mtf.debug.watch(other, "noise", per_core=True).values(X)["noise"]
    assert sorted(slices) == [0, 1]
    assert [own.shape for own in slices.values()] == [(2, 2), (2, 2)]
    before = other.variables["total"]
    mtf.debug.watch(other, other.results[1], "total", per_core=True)(x=X)
    text = capsys.readouterr().out
    assert text.count("core 0:") == text.count("core 1:") == 2
    assert "total [hidden:2] float32\n  core 0: [" in text
    assert (other.variables["total"] != before).all()


def test_a_variable_is_seen_as_the_step_reads_it_after_it_has_assigned_it() -> None:
    def running_sum(x: mtf.Tensor) -> list[mtf.Tensor]:
        total = mtf.get_variable(x.mesh, "total", "hidden:2", initializer=mtf.zeros)
        mtf.assign_add(total, mtf.reduce_sum(x, reduced_dim="batch"))
        now = mtf.export(mtf.read_variable(total), "now")
        mtf.assign_add(total, mtf.ones_like(now))
        return [now, mtf.export(mtf.read_variable(total) * now, "product")]

    step = mtf.function(running_sum, mtf.SpmdMeshImpl("rows:2", "batch:rows"), SPECS)
    seen: list[Mapping[str, Any]] = []
    watched = mtf.debug.watch(step, "now", "product", "total", call=seen.append)
    before = np.zeros([2])
    for _ in range(3):
        now, product = watched(X)
        values = seen[-1]
        np.testing.assert_array_equal(values["now"], now)
        np.testing.assert_array_equal(values["product"], product)
        np.testing.assert_array_equal(values["total"], before)
        before = step.variables["total"]
        np.testing.assert_array_equal(before, now + 1)


def test_mistakes_are_told() -> None:
    def scanned(x: mtf.Tensor) -> mtf.Tensor:
        body = lambda carried, parts: ([mtf.add(carried[0], parts[0], name="inner")], [])  # noqa: E731
        (total,), _ = mtf.scan(body, [mtf.zeros(x.mesh, "hidden:2")], [x], mtf.Dimension("batch", 4))
        return total

    step = mtf.function(scanned, mtf.SpmdMeshImpl("rows:1", ""), SPECS)
    inner = next(x for o in step.graph.every_operation() for x in o.outputs if "inner" in x.name)
    with pytest.raises(UsageError, match=r"is inside .* has another value in each run; watch a tensor"):
        mtf.debug.watch(step, inner)
    with pytest.raises(GraphError, match='no tensor "xx" in program "scanned"; did you mean "x"'):
        mtf.debug.watch(step, "xx")
    with pytest.raises(UsageError, match=r'needs the names of tensors: mtf\.debug\.watch\(step, "decoder/logits"\)'):
        mtf.debug.watch(step)
    with pytest.raises(UsageError, match="a tensor of the program or its name is needed, and not 5"):
        mtf.debug.watch(step, 5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"watch needs a program of mtf\.function, and not Lowering"):
        mtf.debug.watch(step.lowering, "x")  # type: ignore[arg-type]
    with pytest.raises(FeedError, match=r'input "x" must be \[batch:4 hidden:2\] float32'):
        mtf.debug.watch(step, "x").values(X[:1])
    with pytest.raises(UsageError, match=r"is called inside a tf\.function"):
        tf.function(mtf.debug.watch(step, "x").__call__)(X)


def test_a_program_with_open_sizes_is_watched_in_each_of_its_plans(capsys: pytest.CaptureFixture[str]) -> None:
    def double(x: mtf.f32["batch d:2"]) -> mtf.f32["batch d"]:
        return mtf.multiply(x, 2.0, name="doubled")

    watched = mtf.debug.watch(mtf.function(double, mtf.SpmdMeshImpl("rows:1", "")), "doubled")
    for size in (2, 3, 2):
        assert watched(np.ones([size, 2], np.float32)).shape == [size, 2]
        assert f"doubled [batch:{size} d:2] float32\n  [[2. 2.]\n" in capsys.readouterr().out
