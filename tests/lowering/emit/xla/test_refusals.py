"""What XLA cannot compile is refused when the graph is lowered, with the operation and the user's line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import CompilationError, UsageError

BATCH, D_MODEL = mtf.Dimension("batch", 16), mtf.Dimension("d_model", 8)


def lowered(fn: Callable[[mtf.Tensor], mtf.Tensor]) -> mtf.Function:
    mesh_impl = mtf.TpuMeshImpl("rows:2;cols:4", "batch:rows", physical_torus="2x2")
    return mtf.function(fn, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, D_MODEL])}, name="step")


def python_function(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.slicewise(lambda y: tf.numpy_function(np.sin, [y], tf.float32), x, splittable_dims=["batch"])


def in_a_loop(x: mtf.Tensor) -> list[mtf.Tensor]:
    def text(y: mtf.Tensor, _: list[mtf.Tensor]) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        return mtf.cwise(lambda z: tf.strings.to_number(tf.strings.as_string(z)), y), []

    return mtf.scan(text, x, [], mtf.Dimension("turns", 3))[0]


def unique_elements(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.slicewise(lambda y: tf.unique(tf.reshape(y, [-1]))[0], x, output_shape="elements:128")


def printed(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.print_tensor(x, [x], message="x")


@pytest.mark.parametrize(
    ("fn", "fact", "operation"),
    [
        (python_function, "it has no kernel for TensorFlow's PyFunc", "slicewise"),
        (in_a_loop, "it has no kernel for TensorFlow's AsString", "cwise"),
        (unique_elements, "the size of a result of TensorFlow's Unique depends on its values", "slicewise"),
        (printed, "it has no kernel for TensorFlow's StringFormat", "print_tensor"),
    ],
)
def test_the_message(fn: Callable[[mtf.Tensor], mtf.Tensor], fact: str, operation: str) -> None:
    with pytest.raises(CompilationError) as error:
        lowered(fn)
    first, second, third, *_ = str(error.value).splitlines()
    assert first == f'program "step" cannot be compiled by XLA: {fact}'
    assert second.startswith("  in operation ")
    assert operation in second
    assert __file__ in second
    assert third.startswith("Programs for GPUs and TPUs are compiled as a whole.")


@pytest.mark.parametrize("recompute", [None, "nested"])
def test_loops_in_a_row_that_pass_on_a_constant_are_compiled(recompute: str | None) -> None:
    """TensorFlow loses the body of the third if they all carry it, themselves or in loops inside."""

    def turn(own: Sequence[mtf.Tensor], _: object) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        return [own[0] + own[1], mtf.stop_gradient(own[1])], []

    def program(x: mtf.Tensor) -> mtf.Tensor:
        values = [x, mtf.ones(x.mesh, [D_MODEL])]
        for turns in ("first:4", "second:4", "third:4"):
            values, _ = mtf.scan(turn, values, [], turns, recompute=recompute)
        return values[0]

    assert lowered(program).hlo() is not None


def test_other_meshes_have_no_hlo() -> None:
    step = mtf.function(lambda x: x, mtf.PlanMeshImpl("rows:2", ""), inputs={"x": mtf.TensorSpec([BATCH])})
    with pytest.raises(UsageError, match=r"was lowered for an mtf.PlanMeshImpl, which does not compile it to HLO"):
        step.hlo()
