"""check_indices: what it finds, where, and in which input; on any layout, in loops, branches and micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import IndexRangeError, NonFiniteError
from meshtf.testing import interpret

IDS = np.arange(16, dtype=np.int32).reshape(8, 2) % 10
BATCH = mtf.Dimension("batch", 8)
LAYOUTS = ["", "batch:rows", "batch:rows+cols", "batch:cols;n:rows"]


def wrong(place: tuple[int, int], index: int = 99) -> np.ndarray:
    ids = IDS.copy()
    ids[place] = index
    ids[7, 1] = -7  # a later one, of which nothing is said
    return ids


def said(program: Callable[..., Any], ids: np.ndarray, layout: str, **more: Any) -> str:
    with pytest.raises(IndexRangeError) as caught:
        interpret(program, {"ids": ("batch:8 n:2", ids), **more}, "rows:2;cols:2", layout)
    return str(caught.value)


def of_inputs(ids: mtf.Tensor) -> mtf.Tensor:
    return mtf.check_indices(ids, 10, message="a label", advice="count from 0")


def of_what_is_computed(ids: mtf.Tensor) -> mtf.Tensor:
    return mtf.check_indices(ids + 0, 10)


def in_a_branch(ids: mtf.Tensor) -> mtf.Tensor:
    is_taken = mtf.less(mtf.reduce_sum(ids), 10_000)
    return mtf.cond(is_taken, lambda: mtf.check_indices(ids + 0, 10) + 0, lambda: ids)


def in_a_loop(ids: mtf.Tensor) -> mtf.Tensor:
    turns = mtf.constant(ids.mesh, 0, dtype=tf.int32)

    def body(turn: mtf.Tensor) -> list[mtf.Tensor]:
        mtf.check_indices(ids + turn - turn, 10)
        return [turn + 1]

    return mtf.while_loop(lambda turn: mtf.less(turn, 3), body, [turns])[0]


def of_what_the_step_assigns(ids: mtf.Tensor) -> mtf.Tensor:
    kept = mtf.get_variable(ids.mesh, "kept", ids.shape, tf.int32, initializer=mtf.zeros, trainable=False)
    mtf.assign(kept, ids)
    return mtf.check_indices(mtf.read_variable(kept), 10)


def in_micro_batches(ids: mtf.Tensor) -> mtf.Tensor:
    w = mtf.get_variable(ids.mesh, "w", [])

    def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        mtf.check_indices(features["ids"], 10)
        return {"loss": mtf.reduce_sum(mtf.to_float(features["ids"])) * w}

    return mtf.serialize_training_step({"ids": ids}, model, BATCH, 2)[1]["loss"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("program", [of_inputs, of_what_is_computed, in_a_branch, in_a_loop, in_micro_batches])
def test_the_first_index_outside_is_told_with_its_place(program: Callable[..., Any], layout: str) -> None:
    for place in ((0, 0), (5, 1)):
        text = said(program, wrong(place), layout)
        assert f": 99 at batch {place[0]}, n {place[1]}\n" in text, text
        assert 'input "ids"' in text
        assert "outside of 0 to 9 in" in text
        assert "[batch:8 n:2] int32" in text
        assert f"at {__file__}:" in text
        assert "nothing was assigned" in text
    interpret(program, {"ids": ("batch:8 n:2", IDS)}, "rows:2;cols:2", layout)


def test_the_place_is_found_in_a_variable_that_the_same_step_assigns() -> None:
    inputs = {"ids": mtf.TensorSpec("batch:8 n:2", tf.int32)}
    step = mtf.function(of_what_the_step_assigns, mtf.SpmdMeshImpl("rows:2", "batch:rows"), inputs)
    step(ids=IDS)
    with pytest.raises(IndexRangeError, match=": 99 at batch 5, n 1\n"):
        step(ids=wrong((5, 1)))
    np.testing.assert_array_equal(step.variables["kept"], IDS)


def test_words_and_advice_are_the_callers() -> None:
    text = said(of_inputs, wrong((1, 0), -100), "")
    assert text.startswith('a label outside of 0 to 9 in input "ids" [batch:8 n:2] int32: -100 at batch 1, n 0\n')
    assert text.endswith("count from 0")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_weighs_nothing_may_be_anything(layout: str) -> None:
    def program(ids: mtf.Tensor, weights: mtf.Tensor) -> list[mtf.Tensor]:
        mtf.check_indices(ids, 10, weights=weights)
        return [mtf.check_indices(ids + 0, 10, weights=weights)]

    weights = np.ones(8, np.float32)
    weights[[3, 7]] = 0
    given = ("batch:8", weights)
    found = interpret(program, {"ids": ("batch:8 n:2", wrong((3, 0))), "weights": given}, "rows:2;cols:2", layout)
    assert found.results[0][3, 0] == 99
    assert ": 99 at batch 4, n 0\n" in said(program, wrong((4, 0)), layout, weights=given)


@pytest.mark.parametrize("index", [-1, 10, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_limits(dtype: type, index: int) -> None:
    text = said(of_what_is_computed, wrong((2, 1), index).astype(dtype), "batch:rows")
    assert f": {index}" in text
    assert "at batch 2, n 1\n" in text


def test_a_check_costs_no_collective_in_a_loop() -> None:
    plan = mtf.testing.plan(in_micro_batches, {"ids": mtf.TensorSpec("batch:8 n:2", tf.int32)}, "rows:2", "batch:rows")
    loop = next(i for i in plan.instructions if type(i).__name__ == "Loop")
    checks = [i for i in loop.body if "CheckIndices" in type(i.operation).__name__]
    assert [type(i).__name__ for i in checks] == ["Compute"]


def test_nothing_is_added_to_the_program_for_what_is_fed() -> None:
    def plain(ids: mtf.Tensor) -> mtf.Tensor:
        return ids

    spec = {"ids": mtf.TensorSpec("batch:8 n:2", tf.int32)}
    with_check, without = (mtf.testing.plan(fn, spec, "rows:2", "batch:rows") for fn in (of_inputs, plain))
    assert [type(i) for i in with_check.instructions] == [type(i) for i in without.instructions]
    assert len(with_check.feed_checks) == 1


@pytest.mark.parametrize("layout", ["", "batch:rows;n:cols", "batch:rows+cols"])
def test_a_nan_is_told_with_its_place(layout: str) -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.check_finite(mtf.log(x), "the logarithm")

    x = np.ones([8, 2], np.float32)
    x[4, 1] = -1.0
    with pytest.raises(
        NonFiniteError, match=r"the logarithm: .* in log \[batch:8 n:2\] float32: the first at batch 4, n 1\n"
    ):
        interpret(program, {"x": ("batch:8 n:2", x)}, "rows:2;cols:2", layout)


def test_on_devices_and_in_a_function_of_tensorflows() -> None:
    def program(ids: mtf.Tensor) -> mtf.Tensor:
        steps = mtf.get_variable(ids.mesh, "steps", [], initializer=mtf.zeros)
        mtf.assign_add(steps, mtf.ones(ids.mesh, []))
        mtf.check_indices(ids, 12)
        return mtf.check_indices(ids + 0, 10)

    specs = {"ids": mtf.TensorSpec("batch:8 n:2", tf.int32)}
    step = mtf.function(program, mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows"), specs)
    step(ids=IDS)
    for ids, text in ((wrong((3, 1), 11), ": 11 at batch 3, n 1"), (wrong((2, 0)), '0 to 11 in input "ids"')):
        ids[7, 1] = 0
        with pytest.raises(IndexRangeError) as caught:
            step(ids=ids)
        assert text in str(caught.value)
        with pytest.raises(tf.errors.InvalidArgumentError, match="an index outside of 0 to"):
            tf.function(step)(ids=tf.constant(ids))
    assert step.variables["steps"] == 1
    step(ids=IDS)
    assert step.variables["steps"] == 2
