"""Functions of the language as people call them: FlowPM's Fourier transforms and halos, loops, own gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.errors import ShapeError
from meshtf.testing import assert_close
from tests.compat.mesh_tensorflow.sessions import MESHES, evaluated, graph_mode, initial

DIMS = [mtf.Dimension(n, s) for n, s in (("batch", 2), ("nx", 4), ("hidden", 8), ("nz", 4))]
X = initial("x", [2, 4, 8, 4])


def fft3d(x: mtf.Tensor) -> mtf.Tensor:
    """Along the last three dimensions, one after the other, which change places so that each is whole in turn."""
    x = mtf.cast(x, tf.complex64)
    outer, original = x.shape[:-3], x.shape
    for _ in range(3):
        x_dim, y_dim, z_dim = x.shape[-3:]
        x = mtf.slicewise(tf.signal.fft, [x], output_dtype=tf.complex64, splittable_dims=x.shape[:-1])
        x = mtf.transpose(x, new_shape=outer + [z_dim, x_dim, y_dim])
    return mtf.reshape(x, original)


def doubled_with_half_gradient(x: mtf.Tensor) -> mtf.Tensor:
    def grad_fn(explicit_inputs: Any, all_inputs: Any, forward_operations: Any, outputs: Any, output_grads: Any) -> Any:
        return [output_grads[0] * 0.5]

    return mtf.custom_gradient(lambda t: t * 2.0, grad_fn, [x])


def _program(mesh: mtf.Mesh) -> dict[str, mtf.Tensor]:
    x = mtf.import_tf_tensor(mesh, tf.constant(X), DIMS)
    power = mtf.to_float(mtf.slicewise(tf.abs, [fft3d(x)], output_dtype=tf.float32, splittable_dims=x.shape))
    blocks, cells = mtf.Dimension("hidden", 4), mtf.Dimension("cell", 2)
    in_blocks = mtf.replace_dimensions(x, DIMS[2], [blocks, cells])
    halo = mtf.halo_exchange(in_blocks, blocks, cells, 1, wrap=True)
    loop = mtf.while_loop(lambda n: mtf.less(n, 100), lambda n: [n * 2], [mtf.constant(mesh, 3, dtype=tf.int32)])
    grad = mtf.gradients([mtf.reduce_sum(doubled_with_half_gradient(x))], [x])[0]
    scalar = tf.constant(3.0)
    scaled = tf.constant(1.0) + x * scalar
    empty = x + mtf.add_n([])
    chosen = mtf.where(mtf.greater(x, 0.0), x, tf.constant(-1.0))
    softmax = mtf.softmax(x, DIMS[2], extra_logit=tf.constant(0.0))
    return {
        "power": power,
        "halo": halo,
        "loop": loop[0],
        "grad": grad,
        "scaled": scaled,
        "empty": empty,
        "chosen": chosen,
        "softmax": softmax,
    }


def test_functions_as_people_call_them() -> None:
    found = evaluated(_program)
    assert_close(found["power"], np.abs(np.fft.fftn(X, axes=(1, 2, 3))), terms=(16, 32, 16), dtype=tf.float32)
    whole = X.reshape(2, 4, 4, 2, 4)
    before, behind = np.roll(whole, 1, 2)[:, :, :, 1:], np.roll(whole, -1, 2)[:, :, :, :1]
    np.testing.assert_array_equal(found["halo"], np.concatenate([before, whole, behind], 3))
    assert found["loop"] == 192
    np.testing.assert_array_equal(found["grad"], np.full_like(X, 0.5))
    assert_close(found["scaled"], X * 3 + 1, terms=2)
    np.testing.assert_array_equal(found["empty"], X)
    np.testing.assert_array_equal(found["chosen"], np.where(X > 0, X, -1))
    assert_close(found["softmax"], np.exp(X) / (1 + np.exp(X).sum(2, keepdims=True)), terms=16)


def test_what_layers_ask_of_a_layout() -> None:
    layout, mesh_shape = "hidden:cols;batch:rows", mtf.convert_to_shape("rows:2;cols:4")
    assert mtf.tensor_dim_to_mesh_dim_size(layout, mesh_shape, DIMS[2]) == 4
    assert mtf.tensor_dim_to_size_per_split(layout, mesh_shape, DIMS[2]) == 2
    assert mtf.tensor_dim_to_mesh_dim_size(layout, mesh_shape, DIMS[3]) == 1


def test_a_program_for_tpus_is_planned_without_one() -> None:
    graph = mtf.Graph()
    x = mtf.import_tf_tensor(mtf.Mesh(graph, "mesh"), X, DIMS)
    total = mtf.reduce_sum(x, reduced_dim=DIMS[2])
    mesh_impl = mtf.simd_mesh_impl.SimdMeshImpl("all:8", "hidden:all;other:absent")
    (collective,) = mtf.Lowering(graph, {x.mesh: mesh_impl}).report(fetches=[total]).collectives
    assert (collective.kind, collective.axes) == ("all_reduce", ("all",))
    mtf.simd_mesh_impl.SimdMeshImpl("all:8", "hidden:all", logical_to_physical=list(range(8))[::-1])


@pytest.mark.parametrize("mesh_name", MESHES)
def test_indices_may_have_the_dimension_that_they_point_along(mesh_name: str) -> None:
    """Of the table's size, or of another; it is theirs in the result."""
    table, few, many = initial("table", [8, 4]), np.array([[5, 0, 7]]), np.array([3] * 7 + [9])

    def program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        batch, hidden = mtf.Dimension("batch", 8), mtf.Dimension("hidden", 4)
        rows = mtf.import_tf_tensor(mesh, table, [batch, hidden])
        first = mtf.import_tf_tensor(mesh, few.astype(np.int32), [("one", 1), ("batch", 3)])
        second = mtf.import_tf_tensor(mesh, many.astype(np.int32), [batch])
        return [mtf.gather(rows, first, batch), mtf.gather(rows, second, [batch], [hidden, batch])]

    first, second = evaluated(program, mesh_name)
    np.testing.assert_array_equal(first, table[few])
    np.testing.assert_array_equal(second.T, np.concatenate([table[many[:7]], np.zeros([1, 4])]))


