"""Operation classes of programs: derived, differentiated, and run by a session on one core, on four, and on a TPU's."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.errors import GraphError
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from tests.compat.mesh_tensorflow.operations.own_operation import OwnOperation
from tests.compat.mesh_tensorflow.sessions import BATCH, HIDDEN, evaluated, initial
from tests.house.sharpest import sharpest

# Sums along both dimensions, a few functions, a few powers.
TERMS = HIDDEN.size + BATCH.size + 5 * FUNCTION_TERMS

X, SCALE = initial("x", [BATCH.size, HIDDEN.size]), initial("scale", [HIDDEN.size])


class MishForward(mtf.Operation):
    """With a gradient that is an operation class, too."""

    def __init__(self, x: mtf.Tensor) -> None:
        super().__init__([x])
        self._outputs = [mtf.Tensor(self, x.shape, x.dtype)]
        self._splittable_dims, self._unsplittable_dims = self._initialize_all_dimensions_as_splittable()

    def gradient(self, grad_ys: list[Any]) -> Any:
        return MishBackward(grad_ys, self).outputs

    def lower(self, lowering: Any) -> None:
        y = lowering.mesh_impl(self).slicewise(
            lambda x: x * tf.tanh(tf.math.softplus(x)), lowering.tensors[self.inputs[0]].to_laid_out_tensor()
        )
        lowering.set_tensor_lowering(self.outputs[0], y)


class MishBackward(mtf.Operation):
    def __init__(self, grad_ys: list[mtf.Tensor], forward: MishForward) -> None:
        super().__init__(grad_ys + forward.inputs, name="mish_backward")
        self._outputs = [mtf.Tensor(self, x.shape, x.dtype) for x in forward.inputs]

    def lower(self, lowering: Any) -> None:
        def derived(dy: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
            squashed = tf.tanh(tf.math.softplus(x))
            return dy * (squashed + x * (1.0 - tf.square(squashed)) * tf.sigmoid(x))

        mesh_impl = lowering.mesh_impl(self)
        lowering.tensors[self.outputs[0]] = mesh_impl.slicewise(derived, *(lowering.tensors[x] for x in self.inputs))


class Normalized(mtf.Operation):
    """x over its norm along the last dimension, times a scale: slices, a sum of what cores have, slices again."""

    def __init__(self, x: mtf.Tensor, scale: mtf.Tensor) -> None:
        super().__init__([x, scale], x.mesh, name="normalized")
        self._outputs = [mtf.Tensor(self, x.shape, "float32")]

    def gradient(self, grad_ys: list[Any]) -> Any:
        return mtf.GenericGradOperation(self, grad_ys).outputs

    def lower(self, lowering: Any) -> None:
        mesh_impl = lowering.mesh_impl(self)
        x, scale = (lowering.tensors[t] for t in self.inputs)
        squares = mesh_impl.slicewise(lambda own: tf.reduce_sum(tf.square(own), -1, keepdims=True), x)
        axis = mesh_impl.tensor_dimension_to_mesh_axis(self.inputs[0].shape.dims[-1])
        if axis is not None:
            squares = mtf.LazyAllreduceSum(mesh_impl, squares, [axis], lambda: lowering.add_counter("sum", 1))
        squares = mesh_impl.slicewise_delay_allreduce(tf.identity, squares)
        y = mesh_impl.slicewise(lambda own, total, by: own * tf.math.rsqrt(total) * by, x, squares, scale)
        lowering.add_counter("normalized", mesh_impl.laid_out_size(self.outputs[0].shape))
        lowering.set_tensor_lowering(self.outputs[0], y)


def _program(mesh: mtf.Mesh) -> list[Any]:
    x = mtf.import_tf_tensor(mesh, tf.constant(X), [BATCH, HIDDEN])
    scale = mtf.import_tf_tensor(mesh, tf.constant(SCALE), [HIDDEN])
    y = MishForward(x).outputs[0]
    z = Normalized(y, scale).outputs[0]
    return [z, *mtf.gradients([mtf.reduce_sum(mtf.square(z) * z)], [x, scale])]


@pytest.mark.parametrize("mesh", sharpest(["one core", "2x2", "tpu"], ["2x2", "tpu"]))
def test_operation_classes_give_what_one_core_gives(mesh: str) -> None:
    with tf.GradientTape() as tape:
        x, scale = tf.constant(X), tf.constant(SCALE)
        tape.watch([x, scale])
        y = x * tf.tanh(tf.math.softplus(x))
        z = y * tf.math.rsqrt(tf.reduce_sum(tf.square(y), -1, keepdims=True)) * scale
        total = tf.reduce_sum(z**3)
    expected = [z, *tape.gradient(total, [x, scale])]
    for found, wanted in zip(evaluated(_program, mesh), expected, strict=True):
        assert_close(found, wanted.numpy(), terms=TERMS, dtype=tf.float32)


def test_sizes_that_do_not_divide() -> None:
    """A dimension is whole where its axis does not divide it, and results are those of one core."""

    def program(x: mtf.Tensor, scale: mtf.Tensor) -> list[Any]:
        y = Normalized(MishForward(x).outputs[0], scale).outputs[0]
        return [y, *mtf.gradients([mtf.reduce_sum(y * y * y)], [x, scale])]

    given = {"x": ("batch:7 hidden:7", X[:7, :7]), "scale": ("hidden:7", SCALE[:7])}
    one = interpret(program, given, "all:1").results
    for layout in ("batch:rows", "hidden:cols", "batch:cols;hidden:rows"):
        for found, wanted in zip(interpret(program, given, "rows:2;cols:4", layout).results, one, strict=True):
            assert_close(found, wanted, terms=TERMS, dtype=tf.float32)


def test_mistakes_in_a_class_are_told() -> None:
    class ForgetsGradients(OwnOperation):
        def gradient(self, grad_ys: Any) -> Any:
            return []

    def program(x: mtf.Tensor) -> Any:
        y = ForgetsGradients(lambda m, s: [s], [x], [x.shape]).outputs[0]
        return mtf.gradients([y], [x])

    given = {"x": ("batch:8 hidden:8", X[:, :8])}
    with pytest.raises(GraphError, match="gradient of ForgetsGradients gave 0 gradients for 1 input"):
        interpret(program, given, "rows:2")
    with pytest.raises(
        GraphError, match=r"set as an output of own, and is one of \w+; make outputs with mtf.Tensor\(self"
    ):
        interpret(lambda x: setattr(OwnOperation(lambda m, s: [s], [x], [x.shape]), "_outputs", [x]), given, "rows:2")
    with pytest.raises(GraphError, match=r"lowering.tensors has no slices of x \[batch:8 hidden:8\] float32"):
        interpret(lambda x: [ReadsAnother(x).outputs[0]], given, "rows:2")
    with pytest.raises(GraphError, match=r"is none; call mtf\.gradients"):
        interpret(lambda x: mtf.GenericGradOperation((x + 1.0).operation, [x]), given, "rows:2")
    with pytest.raises(AttributeError, match="has no attribute 'operations' in meshtf; it has tensors, mesh_impl"):
        interpret(lambda x: [Assigns(x).outputs[0]], given, "rows:2")


@pytest.mark.parametrize("by_class", [True, False], ids=["operation class", "slicewise"])
def test_a_tensor_of_the_session_in_a_function_of_slices_is_refused_before_a_session_runs(by_class: bool) -> None:
    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        x, outside = mtf.import_tf_tensor(mesh, tf.constant(X), [BATCH, HIDDEN]), tf.constant(2.0) + 1.0
        if by_class:
            return OwnOperation(lambda m, s: [m.slicewise(lambda own: own * outside, s)], [x], [x.shape]).outputs[0]
        return mtf.slicewise(lambda own: own * outside, [x], splittable_dims=x.shape)

    with pytest.raises(GraphError, match="a tensor of the session's graph, in which the program does not run"):
        evaluated(program)


class ReadsAnother(mtf.Operation):
    def __init__(self, x: mtf.Tensor) -> None:
        super().__init__([x + 1.0])
        self._outputs, self._other = [mtf.Tensor(self, x.shape, x.dtype)], x

    def lower(self, lowering: Any) -> None:
        lowering.set_tensor_lowering(self.outputs[0], lowering.tensors[self._other])


class Assigns(ReadsAnother):
    def lower(self, lowering: Any) -> None:
        lowering.operations[self] = tf.no_op()


class Scaled(mtf.Operation):
    """Its `gradient` takes an argument of its own, which the program's own loop over operations passes."""

    def __init__(self, x: mtf.Tensor) -> None:
        super().__init__([x])
        self._outputs = [mtf.Tensor(self, self._inputs[0].shape, self._inputs[0].dtype)]

    def lower(self, lowering: Any) -> None:
        scaled = lowering.mesh_impl(self).slicewise(lambda x: 3.0 * x, lowering.tensors[self._inputs[0]])
        lowering.set_tensor_lowering(self.outputs[0], scaled)

    def gradient(self, grad_ys: list[Any], pairs: bool = False) -> Any:
        dx = grad_ys[0] * 3.0
        yield (self, dx) if pairs else dx


def test_gradient_may_take_arguments_of_its_own() -> None:
    x = mtf.ones(mtf.Mesh(mtf.Graph(), "mesh"), [BATCH])
    operation = Scaled(x).outputs[0].operation
    assert [dx.shape for dx in operation.gradient([x])] == [x.shape]
    ((made, dx),) = operation.gradient([x], pairs=True)
    assert made is operation
    assert dx.shape == x.shape
