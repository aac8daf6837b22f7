"""Dimensions and shapes are taken apart, subtracted and changed as Mesh TensorFlow's, and are meshtf's all the same."""

from __future__ import annotations

import pytest

import meshtf
import meshtf.compat.mesh_tensorflow as mtf
from meshtf.errors import ShapeError

A, B, ABSENT = mtf.Dimension("a", 4), mtf.Dimension("b", 6), mtf.Dimension("absent", 2)


def zeros(*dims: mtf.Dimension) -> mtf.Tensor:
    return mtf.zeros(mtf.Mesh(mtf.Graph(), "mesh"), list(dims))


def test_a_dimension_is_a_pair() -> None:
    name, size = A
    assert (name, size, A[0], A[1], len(A), A._replace(size=8)) == ("a", 4, "a", 4, 2, mtf.Dimension("a", 8))
    assert A == meshtf.Dimension("a", 4) == A == ("a", 4)
    assert meshtf.Dimension("a", 5) != A
    assert len({A, meshtf.Dimension("a", 4), mtf.Dimension("a", 4)}) == 1
    assert sorted([B, A]) == [A, B]
    with pytest.raises(AttributeError, match=r"dim\._replace\(size=3\)"):
        A.size = 3


def test_dimensions_of_results_are_pairs_too() -> None:
    y = mtf.reduce_sum(zeros(A, B) + 1.0, reduced_dim=A)
    ((name, size),) = y.shape.dims
    assert (name, size) == ("b", 6)
    assert y.shape == mtf.Shape([B]) == meshtf.Shape([B])
    assert hash(y.shape) == hash(meshtf.Shape([B]))


def test_shapes_add_and_subtract() -> None:
    shape = mtf.Shape([A, B])
    assert shape - [ABSENT, A] == mtf.Shape([B])
    assert shape - None == shape
    assert shape + [ABSENT] - A == mtf.Shape([B, ABSENT])
    assert [shape.cumprod_to_tensor_axis(n) for n in (1, 4, 5)] == [0, 1, None]
    assert mtf.Shape([A, [B]]) == shape  # a list among dimensions stands for what it lists
    for found in (
        shape.rename_dimension("a", "c"),
        shape.resize_dimension("a", 2),
        shape[:1],
        shape + A._replace(name="c"),
    ):
        assert all(isinstance(d, mtf.Dimension) for d in found), found
    with pytest.raises(ShapeError, match='no dimension "absent"'):
        shape - ABSENT


def test_the_list_of_a_shape_changes_it() -> None:
    shape = mtf.Shape([A])
    shape._dims.insert(0, B)
    assert shape == mtf.Shape([B, A])
    shape._dims = [A, ABSENT]
    assert shape.to_integer_list == [4, 2]
    with pytest.raises(ShapeError, match="stands twice"):
        shape._dims.append(A)
    with pytest.raises(AttributeError, match=r"mtf\.Shape"):
        shape.size = 3


def test_slices_and_copies_of_dims_are_lists() -> None:
    shape = mtf.Shape([A, B])
    sliced, copied = shape.dims[:], shape.dims.copy()
    sliced[0], copied[-1] = ABSENT, A._replace(name="c")
    assert (mtf.Shape(sliced), mtf.Shape(copied)) == (mtf.Shape([ABSENT, B]), mtf.Shape([A, ("c", 4)]))
    assert shape.dims == [A, B] == shape.dims[:]
    with pytest.raises(TypeError, match=r"dims = shape\.dims\[:\]"):
        shape.dims[0] = B


def test_a_list_of_one_stands_for_the_dimension() -> None:
    x = zeros(A, B)
    assert mtf.reduce_sum(x, reduced_dim=[A]).shape == mtf.Shape([B])
    assert mtf.split(x, [B], 3)[0].shape == mtf.Shape([A, ("b", 2)])
    assert mtf.convert_to_dimension([A]) == A
    with pytest.raises(ShapeError, match="2 were given"):
        mtf.gather(x, 1, [A, B])
    with pytest.raises(TypeError, match="not a dimension: 5"):
        mtf.convert_to_dimension(5)