def test_one_hot_of_two_sizes_of_a_name_says_what_to_rename() -> None:
    ids = mtf.zeros(mtf.Mesh(mtf.Graph(), "mesh"), [("length", 16)], tf.int32)
    with pytest.raises(ShapeError, match="rename it in one of the two"):
        mtf.one_hot(ids, mtf.Dimension("length", 8))


def test_small_functions() -> None:
    x = mtf.ones(mtf.Mesh(mtf.Graph(), "mesh"), [])
    assert mtf.scalar_summary("loss", x) is mtf.scalar_summary("loss", x) is x, "a layer calls it in each tf scope"
    assert (mtf.list_product([2, 3]), mtf.list_product([])) == (6, 1)
    assert mtf.transpose_list_of_lists([[1, 2], [3, 4]]) == [[1, 3], [2, 4]]
    assert (mtf.mtf_range, mtf.mtf_slice, mtf.mtf_abs, mtf.mtf_pow) == (mtf.range, mtf.slice, mtf.abs, mtf.pow)


def test_names_that_are_not_here_say_what_to_write() -> None:
    said = {
        "LazyLaidOutTensor": (mtf, "derive from mtf.Operation"),
        "local_2d_self_attention_spatial_blocks": (mtf.layers, "takes any mask"),
        "conv2d_transpose_with_blocks": (mtf.layers, "split image dimensions"),
        "utils": (mtf.transformer, "meshtf-train"),
        "create_host_call": (mtf.utils, "export_to_tf_tensor"),
        "reduce_summ": (mtf, 'did you mean "reduce_sum"'),
        "clone_operations": (mtf.Graph(), "mtf.recompute_grad or mtf.custom_gradient"),
        "no_such_method": (mtf.Graph(), "has no attribute 'no_such_method'$"),
    }
    for name, (module, words) in said.items():
        with pytest.raises(AttributeError, match=words):
            getattr(module, name)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "any", "all"])
