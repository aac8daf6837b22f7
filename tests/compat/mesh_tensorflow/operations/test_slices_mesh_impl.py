"""What the `lower` of an operation class may do to slices: each, and its gradient, against the same on whole arrays."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.errors import MeshtfError
from meshtf.testing import assert_close, interpret
from tests.compat.mesh_tensorflow.operations.own_operation import OwnOperation
from tests.house.sharpest import sharpest

MESH = mtf.convert_to_shape("rows:2;cols:4")
X = np.random.default_rng(0).normal(size=[8, 8]).astype(np.float32)
WEIGHT = np.random.default_rng(1).normal(size=[32, 32]).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Split:
    """A layout of x [batch:8 hidden:8]: `hidden` over one axis, `batch` over the other, or whole."""

    hidden: str
    batch: str | None

    @property
    def layout(self) -> str:
        tokens = "+".join(a for a in (self.batch, self.hidden) if a)
        rules = [f"hidden:{self.hidden}", f"kept:{self.hidden}", f"tokens:{tokens}"]
        return ";".join([*rules, f"batch:{self.batch}"] if self.batch else rules)

    @property
    def parts(self) -> int:
        """Of `hidden`."""
        return MESH.get_dim_by_name(self.hidden).size

    def blocks(self, x: Any) -> list[Any]:
        """The slices along `hidden`."""
        return tf.split(x, self.parts, 1)

    def diagonal(self, x: Any) -> Any:
        """Of the j-th slice along `hidden` the j-th part of its rows, of each slice along `batch`."""
        batches = MESH.get_dim_by_name(self.batch).size if self.batch else 1
        rows = [
            tf.concat([tf.split(own, self.parts, 0)[j] for j, own in enumerate(self.blocks(b))], 1)
            for b in tf.split(x, batches, 0)
        ]
        return tf.concat(rows, 0)


SPLITS = [Split("rows", None), Split("cols", "rows"), Split("rows", "cols")]


@dataclasses.dataclass(frozen=True)
class Case:
    """Work on the slices of x [batch:8 hidden:8].

    lower: `lower(mesh_impl, axis, x)`, of the number of the axis that splits `hidden`.
    whole: the same of the whole array.
    output: the result's dimensions; "part" has the size of one slice of `hidden`, "many" 8 for each slice, "few" 8 over
      their number.
    """

    lower: Callable[[Any, int, Any], Any]
    whole: Callable[[Split, Any], Any]
    output: str

    def shape(self, split: Split) -> list[mtf.Dimension]:
        sizes = {"part": 8 // split.parts, "many": 8 * split.parts, "few": 8 // split.parts}
        names = {"few": "batch"}
        return [mtf.Dimension(names.get(n, n), sizes.get(n, 8)) for n in self.output.split()]


def pairs(m: Any, axis: int, x: Any) -> Any:
    """Two results of one function, both used."""
    sine, cosine = m.slicewise(lambda s: (tf.sin(s), tf.cos(s)), x)
    return m.slicewise(tf.multiply, sine, cosine)


CASES = {
    "sum": Case(lambda m, a, x: m.allreduce(x, [a], "SUM"), lambda split, x: tf.add_n(split.blocks(x)), "batch part"),
    "maximum": Case(
        lambda m, a, x: m.allreduce(m.slicewise(tf.exp, x), [a], "MAX"),
        lambda split, x: tf.reduce_max(tf.stack(split.blocks(tf.exp(x))), 0),
        "batch part",
    ),
    "minimum": Case(
        lambda m, a, x: m.allreduce(x, [m.shape.dimension_names[a]], "MIN"),
        lambda split, x: tf.reduce_min(tf.stack(split.blocks(x)), 0),
        "batch part",
    ),
    "sum of what all have": Case(
        lambda m, a, x: m.allreduce(m.allconcat(x, a, 1), [a], "SUM"), lambda split, x: x * split.parts, "batch whole"
    ),
    "allconcat": Case(lambda m, a, x: m.allconcat(x, a, -1), lambda split, x: x, "batch whole"),
    "allconcat of what all have": Case(
        lambda m, a, x: m.allconcat(m.allconcat(x, a, 1), a, 1),
        lambda split, x: tf.concat([x] * split.parts, 1),
        "batch many",
    ),
    "allsplit": Case(lambda m, a, x: m.allsplit(m.allconcat(x, a, 1), a, 1), lambda split, x: x, "batch kept"),
    "allsplit of what differs": Case(
        lambda m, a, x: m.allsplit(x, a, 0), lambda split, x: split.diagonal(x), "few kept"
    ),
    "alltoall": Case(lambda m, a, x: m.alltoall(x, a, 0, 1), lambda split, x: x, "tokens whole"),
    "shift": Case(
        lambda m, a, x: m.shift_by_n_processors(x, a, 1, wrap=False),
        lambda split, x: tf.concat([tf.zeros_like(split.blocks(x)[0]), *split.blocks(x)[:-1]], 1),
        "batch kept",
    ),
    "shift around": Case(
        lambda m, a, x: m.shift_by_n_processors(x, a, -1, wrap=True),
        lambda split, x: tf.concat([*split.blocks(x)[1:], split.blocks(x)[0]], 1),
        "batch kept",
    ),
    "receive": Case(
        lambda m, a, x: m.receive(x, a, [1, None, *range(2, m.shape.dims[a].size)]),
        lambda split, x: tf.concat([split.blocks(x)[1], tf.zeros_like(split.blocks(x)[0]), *split.blocks(x)[2:]], 1),
        "batch kept",
    ),
    "einsum": Case(
        lambda m, a, x: m.einsum("bh,bh->bh", x, m.slicewise(tf.sin, x)), lambda split, x: x * tf.sin(x), "batch kept"
    ),
    "two results": Case(pairs, lambda split, x: tf.sin(x) * tf.cos(x), "batch kept"),
    "own place": Case(
        lambda m, a, x: m.slicewise(lambda s, i: s * tf.cast(i, s.dtype), x, m.laid_out_pcoord(a)),
        lambda split, x: tf.concat([i * b for i, b in enumerate(split.blocks(x))], 1),
        "batch kept",
    ),
    "slice's number": Case(
        lambda m, a, x: m.slicewise(
            lambda s, i: s * tf.cast(i, s.dtype), x, m.laid_out_slice_num([mtf.Dimension("kept", 8)])
        ),
        lambda split, x: tf.concat([i * b for i, b in enumerate(split.blocks(x))], 1),
        "batch kept",
    ),
}


@pytest.mark.parametrize(
    ("name", "split"),
    sharpest(
        itertools.product(CASES, SPLITS),
        [(name, SPLITS[1 + number % 2]) for number, name in enumerate(CASES)]
        + [("own place", SPLITS[1]), ("allsplit of what differs", SPLITS[0]), ("alltoall", SPLITS[0])],
    ),
    ids=lambda value: value if isinstance(value, str) else value.layout,
)
def test_slices_as_the_whole(name: str, split: Split) -> None:
    case = CASES[name]
    shape = case.shape(split)
    axis = MESH.axis(split.hidden)
    weight = WEIGHT[: shape[0].size, : shape[1].size]

    def program(x: mtf.Tensor, weight: mtf.Tensor) -> list[mtf.Tensor]:
        y = OwnOperation(lambda m, slices: [case.lower(m, axis, slices)], [x], [shape]).outputs[0]
        return [y, *mtf.gradients([mtf.reduce_sum(y * weight)], [x])]

    given = {"x": ("batch:8 hidden:8", X), "weight": (shape, weight)}
    y, gradient = interpret(program, given, MESH, split.layout).results
    with tf.GradientTape() as tape:
        x = tf.constant(X)
        tape.watch(x)
        expected = case.whole(split, x)
        total = tf.reduce_sum(expected * weight)
    assert_close(y, expected.numpy(), terms=8, dtype=tf.float32)
    assert_close(gradient, tape.gradient(total, x).numpy(), terms=16, dtype=tf.float32)


def test_what_the_mesh_says() -> None:
    """Sizes, places and numbers; a dimension that its axis does not divide is whole."""
    said: dict[str, Any] = {}

    def lower(m: Any, x: Any) -> list[Any]:
        said.update(
            shape=m.slice_shape("batch:8 hidden:8"),
            begin=m.slice_begin("batch:8 hidden:8", 5),
            uneven=m.slice_shape("batch:7 hidden:8"),
            axis=m.tensor_dimension_to_mesh_axis(mtf.Dimension("hidden", 8)),
            mesh=(m.ndims, m.size, m.supports_control_dependencies),
            elements=(m.slice_size("batch:8 hidden:8"), m.laid_out_size("batch:8 other:3")),
        )
        cores = m.slicewise(lambda n: tf.fill([4, 2], n), m.laid_out_pnum())
        return [cores, m.broadcast_impl(m.slicewise(lambda s: s[0], x), "hidden:8", "batch:8 other:3 hidden:8")]

    def program(x: mtf.Tensor) -> tuple[mtf.Tensor, ...]:
        return OwnOperation(lower, [x], ["batch:8 hidden:8", "batch:8 other:3 hidden:8"], tf.int32).outputs

    x = np.arange(64, dtype=np.int32).reshape(8, 8)
    cores, wide = interpret(program, {"x": ("batch:8 hidden:8", x)}, MESH, "batch:rows;hidden:cols").results
    np.testing.assert_array_equal(cores, np.arange(8).reshape(2, 4).repeat(4, 0).repeat(2, 1))
    np.testing.assert_array_equal(wide, np.broadcast_to(x[[0] * 4 + [4] * 4, None], [8, 3, 8]))
    assert said == {
        "shape": [4, 2], "begin": [4, 2], "uneven": [7, 2], "axis": 1, "mesh": (2, 8, True),
        "elements": (8, 96),
    }  # fmt: skip


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "no slices": (lambda m, x: m.slicewise(tf.abs, OUTSIDE[0]), "which is no slice; give lowering.tensors"),
    "raises": (lambda m, x: m.slicewise(lambda s: tf.reshape(s, [3]), x), "tf_fn raised"),
    "size": (
        lambda m, x: m.slicewise(lambda s: tf.boolean_mask(s, s > 0), x),
        "sizes must be known; call tf.ensure_shape",
    ),
    "reduction": (lambda m, x: m.allreduce(x, [1], "MEAN"), '"SUM", "MAX" or "MIN", not \'MEAN\''),
    "axis": (lambda m, x: m.allreduce(x, [2], "SUM"), "2 is no axis of the mesh [rows:2 cols:4]"),
    "dimension": (lambda m, x: m.allconcat(x, 1, 2), "has no dimension 2"),
    "parts": (
        lambda m, x: m.alltoall(x, 1, 1, 0),
        "[4, 2] float32, one of its own along cols+rows cannot be cut into 4",
    ),
    "sources": (
        lambda m, x: m.receive(x, 1, [0, 0, 1, 2]),
        "no core twice: for one slice on all of them call allconcat",
    ),
    "whole sizes": (
        lambda m, x: m.import_tf_tensor("batch:8", tf.zeros([4])),
        "import_tf_tensor was given sizes [4] for [batch:8]",
    ),
    "the tensors": (lambda m, x: x.tensor_list, "only inside the function that mesh_impl.slicewise"),
    "no such attribute": (lambda m, x: x.size, "has no attribute 'size'"),
    "no such method": (
        lambda m, x: m.LaidOutTensor([]),
        "has no attribute 'LaidOutTensor' in meshtf; it has slicewise",
    ),
    "no slices back": (lambda m, x: 3, "was given int for its slices"),
    "size of the output": (
        lambda m, x: m.slicewise(lambda s: s[:1], x),
        "slices of output [batch:8/rows hidden:8/cols] have the sizes [4, 2], and it was given [1, 2]",
    ),
    "dtype": (lambda m, x: m.slicewise(lambda s: tf.cast(s, tf.int32), x), "slices of int32; declare that dtype"),
    "no result": (lambda m, x: None, "lower of OwnOperation gave own [batch:8 hidden:8] float32 no value"),
}
OUTSIDE: list[mtf.Tensor] = []


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_to_slices_is_refused(name: str) -> None:
    lower, message = REFUSED[name]

    def program(x: mtf.Tensor) -> mtf.Tensor:
        OUTSIDE[:] = [x]

        def lowered(m: Any, slices: Any) -> list[Any]:
            result = lower(m, slices)
            return [] if result is None else [result]

        return OwnOperation(lowered, [x], [x.shape]).outputs[0]

    with pytest.raises((MeshtfError, AttributeError)) as caught:
        interpret(program, {"x": ("batch:8 hidden:8", X)}, MESH, "batch:rows;hidden:cols")
    assert message in str(caught.value)
    if isinstance(caught.value, MeshtfError):
        assert "own_operation.py" in str(caught.value) or __file__ in str(caught.value)


def test_each_core_takes_its_slice_of_a_whole_tensor() -> None:
    """An operation without inputs makes it in its `lower`."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        made = OwnOperation(lambda m: [m.import_tf_tensor(x, tf.reshape(tf.range(64.0), [8, 8]))], [], [x.shape],
                            tf.float32, x.mesh)  # fmt: skip
        return made.outputs[0] + x

    given = {"x": ("batch:8 hidden:8", X)}
    for layout in ("", "batch:rows", "hidden:cols", "batch:cols;hidden:rows"):
        found = interpret(program, given, MESH, layout).results
        np.testing.assert_array_equal(found, X + np.arange(64, dtype=np.float32).reshape(8, 8))


def test_an_output_that_would_differ_between_cores_that_have_the_same_is_refused() -> None:
    """The mistake that gave other numbers on every mesh: a sum over a split dimension without its allreduce."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        return OwnOperation(
            lambda m, s: [m.slicewise(lambda own: tf.reduce_sum(own, 1), s)], [x], [x.shape - x.shape.dims[1:]]
        ).outputs[0]

    given = {"x": ("batch:8 hidden:8", X)}
    with pytest.raises(MeshtfError, match=r'mesh_impl.allreduce\(slices, \[1\], "SUM"\) first') as caught:
        interpret(program, given, MESH, "batch:rows;hidden:cols")
    assert "output [batch:8/rows] is the same on all cores along cols" in str(caught.value)
    assert_close(interpret(program, given, MESH, "batch:rows").results, X.sum(1), terms=8, dtype=tf.float32)
