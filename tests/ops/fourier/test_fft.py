"""Fourier transforms against TensorFlow's, their gradients, and the bytes that they send."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import assert_close, assert_layout_invariant, interpret
from tests.ops.complex_gradients import check, complex_array

RNG = np.random.default_rng(0)
X, R = complex_array(RNG, 4, 8, 6), RNG.standard_normal((4, 8, 6))
SHAPE = "a:4 b:8 c:6"
LAYOUTS = ["", "a:rows", "b:cols+rows", "a:rows;b:cols", "b:rows;c:cols", "c:cols;a:rows"]


def _over(function: Any, x: tf.Tensor, axes: list[int]) -> tf.Tensor:
    for axis in axes:
        order = [i for i in range(3) if i != axis] + [axis]
        x = tf.transpose(function(tf.transpose(x, order)), np.argsort(order))
    return x


@pytest.mark.parametrize("dims", ["a", "cb", "cab"])
def test_fft_and_ifft(dims: str) -> None:
    axes = ["abc".index(d) for d in dims]
    check(
        lambda x: [mtf.fft(x, list(dims)), mtf.ifft(x, list(dims))],
        lambda x: [_over(tf.signal.fft, x, axes), _over(tf.signal.ifft, x, axes)],
        {"x": (SHAPE, X)},
        LAYOUTS,
    )


@pytest.mark.parametrize("size", [6, 7])
def test_rfft_and_irfft(size: int) -> None:
    r = RNG.standard_normal((4, 8, size))
    half = complex_array(RNG, 4, 8, size // 2 + 1)
    check(
        lambda r, z: [
            mtf.rfft(r, "c", half_dim="half"), mtf.rfft(r, ["a", "c"], half_dim="half"),
            mtf.irfft(z, "half", size, "c"), mtf.irfft(z, ["a", "half"], size, "c"),
        ],
        lambda r, z: [
            tf.signal.rfft(r), _over(tf.signal.fft, tf.signal.rfft(r), [0]),
            tf.signal.irfft(z, [size]), tf.signal.irfft(_over(tf.signal.ifft, z, [0]), [size]),
        ],
        {"r": (f"a:4 b:8 c:{size}", r), "z": (f"a:4 b:8 half:{size // 2 + 1}", half)},
        ["", "a:rows", "b:cols+rows", "a:rows;b:cols", "half:rows;a:cols", *["c:rows"] * (size == 6)],
    )  # fmt: skip


def test_the_halves_keep_their_name_unless_another_is_given() -> None:
    check(
        lambda r: [mtf.rfft(r, "b"), mtf.irfft(mtf.rfft(r, ["a", "b"]), ["a", "b"])],
        lambda r: [tf.transpose(tf.signal.rfft(tf.transpose(r, [0, 2, 1])), [0, 2, 1]), r],
        {"r": (SHAPE, R)},
        ["", "a:rows", "c:cols"],
        order=1,
    )


def test_transforms_on_many_meshes() -> None:
    x = complex_array(RNG, 12, 12, 12)
    for mesh, layouts in {
        "cores:4": ["a:cores", "b:cores"],
        "rows:2;cols:3": ["a:rows+cols", "a:rows;b:cols", "c:cols+rows"],
        "rows:2;cols:2;deep:2": ["a:rows+cols;b:deep", "a:rows;b:cols;c:deep"],
    }.items():
        check(
            lambda x: mtf.fft(x, ["a", "b", "c"]),
            lambda x: tf.signal.fft3d(x),
            {"x": ("a:12 b:12 c:12", x)},
            layouts,
            order=0,
            mesh=mesh,
        )


def _sent(mesh: str, layout: str, after: str | None, dims: str = "abc", shape: str = "a:8 b:8 c:8") -> tuple[int, list]:
    """Bytes that each core sends for a transform whose result is wanted in a layout, and the collectives."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        y = mtf.fft(mtf.identity(x), list(dims))
        return y if after is None else mtf.with_layout(y, after)

    sizes = mtf.convert_to_shape(shape).to_integer_list
    done = interpret(program, {"x": (shape, complex_array(RNG, *sizes))}, mesh, layout)
    steps = [(c.step, c.input.slice_bytes) for c in done.plan.collectives]
    mesh_shape = mtf.convert_to_shape(mesh)
    return sum(step.bytes_sent(size, mesh_shape) for step, size in steps), [step.kind for step, _ in steps]


