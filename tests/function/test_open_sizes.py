"""Programs whose inputs leave sizes open: planned for each size, with one store, one seed and one count of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import FeedError, GraphError, LayoutError, MeshtfError, UsageError
from tests.lowering.emitted import times_traced

ROWS = "rows:2"


def one_core() -> mtf.SpmdMeshImpl:
    return mtf.SpmdMeshImpl("all:1", "")


def rows_of(n: int) -> np.ndarray:
    return np.arange(2.0 * n, dtype=np.float32).reshape(n, 2)


def noisy(x: mtf.f32["batch d:2"]) -> tuple[mtf.f32["batch d"], mtf.f32[""]]:
    total = mtf.get_variable("total", [], initializer=mtf.zeros)
    return mtf.dropout(x, True, rate=0.5), mtf.assign_add(total, mtf.reduce_sum(x))


def test_one_program_serves_several_sizes(caplog: pytest.LogCaptureFixture) -> None:
    """What it returns is what a program of the one size returns at the same step, with the sums of all sizes."""
    step = mtf.function(noisy, one_core(), seed=5, name="step")
    fixed = mtf.function(noisy, one_core(), {"x": mtf.TensorSpec("batch:4 d:2")}, seed=5, name="step")
    sizes = [4, 6, 4, 6]
    results = [step(rows_of(n)) for n in sizes]
    of_four = [fixed(rows_of(4)) for _ in sizes]
    for i in (0, 2):
        np.testing.assert_array_equal(results[i][0], of_four[i][0])
    assert not np.array_equal(results[1][0], results[3][0]), "the random bits are those of two steps"
    assert [float(total) for _, total in results] == [28, 28 + 66, 56 + 66, 56 + 132]
    assert (step.variables["step/step"], step.variables["total"]) == (4, 56 + 132)
    assert [r.getMessage() for r in caplog.records if r.name == "meshtf"] == [
        'program "step" is planned for batch:6, too: plan 2 of at most 8'
    ]
    for n in (4, 6):
        assert times_traced(step.at(batch=n)._execution.program) == {1}


def test_layouts_and_reports_are_those_of_the_size() -> None:
    @mtf.function(mtf.PlanMeshImpl(ROWS, "batch:rows"))
    def step(x: mtf.f32["batch d:2"]) -> mtf.f32["batch"]:
        return mtf.reduce_sum(x, reduced_dim=mtf.Dimension("d", 2))

    with pytest.raises(UsageError, match=r"leave the size of batch open; call it, or give sizes: step\.at\(batch=64\)"):
        step.report()
    of_eight = step.at(batch=8)
    assert (str(step.results.shape), str(of_eight.results.shape)) == ("batch:8", "batch:8")
    of_four = step.at(batch=4)
    assert [str(s.results.shape) for s in (of_eight, of_four, step)] == ["batch:8", "batch:4", "batch:4"]
    assert of_eight.on(mtf.PlanMeshImpl(ROWS, "")).report().mesh == (("rows", 2),)
    assert "batch:8" in str(of_eight.report())


def test_plans_are_bounded() -> None:
    step = mtf.function(noisy, one_core(), max_plans=2, name="step")
    step(rows_of(2)), step(rows_of(3))
    with pytest.raises(UsageError) as caught:
        step(rows_of(4))
    assert (
        'program "step" has 2 plans, for batch:2, batch:3, and was called for batch:4; pad its inputs to one of these'
        in str(caught.value)
    )
    assert f"max_plans=4)\n  at {__file__}:" in str(caught.value)
    step(rows_of(3))
    assert step.variables["total"] == 6 + 15 + 15


def test_a_layout_that_does_not_fit_a_size_leaves_the_other_sizes() -> None:
    @mtf.function(mtf.PlanMeshImpl(ROWS, "batch:rows", max_padding=0.0))
    def step(x: mtf.f32["batch"]) -> mtf.f32["batch"]:
        return 2.0 * x

    step.at(batch=4)
    with pytest.raises(LayoutError, match="batch:3"):
        step.at(batch=3)
    assert str(step.results.shape) == "batch:4"
    assert str(step.at(batch=2).results.shape) == "batch:2"


def test_inside_a_tf_function() -> None:
    step = mtf.function(noisy, one_core())

    @tf.function
    def both(x: tf.Tensor) -> tf.Tensor:
        step(x[:3])
        return step(x)[1]

    assert float(both(rows_of(4))) == 15 + 28
    batches = tf.data.Dataset.from_tensor_slices(rows_of(4)).batch(2)
    with pytest.raises(
        FeedError, match=r'has a "batch" of unknown size; give the program the size with step\.at\(batch=...'
    ):
        batches.map(step)
    pairs = tf.data.Dataset.from_tensor_slices(rows_of(4)).batch(2, drop_remainder=True)
    assert [float(total) for _, total in pairs.map(step)] == [43 + 6, 43 + 28]


def variable_of(shape: Callable[[mtf.Tensor], Any]) -> mtf.Function:
    def step(x: mtf.f32["batch length d:2"]) -> mtf.f32["batch length d"]:
        return x + mtf.reduce_sum(mtf.get_variable("table", shape(x)))

    return mtf.function(step, mtf.PlanMeshImpl(ROWS, ""))


def other_size(step: mtf.Function) -> None:
    step.at(batch=2, length=3), step.at(batch=2, length=4)


# fmt: off
WRONG: list[tuple[str, Callable[[], Any], type[MeshtfError], str]] = [
    ("variable", lambda: other_size(variable_of(lambda x: [x.shape.get_dim_by_name("length"), ("d", 2)])),
     GraphError, 'all calls; state it in the annotation of an\ninput, as "length:3"'),
    ("variable of another name", lambda: other_size(variable_of(lambda x: [("places", x.shape.to_integer_list[1])])),
     GraphError, 'is [places:4] float32 for batch:2 length:4, and [places:3] float32 for batch:2 length:3'),
    ("two sizes", lambda: pair()(x=np.ones([2, 2], np.float32), y=np.ones([3], np.int32)),
     FeedError, 'input "y" has "batch:3", and batch is 2 in "x"'),
    ("rank", lambda: pair()(x=np.ones([2], np.float32), y=np.ones([2], np.int32)),
     FeedError, 'input "x" must be [batch d:2] float32, and has shape [2]'),
    ("fixed size", lambda: pair()(x=np.ones([2, 3], np.float32), y=np.ones([2], np.int32)),
     FeedError, 'input "x" must be [batch d:2] float32, and has shape [2, 3]'),
    ("ragged", lambda: pair()(x=[[1.0], [1.0, 2.0]], y=np.ones([2], np.int32)),
     FeedError, 'input "x" must be [batch d:2] float32, and has a shape that is not known'),
    ("missing", lambda: pair()(np.ones([2, 2], np.float32)),
     FeedError, 'input "y" [batch] int32 is missing'),
    ("dtype", lambda: pair()(x=np.ones([2, 2], np.float32), y=np.ones([2], np.float32)),
     FeedError, 'input "y" must be [batch:2] int32, and has dtype float32; convert it'),
    ("no such size", lambda: pair().at(bach=2),
     UsageError, 'the inputs of program "step" leave no size "bach" open; the open sizes are: batch'),
    ("a size missing", lambda: pair().at(),
     UsageError, 'program "step" needs the size of "batch", too: at(batch=...)'),
    ("negative", lambda: pair().at(batch=-1),
     MeshtfError, "the size of dimension 'batch' must not be negative, and is -1"),
]
# fmt: on


def pair() -> mtf.Function:
    def step(x: mtf.f32["batch d:2"], y: mtf.i32["batch"]) -> mtf.f32["batch d"]:
        return x * mtf.to_float(y)

    return mtf.function(step, mtf.PlanMeshImpl(ROWS, ""))


@pytest.mark.parametrize(("wrong", "kind", "words"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_mistakes_are_named(wrong: Callable[[], Any], kind: type[MeshtfError], words: str) -> None:
    with pytest.raises(kind) as caught:
        wrong()
    text = str(caught.value)
    assert words in text, text
    assert f"\n  at {__file__}:" in text, text


def test_a_stated_size_is_fixed_for_all_inputs() -> None:
    @mtf.function(mtf.PlanMeshImpl(ROWS, "batch:rows"))
    def step(x: mtf.f32["batch d"], y: mtf.f32["batch:4"], z: mtf.f32["other:d"]) -> mtf.f32["batch"]:
        return mtf.reduce_sum(x, output_shape=y.shape) + y + mtf.reduce_sum(z)

    assert list(map(str, (step.at(d=3).graph.operations[0].outputs[0].shape, step.results.shape))) == [
        "batch:4 d:3",
        "batch:4",
    ]
    with pytest.raises(FeedError, match=r'input "x" must be .batch:4 d. float32, and has shape .2, 3.'):
        step(*(np.ones(shape, np.float32) for shape in ([2, 3], [4], [3])))
