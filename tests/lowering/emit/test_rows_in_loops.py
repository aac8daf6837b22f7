"""Rows that layers write into one table: where they are, and never into what somebody else holds."""

from __future__ import annotations

import gc
import re

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.emit.rows_in_loops import rows_in_loops
from meshtf.mesh_impl.pjrt.pjrt import Executable
from meshtf.thresholds import ROWS_IN_PLACE_BYTES

LAYERS, ROWS, WIDTH = 3, 2048, 256
WRITTEN, SEEN = [5, -1, 2047, ROWS], np.array([[5, 6, 9], [2047, 5, 5]], np.int32)


def program(new: mtf.Tensor, places: mtf.Tensor, seen: mtf.Tensor) -> mtf.Tensor:
    """Layer l writes new + l and the largest number seen so far at places - l. It adds what it then sees."""
    table = mtf.get_variable(new.mesh, "table", [("n", ROWS), ("d", WIDTH)], initializer=mtf.zeros, trainable=False)

    def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        total, held = carried
        where = mtf.where(mtf.less(places, 0), -1, places - parts[0])
        rows = new + mtf.cast(parts[0], tf.float32) + mtf.reduce_max(total)
        held = mtf.scatter_update(held, where, rows, "n", are_distinct=True)
        return [total + mtf.gather(held, seen, "n"), held], []

    start = mtf.zeros(new.mesh, seen.shape + [("d", WIDTH)])
    (total, after), _ = mtf.layer_stack(
        layer, [start, table], ("layers", LAYERS), [mtf.range(new.mesh, ("layers", LAYERS))]
    )
    mtf.assign(table, after)
    return total


INPUTS = {
    "new": mtf.TensorSpec([("written", 4), ("d", WIDTH)]),
    "places": mtf.TensorSpec("written:4", tf.int32),
    "seen": mtf.TensorSpec("rows:2 seen:3", tf.int32),
}


def expected(table: np.ndarray, new: np.ndarray, places: list[int]) -> np.ndarray:
    total = np.zeros([*SEEN.shape, WIDTH], np.float32)
    for number in range(LAYERS):
        largest = total.max()
        for row, place in zip(new, places, strict=True):
            if place >= 0 and 0 <= place - number < ROWS:
                table[place - number] = row + np.float32(number) + largest
        total += table[SEEN]
    return total


@pytest.mark.parametrize(
    ("mesh_shape", "layout", "share_memory"),
    [("all:1", "", True), ("all:1", "", False), ("rows:2;cols:2", "d:cols", True), ("rows:2", "n:rows", True)],
)
def test_rows_are_written_where_they_are(mesh_shape: str, layout: str, share_memory: bool) -> None:
    """A tensor that was read before a step keeps its values. A step in which no row is inside writes nothing."""
    assert ROWS * WIDTH * 4 // 2 >= ROWS_IN_PLACE_BYTES
    step = mtf.function(program, mtf.SpmdMeshImpl(mesh_shape, layout, share_memory=share_memory), inputs=INPUTS)
    step.initialize()
    table, rng = np.zeros([ROWS, WIDTH], np.float32), np.random.default_rng(0)
    for places in (WRITTEN, [-1] * 4, [7, 100, 0, 2047]):
        new = rng.standard_normal([4, WIDTH]).astype(np.float32)
        before, kept = step.variables["table"], table.copy()
        found = step(new=new, places=np.array(places, np.int32), seen=SEEN)
        np.testing.assert_array_equal(found, expected(table, new, places))
        np.testing.assert_array_equal(step.variables["table"], table)
        np.testing.assert_array_equal(before, kept)
    assert len(rows_in_loops(step._execution.plan)[0]) == 1


def test_the_table_is_copied_once_in_a_step_whatever_the_number_of_layers() -> None:
    known = [x for x in gc.get_objects() if isinstance(x, tf.Graph)]
    earlier = set(map(id, known))
    step = mtf.function(program, mtf.SpmdMeshImpl("all:1", ""), inputs=INPUTS)
    step(new=np.zeros([4, WIDTH], np.float32), places=np.array(WRITTEN, np.int32), seen=SEEN)
    graphs = [x for x in gc.get_objects() if isinstance(x, tf.Graph) and id(x) not in earlier]
    makers = [
        op.type
        for graph in graphs
        for op in graph.get_operations()
        if any(x.shape.rank and x.shape.num_elements() == ROWS * WIDTH for x in op.outputs)
    ]
    assert makers.count("DeepCopy") == makers.count("InplaceUpdate") == 1
    assert set(makers) <= {
        "DeepCopy",
        "InplaceUpdate",
        "ReadVariableOp",
        "StatelessWhile",
        "While",
        "Reshape",
        "Placeholder",
        "Identity",
    }


def test_an_accelerator_makes_no_copy_of_the_table() -> None:
    """The table is a parameter whose memory is the result's, and all that is made of its size is written there."""
    earlier = {id(x) for x in gc.get_objects() if isinstance(x, Executable)}
    step = mtf.function(program, mtf.GpuMeshImpl("all:1", ""), inputs=INPUTS)
    new, table = np.ones([4, WIDTH], np.float32), np.zeros([ROWS, WIDTH], np.float32)
    found = step(new=new, places=np.array(WRITTEN, np.int32), seen=SEEN)
    np.testing.assert_array_equal(found, expected(table, new, WRITTEN))
    (compiled,) = [
        x
        for x in gc.get_objects()
        if isinstance(x, Executable) and id(x) not in earlier and "may-alias" in text_of(x).splitlines()[0]
    ]
    made = re.findall(rf"= f32\[(?:1,)?{ROWS},{WIDTH}\]\S* ([a-z-]+)\(", text_of(compiled))
    assert set(made) <= {"parameter", "bitcast", "scatter", "fusion", "get-tuple-element"}, made
    assert made.count("scatter") == LAYERS, "the loop is unrolled"
    assert made.count("fusion") <= LAYERS, "each is one of the scatters"


def text_of(program: Executable) -> str:
    return "".join(module.to_string() for module in program.program.hlo_modules())
