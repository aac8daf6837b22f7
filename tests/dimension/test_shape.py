"""Dimensions and shapes by themselves; their mistakes are in `tests/errors/test_shapes.py`."""

from __future__ import annotations

import pytest

import meshtf as mtf

BATCH, HIDDEN, HEADS = mtf.Dimension("batch", 4), mtf.Dimension("hidden", 8), mtf.Dimension("heads", 2)
SHAPE = mtf.Shape([BATCH, HIDDEN])


def test_dims_add_to_a_list() -> None:
    """As programs of Mesh TensorFlow do, whose `dims` are a list."""
    assert SHAPE.dims[:-1] + [HEADS] == [BATCH, HEADS]
    assert [HEADS] + SHAPE.dims == [HEADS, BATCH, HIDDEN]
    assert isinstance(SHAPE.dims + [HEADS], list)
    assert mtf.Shape([HEADS] + SHAPE.dims[-1:]) == mtf.convert_to_shape("heads:2 hidden:8")


def test_dims_compare_with_a_list() -> None:
    assert SHAPE.dims == [BATCH, HIDDEN]
    assert [BATCH, HIDDEN] == SHAPE.dims  # noqa: SIM300
    assert not SHAPE.dims != [BATCH, HIDDEN]  # noqa: SIM202
    assert SHAPE.dims != [HIDDEN, BATCH]
    assert SHAPE.dims == (BATCH, HIDDEN)


def test_dims_do_not_change() -> None:
    with pytest.raises(AttributeError):
        SHAPE.dims.append(HEADS)  # type: ignore[attr-defined]
    assert hash(SHAPE) == hash(mtf.convert_to_shape("batch:4 hidden:8"))
    assert SHAPE.dims + (HEADS,) == (BATCH, HIDDEN, HEADS)


def test_products_of_sizes() -> None:
    assert (SHAPE.size, SHAPE.cumprod, mtf.Shape([]).size) == (32, [1, 4], 1)


def test_a_dimension_in_any_form_is_in_the_shape() -> None:
    assert all(d in SHAPE for d in ("hidden", "hidden:8", ("hidden", 8), HIDDEN))
    assert not any(d in SHAPE for d in ("heads", "hidden:9", "heads:8", ("hidden", 9), mtf.Dimension("hidden", 9), 8))
    assert all(SHAPE.has(d) for d in ("hidden", "hidden:9", ("hidden", 9)))