def test_reductions_take_their_arguments_by_position_as_the_original_does(name: str) -> None:
    """(x, None, output_shape, reduced_dim)."""
    mtf_fn, np_fn = getattr(mtf, f"reduce_{name}"), getattr(np, name)
    values = X > 0 if name in ("any", "all") else X
    batch, hidden = DIMS[0], DIMS[2]

    def program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        x = mtf.import_tf_tensor(mesh, tf.constant(values), DIMS)
        left = mtf.Shape([batch])
        return [mtf_fn(x, None, left), mtf_fn(x, None, None, hidden, "named"), mtf_fn(x, hidden), mtf_fn(x, None, [])]

    found = evaluated(program)
    for y, axes in zip(found, ((1, 2, 3), 2, 2, None), strict=True):
        np.testing.assert_allclose(y, np_fn(values, axis=axes), rtol=1e-4, atol=1e-5)
    with pytest.raises(ShapeError, match=r"give reduced_dim=\.\. alone"):
        mtf_fn(mtf.ones(mtf.Mesh(mtf.Graph(), "mesh"), DIMS), hidden, None, batch)


def _by_operation(y: mtf.Tensor, x: mtf.Tensor) -> mtf.Tensor:
    """The gradient of y as programs find it that differentiate operation by operation."""
    grads: dict[mtf.Tensor, Any] = {y: mtf.ones_like(y)}
    for operation in reversed(list(y.graph.operations)):
        dys = [grads.get(out) for out in operation.outputs]
        if operation.has_gradient and any(dys):
            for own, dx in zip(operation.inputs, operation.gradient(dys), strict=True):
                if dx is not None:
                    grads[own] = grads[own] + dx if own in grads else dx
    return grads[x]


def test_gradients_of_operations_have_the_shapes_of_their_inputs() -> None:
    """Programs add them up."""
    bias_dim = DIMS[2]

    def program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        with tf.compat.v1.variable_scope(mesh.graph.captured_variable_scope):
            bias = mtf.get_variable(mesh, "bias", [bias_dim])
        x = mtf.import_tf_tensor(mesh, tf.constant(X), DIMS)
        shifted = bias * 2.0
        y = mtf.reduce_sum(mtf.square(x + shifted)) + mtf.reduce_sum(mtf.square(shifted))
        found = _by_operation(y, bias)
        assert found.shape == bias.shape
        return [found, *mtf.gradients([y], [bias])]

    bias = 2.0 * initial("bias", [8])
    expected = 2.0 * (2.0 * (X + bias[:, None]).sum((0, 1, 3)) + 2.0 * bias)
    for name in MESHES:
        for found in evaluated(program, name):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_dropout_of_early_versions_needs_no_word_about_training() -> None:
    def program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        x = mtf.ones(mesh, [mtf.Dimension("batch", 64), mtf.Dimension("hidden", 64)])
        dropped = [mtf.dropout(x, rate=0.75), mtf.dropout(x, keep_prob=0.25), mtf.dropout(x, 0.25, name="p")]
        assert mtf.dropout(x, 1.0) is mtf.dropout(x, rate=0.0) is mtf.dropout(x, False, 0.25) is x
        return dropped

    for found in evaluated(program):
        assert set(found.flat) == {0.0, 4.0}
        np.testing.assert_allclose((found > 0).mean(), 0.25, atol=0.03)


def test_sizes_that_contradict_names_are_told_in_numbers() -> None:
    """Programs that disable the behaviour of TensorFlow 2 have objects for sizes."""
    with graph_mode():
        tf.compat.v1.disable_v2_tensorshape()
        try:
            with pytest.raises(ShapeError, match=r"array of shape \[2, 3\] cannot be \[a:2 b:4\]"):
                mtf.import_tf_tensor(mtf.Mesh(mtf.Graph(), "mesh"), tf.zeros([2, 3]), "a:2 b:4")
        finally:
            tf.compat.v1.enable_v2_tensorshape()