def test_slabs_send_the_least() -> None:
    """Every core needs, of a dimension that it had a fourth of, the other three fourths of its new pencils."""
    part = 8**3 * 16 // 4
    least = part - part // 4
    assert _sent("cores:4", "a:cores", "b:cores") == (least, ["all_to_all"])
    assert _sent("cores:4", "a:cores", None) == (2 * least, ["all_to_all"] * 2)
    assert _sent("cores:4", "a:cores", None, "bc") == (0, [])
    assert _sent("cores:4", "b:cores", None, "b") == (2 * least, ["all_to_all"] * 2)


def test_pencils_send_the_least() -> None:
    """Split over two axes of 2 and 4: a half, and three fourths, of each part must move once."""
    part = 8**3 * 16 // 8
    least = part // 2 + part * 3 // 4
    sent, kinds = _sent("rows:2;cols:4", "a:rows;b:cols", None)
    assert kinds.count("all_to_all") == len(kinds)
    assert sent == 2 * least
    forward, kinds = _sent("rows:2;cols:4", "a:rows;b:cols", "b:rows;c:cols")
    assert (forward, kinds) == (least, ["all_to_all"] * 2)


def test_a_dimension_alone_is_gathered() -> None:
    assert _sent("cores:4", "a:cores", None, "a", "a:8") == (8 * 16 // 4 * 3, ["all_gather"])


def test_an_inverse_goes_on_where_the_transform_ended() -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.ifft(mtf.fft(mtf.identity(x), ["a", "b", "c"]), ["a", "b", "c"])

    x = complex_array(RNG, 8, 8, 8)
    done = interpret(program, {"x": ("a:8 b:8 c:8", x)}, "cores:4", "a:cores")
    assert [c.step.kind for c in done.plan.collectives] == ["all_to_all"] * 2
    assert_close(done.results, x, terms=2 * 9 * 3)


def test_on_virtual_cpus() -> None:
    inputs = {"x": (SHAPE, X.astype(np.complex64)), "r": (SHAPE, R.astype(np.float32))}
    assert_layout_invariant(
        lambda x, r: [mtf.fft(x, ["a", "b"]), mtf.irfft(mtf.rfft(r, ["b", "c"], "half"), ["b", "half"], 6, "c")],
        inputs,
        ["a:cols;b:rows"],
    )


def test_transforms_of_nothing() -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor | None]:
        y = mtf.ifft(mtf.fft(x, "n"), ["m", "n"])
        return [y, *mtf.gradients(mtf.real(y), x)]

    inputs = {"x": ("m:4 n:0", np.zeros([4, 0], np.complex64))}
    assert [x.shape for x in interpret(program, inputs, "rows:2", "m:rows").results] == [(4, 0), (4, 0)]


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x, r = mtf.placeholder(mesh, "a:4 b:5", tf.complex64), mtf.placeholder(mesh, "a:4 b:5")
    before = len(mesh.graph.operations)
    cases = [
        (ShapeError, lambda: mtf.fft(x, "c"), r'no dimension "c"'),
        (ShapeError, lambda: mtf.fft(x, ["a", "a"]), r'dimension "a" is named twice; name each once'),
        (ShapeError, lambda: mtf.fft(x, []), r"no dimension is given"),
        (DtypeError, lambda: mtf.ifft(r, "a"), r"a complex tensor is needed, not float32; .*mtf.rfft"),
        (DtypeError, lambda: mtf.rfft(x, "a"), r"float32 or float64, not complex64"),
        (ShapeError, lambda: mtf.rfft(r, "a", "b"), r'has a dimension "b" already'),
        (ShapeError, lambda: mtf.irfft(x, "b", 7), r'"b" has 5 elements, half of a result of size 8 or 9, not 7'),
    ]  # fmt: skip
    for kind, call, message in cases:
        with pytest.raises(kind, match=message):
            call()
    assert len(mesh.graph.operations) == before
