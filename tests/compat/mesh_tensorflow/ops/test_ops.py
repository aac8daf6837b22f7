"""The module in which the original defines its language has this package's names."""

from __future__ import annotations

import builtins

import pytest

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.compat.mesh_tensorflow import ops, ops_with_redefined_builtins
from meshtf.compat.mesh_tensorflow.ops import Operation, Shape, Tensor, mtf_slice


def test_the_module_has_the_names_of_the_package() -> None:
    assert (Operation, Shape, Tensor, mtf_slice) == (mtf.Operation, mtf.Shape, mtf.Tensor, mtf.mtf_slice)
    assert mtf.ops.convert_to_shape is mtf.convert_to_shape
    assert ops_with_redefined_builtins.range is mtf.range
    assert {"gather", "Lowering", "Constant", "get_variable"} <= set(ops.__all__)
    with pytest.raises(AttributeError, match=r"write: print\(lowering\.report\(\)\)"):
        ops.log_variable_sizes  # noqa: B018


def test_a_star_hides_no_function_of_python() -> None:
    assert [name for name in ops.__all__ if hasattr(builtins, name)] == []
    assert all(hasattr(ops, f"mtf_{name}") for name in ("abs", "pow", "range", "slice"))
