"""What is held in a layout is moved there once, by the cheapest way from any version that there is."""

from __future__ import annotations

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.dimension import convert_to_shape
from meshtf.layout import TensorLayout
from tests.planning.small_planner import planner_of

pytestmark = pytest.mark.quick

MESH = convert_to_shape("rows:2;cols:4")
WHOLE = TensorLayout(((), ()))


def tensor(mesh: mtf.Mesh | None = None, name: str = "x") -> mtf.Tensor:
    return mtf.placeholder(mesh or mtf.Mesh(mtf.Graph()), "a:8 b:8", name=name)


def test_a_layout_is_read_into_once() -> None:
    x = tensor()
    planner = planner_of({x: (("rows",), ())}, MESH)
    own = planner.read(x)
    assert own.layout == TensorLayout((("rows",), ()))
    cols = TensorLayout(((), ("cols",)))
    first = planner.read(x, cols)
    count = len(planner.record.instructions)
    assert planner.read(x, cols) is first
    assert planner.read(x) is own
    assert len(planner.record.instructions) == count


def test_what_is_waited_for_is_the_tensor_as_it_was_made() -> None:
    """And not its copy in the layout of one who read it, which would be kept for that, and comes later."""
    x = tensor()
    planner = planner_of({x: (("rows",), ())}, MESH)
    made = planner.tensors.found(x)
    moved = planner.read(x, WHOLE)
    assert planner.tensors.found(x) is made
    assert made is not moved


def test_the_nearest_version_is_the_source() -> None:
    x = tensor()
    planner = planner_of({x: (("rows",), ())}, MESH)
    target = TensorLayout(((), ("rows",)))
    assert planner.tensors.bytes_to_read(x, target) == 4 * 8 * 4 // 2  # of its half a core sends a half
    planner.read(x, target)
    assert planner.tensors.bytes_to_read(x, target) == 0
    assert planner.tensors.bytes_to_read(x, TensorLayout(((), ("rows", "cols")))) == 0  # a slice of what is there


def test_tensors_that_share_a_value_share_its_moves() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x, y, z = tensor(mesh), tensor(mesh, "y"), tensor(mesh, "z")
    planner = planner_of(dict.fromkeys((x, y, z), (("rows",), ())), MESH)
    for other in (y, z):
        planner.write(other, planner.read(x))
    assert planner.read(y, WHOLE) is planner.read(z, WHOLE)


def test_a_pending_sum_is_done_once_whoever_reads_first() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x, y = tensor(mesh), tensor(mesh, "y")
    planner = planner_of({x: ((), ()), y: ((), ())}, MESH)
    pending = planner.record.value(y.shape, tf.float32, WHOLE, ("cols",))
    planner.write(y, pending)
    assert planner.tensors.held(y) is pending
    before = len(planner.record.instructions)
    total = planner.read(y)
    assert total.pending == ()
    assert planner.read(y) is total
    assert planner.tensors.whole_versions(y) == [total]
    (reduction,) = planner.record.instructions[before:]
    assert reduction.operation is y.operation


def test_what_moves_nothing_adds_nothing() -> None:
    x = tensor()
    planner = planner_of({x: (("rows",), ())}, MESH)
    held = planner.read(x)
    count = len(planner.record.instructions)
    assert planner.permute(held, ("rows",), lambda j: j) is held
    assert planner.all_gather(held, 1) is held
    assert planner.all_reduce(held, (), "max") is held
    assert planner.reshard(held, held.layout) is held
    assert len(planner.record.instructions) == count


def test_once_is_by_value_and_key() -> None:
    x = tensor()
    planner = planner_of({x: (("rows",), ())}, MESH)
    held, made = planner.read(x), iter(planner.record.value(x.shape, tf.float32, WHOLE) for _ in range(2))
    first = planner.moves.once(held, "key", lambda: next(made))
    assert planner.moves.once(held, "key", lambda: next(made)) is first
    assert planner.moves.once(held, "other", lambda: next(made)) is not first
