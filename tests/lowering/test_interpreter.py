"""The interpreter by itself: slices and wholes, collectives as array arithmetic, and cores that disagree."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.dimension import convert_to_shape
from meshtf.layout import Axes, TensorLayout
from meshtf.lowering.core_slices import joined, split
from meshtf.lowering.interpreter import Interpreter
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.collectives.all_reduce import AllReduce
from meshtf.planning.collectives.all_to_all import AllToAll
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.collectives.permute import Permute
from meshtf.planning.collectives.reduce_scatter import ReduceScatter
from meshtf.planning.plan import Core, Plan
from tests.planning.small_planner import planner_of

pytestmark = pytest.mark.quick

MESH = convert_to_shape("rows:2;cols:3")
PLAN = Plan(MESH, (), (), (), False)
WHOLE = np.arange(12 * 18).reshape(12, 18)


def slices(*axes: Axes) -> list[np.ndarray]:
    return split(WHOLE, TensorLayout(axes), PLAN)


def check_move(step: CollectiveStep, source: tuple[Axes, Axes], target: tuple[Axes, Axes]) -> None:
    found = Interpreter(PLAN).collective(step, slices(*source))
    np.testing.assert_array_equal(found, slices(*target))


@pytest.mark.parametrize("axes", [((), ()), (("cols", "rows"), ()), (("cols",), ("rows",))], ids=str)
def test_what_is_split_is_joined_again(axes: tuple[Axes, Axes]) -> None:
    layout = TensorLayout(axes)
    pieces = split(WHOLE, layout, PLAN)
    assert {piece.shape for piece in pieces} == {layout.slice_shape(convert_to_shape("a:12 b:18"), MESH)}
    np.testing.assert_array_equal(joined(pieces, layout, PLAN), WHOLE)


def test_what_does_not_divide_is_padded_with_zeros() -> None:
    pieces = split(np.ones(5, int), TensorLayout((("cols",),)), PLAN)
    assert [piece.tolist() for piece in pieces] == [[1, 1], [1, 1], [1, 0]] * 2


def test_cores_that_disagree_on_one_block_are_found() -> None:
    pieces = slices(("cols",), ())
    pieces[4] = pieces[4] + 1
    with pytest.raises(AssertionError, match="core 4 disagrees with another that holds its block"):
        joined(pieces, TensorLayout((("cols",), ())), PLAN)


def test_moves_take_one_layout_to_another() -> None:
    rows, both, none = ("rows",), ("cols", "rows"), ()
    check_move(AllGather(both, 0), (both, none), (none, none))
    check_move(AllGather(rows, 0), (both, none), (("cols",), none))
    check_move(AllToAll(both, 1, 0), (both, none), (none, both))
    check_move(AllToAll(rows, 0, 1), (("cols",), rows), (("cols", "rows"), none))


def test_reductions_combine_the_cores_along_their_axes() -> None:
    terms = [np.full([3, 2], 10**core) for core in range(6)]  # core 3r + c
    sums = Interpreter(PLAN).collective(AllReduce(("cols",)), terms)
    assert [int(x[0, 0]) for x in sums] == [111] * 3 + [111000] * 3
    largest = Interpreter(PLAN).collective(AllReduce(("rows",), "max"), terms)
    assert [int(x[0, 0]) for x in largest] == [10**3, 10**4, 10**5] * 2
    either = Interpreter(PLAN).collective(AllReduce(("rows",)), [x > 100 for x in terms])
    assert [bool(x[0, 0]) for x in either] == [True] * 6
    terms = [np.arange(3) + 10 * core for core in range(6)]
    scattered = Interpreter(PLAN).collective(ReduceScatter(("cols",), 0), terms)
    assert [x.tolist() for x in scattered] == [[30], [33], [36], [120], [123], [126]]


def test_a_permute_sends_each_slice_to_its_destination() -> None:
    step = Permute(("cols",), (1, 2, 0, 4, 5, 3))
    found = Interpreter(PLAN).collective(step, [np.array(core) for core in range(6)])
    assert [int(x) for x in found] == [2, 0, 1, 5, 3, 4]


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda core, x: x + core.coordinate(("cols",)), "cores disagree on"),
        (lambda core, x: tf.concat([x, x], 0), r"\(24,\)"),
        (lambda core, x: tf.cast(x, tf.int64), "int64"),
    ],
    ids=["value", "shape", "dtype"],
)
def test_local_work_that_is_not_as_planned_is_found(kernel: object, message: str) -> None:
    x = mtf.placeholder(mtf.Mesh(mtf.Graph()), "a:12", tf.int32, name="x")
    planner = planner_of({x: ((),)}, MESH)
    (made,) = planner.compute("work", kernel, [planner.read(x)], [(x.shape, x.dtype, TensorLayout(((),)))])
    plan = Plan(MESH, planner.record.instructions, (made,), (), False)
    with pytest.raises(AssertionError, match=message):
        Interpreter(plan).run({"x": np.arange(12, dtype=np.int32)})


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_cores_that_hold_nan_alike_agree(dtype: tf.DType) -> None:
    """Padding may hold it; of bfloat16 NumPy takes it for something else than itself."""
    plan = Plan(convert_to_shape("rows:2"), (), (), (), False)
    slices = [np.array([1, np.nan], dtype.as_numpy_dtype) for _ in range(2)]
    np.testing.assert_array_equal(joined(slices, TensorLayout(((),)), plan).astype(np.float32), [1, np.nan])
    slices[1][0] = 2
    with pytest.raises(AssertionError, match="core 1 disagrees"):
        joined(slices, TensorLayout(((),)), plan)


def test_cores_with_the_same_slices_share_their_work() -> None:
    """Also in and after a loop, whose parts and stacks are arrays of their own."""
    calls = []

    def doubled(x: tf.Tensor) -> tf.Tensor:
        calls.append(x)
        return 2 * x

    def program(x: mtf.Tensor) -> mtf.Tensor:
        _, (parts,) = mtf.scan(lambda _, parts: ([], [mtf.slicewise(doubled, parts)]), [], [x], "steps")
        return mtf.slicewise(doubled, [parts])

    def number_of_calls(mesh_shape: str) -> int:
        calls.clear()
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        found = mtf.testing.interpret(program, {"x": ("steps:3 a:4", x)}, mesh_shape)
        np.testing.assert_array_equal(found.results, 4 * x)
        return len(calls)

    assert number_of_calls("rows:2;cols:3") == number_of_calls("rows:1")


def test_cores_that_computed_the_same_bits_share_what_follows() -> None:
    x = mtf.placeholder(mtf.Mesh(mtf.Graph()), "a:12", tf.int32, name="x")
    planner = planner_of({x: ((),)}, MESH)
    counts = [0, 0]

    def by_core(core: Core, x: tf.Tensor) -> tf.Tensor:
        counts[0] += 1
        return x + 0 * core.coordinate(("rows",))

    def after(core: Core, x: tf.Tensor) -> tf.Tensor:
        counts[1] += 1
        return x + 1

    made = planner.read(x)
    for kernel in (by_core, after):
        (made,) = planner.compute("work", kernel, [made], [(x.shape, x.dtype, TensorLayout(((),)))])
    plan = Plan(MESH, planner.record.instructions, (made,), (), False)
    (found,) = Interpreter(plan).run({"x": np.arange(12, dtype=np.int32)})
    np.testing.assert_array_equal(found, np.arange(1, 13))
    assert counts == [2, 1]
