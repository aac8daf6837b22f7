"""Every public parameter that takes a shape or a dimension takes it as objects, names, texts and pairs alike.

Each row calls one function in all these forms, and each form builds the same graph. A new parameter of such a type
without a row fails here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layout_search.candidate_meshes import candidate_meshes
from tests.docs.public_names import language, signature

pytestmark = pytest.mark.quick

BATCH, HIDDEN, VOCAB, NEW = (mtf.Dimension(*pair) for pair in (("batch", 4), ("hidden", 8), ("vocab", 8), ("new", 2)))

OBJECTS_ONLY = {
    "VectorizedLayers": "a protocol of layers that run side by side, given by vectorized_layers",
    "MeshLayout": "a result of auto_layout",
    "Operation": "made by operations, from shapes that they have checked",
    "PipelineSteps": "made by layers.pipeline, from dimensions that it has checked",
    "Tensor": "made by operations, from shapes that they have checked",
    "vectorized_layers": "a base of layers.pipeline",
    "layers.BeamSlots": "made by decoding, from the dimension of its beams",
    "layers.DenseInitializer": "called by layers, with shapes that they have checked",
    "layers.LatentConfig": "its norm is called by attention, with dimensions that it has",
    "layers.QueryKeyNorm": "its norm is called by attention, with dimensions that it has",
    "layers.low_rank_product": "called by layers, with shapes that they have checked",
}
"""What takes objects alone, and why."""

Row = tuple[Callable[[Any, Any], Any], tuple[Any, ...]]

ONE = (HIDDEN, "hidden", "hidden:8", ("hidden", 8))
"""A dimension of x."""
SOME = ([HIDDEN, BATCH], "hidden batch", ["hidden", "batch"], "hidden:8 batch", [("hidden", 8), "batch"])
"""Both dimensions of x."""
WIDE = ([BATCH, HIDDEN, NEW], "batch hidden new:2", ["batch", HIDDEN, ("new", 2)], "batch:4 hidden:8 new:2")
"""A shape with a dimension that x lacks."""
WHOLE = (mtf.Shape([NEW]), [NEW], "new:2", ["new:2"], NEW, ("new", 2))
"""A shape where no operand has a dimension."""
FRESH = (NEW, "new:2", ("new", 2))
"""A new dimension."""


def _rows() -> Iterator[tuple[str, Row]]:
    """The rows by function and parameter."""
    comparisons = "less less_equal greater greater_equal equal not_equal"
    for name in (
        f"add sub multiply divide floordiv mod maximum minimum pow atan2 hypot is_close logaddexp {comparisons}".split()
    ):
        yield f"{name}.output_shape", (lambda t, d, name=name: getattr(mtf, name)(t.x, t.x, output_shape=d), WIDE)
        yield f"{name}.output_shape", (lambda t, d, name=name: getattr(mtf, name)(t.x, 2.0, output_shape=d), WIDE)
    for name in (
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "left_shift",
        "right_shift",
    ):
        yield (
            f"{name}.output_shape",
            (lambda t, d, n=name: getattr(mtf, n)(*[t.b if n[:7] == "logical" else t.n] * 2, output_shape=d), WIDE),
        )
    for name in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_any", "reduce_all",
                 "norm", "reduce_variance", "reduce_std", "count_nonzero"):  # fmt: skip
        reduced = lambda t, name=name, **d: getattr(mtf, name)(t.b if name[-3:] in ("any", "all") else t.x, **d)  # noqa: E731
        yield f"{name}.reduced_dim", (lambda t, d, reduced=reduced: reduced(t, reduced_dim=d), ONE)
        yield f"{name}.reduced_dim", (lambda t, d, reduced=reduced: reduced(t, reduced_dim=d), SOME)
        yield f"{name}.output_shape", (lambda t, d, reduced=reduced: reduced(t, output_shape=d), ONE)
    for name in ("argmax", "argmin", "median", "top_1", "softmax", "log_softmax", "reduce_logsumexp", "reduce_first"):
        yield f"{name}.reduced_dim", (lambda t, d, name=name: getattr(mtf, name)(t.x, d), ONE)
    for name in ("argsort", "sort", "cumsum", "cummax", "reverse", "unstack", "sample_with_temperature", "cumprod",
                 "cumlogsumexp", "diff"):  # fmt: skip
        yield f"{name}.dim", (lambda t, d, name=name: getattr(mtf, name)(t.x, d), ONE)
    for name in ("fft", "ifft"):
        yield f"{name}.dims", (lambda t, d, name=name: getattr(mtf, name)(t.z, d), SOME)
        yield f"{name}.dims", (lambda t, d, name=name: getattr(mtf, name)(t.z, d), ONE)
    for name in ("zeros", "ones", "random_normal", "random_truncated_normal", "random_uniform"):
        yield f"{name}.shape", (lambda t, d, name=name: getattr(mtf, name)(t.mesh, d), WHOLE)
    for name in ("repeat", "tile"):
        yield f"{name}.dim", (lambda t, d, name=name: getattr(mtf, name)(t.x, 2, d), ONE)
    for name in ("tril", "triu"):
        yield f"{name}.row_dim", (lambda t, d, name=name: getattr(mtf, name)(t.square, d, "vocab"), ONE)
        yield f"{name}.column_dim", (lambda t, d, name=name: getattr(mtf, name)(t.square, "vocab", d), ONE)
    for name in ("nth_largest_element", "nth_smallest_element"):
        yield f"{name}.reduced_dim", (lambda t, d, name=name: getattr(mtf, name)(t.x, 1, d), ONE)
    for name in ("pool_tensor_1d", "stride_tensor_1d"):
        yield f"{name}.pool_dim", (lambda t, d, name=name: getattr(mtf, name)(t.x, d), ONE)
    for name in ("halo_exchange", "left_halo_exchange"):
        yield f"{name}.blocks_dim", (lambda t, d, name=name: getattr(mtf, name)(t.x, d, "batch", 1), ONE)
        yield f"{name}.block_size_dim", (lambda t, d, name=name: getattr(mtf, name)(t.x, "batch", d, 1), ONE)
    for name, more in (("cholesky", {}), ("qr", {"inner_dim": "inner"})):
        yield f"{name}.rows_dim", (lambda t, d, n=name, m=more: getattr(mtf, n)(t.square, d, "vocab", **m), ONE)
        yield f"{name}.columns_dim", (lambda t, d, n=name, m=more: getattr(mtf, n)(t.square, "vocab", d, **m), ONE)
    for name in ("PlanMeshImpl", "SpmdMeshImpl", "GpuMeshImpl", "TpuMeshImpl"):
        yield f"{name}.shape", (lambda t, d, name=name: getattr(mtf, name)(d, "").shape, WHOLE)
    for name, arguments in (
        ("pnum_to_processor_coordinates", [1]),
        ("processor_coordinates_to_pnum", [[1]]),
        ("pnum_to_group", [["new"], 1]),
        ("processor_groups", [["new"]]),
    ):
        yield f"{name}.mesh_shape", (lambda t, d, n=name, a=arguments: getattr(mtf, n)(d, *a), WHOLE)


def _scanned(carried: Any, parts: Any) -> Any:
    return carried, parts


def _like_variable(t: Any, d: Any) -> Any:
    mtf.get_variable(t.mesh, "w", "batch:4 hidden:8")
    return mtf.like_variable(t.mesh.graph.variables["w"], "own", d)


def _micro_batches(t: Any, d: Any) -> Any:
    w = mtf.get_variable(t.mesh, "w", "hidden:8")
    return mtf.serialize_training_step({"x": t.x}, lambda f: {"loss": mtf.reduce_sum(f["x"] * w)}, d, 2)


# ruff: noqa: E501  # a row a line
def _layers() -> Iterator[tuple[str, Row]]:
    """The rows of layers."""
    layers = mtf.layers
    for name in ("conv1d", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose", "separable_conv1d"):
        shape = "batch:2 " + " ".join(f"d{i}:4" for i in range(2 if name[-1] == "e" else int(name[-2]))) + " in:3"
        sizes = {"min_relative_pos": -1, "max_relative_pos": 1} if name[0] == "s" else {}
        yield f"layers.{name}.output_dim", (
            lambda t, d, n=name, s=shape, z=sizes: getattr(layers, n)(mtf.zeros(t.mesh, s), d, **z), FRESH)  # fmt: skip
    for name in ("layer_norm", "rms_norm"):
        yield (
            f"layers.{name}.dim",
            (lambda t, d, name=name: getattr(layers, name)(t.x, d), (*ONE, [HIDDEN], ["hidden"])),
        )
        yield f"layers.{name}.dim", (lambda t, d, name=name: getattr(layers, name)(t.x, d), SOME)
    for name in ("group_norm", "instance_norm"):
        groups = {"groups": 2} if name[0] == "g" else {}
        yield f"layers.{name}.spatial_dims", (
            lambda t, d, n=name, g=groups: getattr(layers, n)(t.rows, spatial_dims=d, **g), ONE)  # fmt: skip
        yield f"layers.{name}.channel_dim", (
            lambda t, d, n=name, g=groups: getattr(layers, n)(t.rows, channel_dim=d, **g), ONE)  # fmt: skip
    for name in ("gru", "lstm", "bidirectional"):
        first = [layers.gru] if name == "bidirectional" else []
        yield f"layers.{name}.hidden_dim", (lambda t, d, n=name, f=first: getattr(layers, n)(*f, t.rows, d), FRESH)
        yield f"layers.{name}.length_dim", (
            lambda t, d, n=name, f=first: getattr(layers, n)(*f, t.rows, "new:2", d), ONE)  # fmt: skip
    for name in ("embedding", "embedding_weights"):
        given = (lambda t: t.ids) if name == "embedding" else (lambda t: t.mesh)
        yield f"layers.{name}.vocab_dim", (lambda t, d, n=name, g=given: getattr(layers, n)(g(t), d, "out:3"), FRESH)
        yield f"layers.{name}.output_dim", (lambda t, d, n=name, g=given: getattr(layers, n)(g(t), "ids:3", d), FRESH)
    for name in ("pipeline", "pipeline_with_sums"):
        result = (lambda c, _: c) if name == "pipeline" else (lambda c, _: (c, []))
        yield f"layers.{name}.layers", (
            lambda t, d, n=name, r=result: getattr(layers, n)(r, t.x, d, layers.PipelineSchedule(2, 2)), FRESH)  # fmt: skip
    yield "layers.weight_norm.new_dims", (lambda t, d: layers.weight_norm(t.x, d), ONE)
    yield "layers.spectral_norm.new_dims", (lambda t, d: layers.spectral_norm(t.x, d, is_training=True), ONE)


ROWS: list[tuple[str, Row]] = [
    *_rows(),
    *_layers(),
    ("layers.dense.new_dims", (lambda t, d: mtf.layers.dense(t.x, d), (*FRESH, [NEW], ["new:2"]))),
    ("layers.dense.new_dims", (lambda t, d: mtf.layers.dense(t.x, d), ONE)),
    ("layers.dense.reduced_dims", (lambda t, d: mtf.layers.dense(t.x, "new:2", d), SOME)),
    ("layers.dense.unpadded_dims", (lambda t, d: mtf.layers.dense(t.x, "new:3", unpadded_dims=d), (*FRESH, [NEW], ["new:2"]))),
    ("layers.dense.expert_dims", (lambda t, d: mtf.layers.dense(t.x, "new:2", "batch", expert_dims=d), ONE)),
    ("layers.dense_product.new_dims", (lambda t, d: mtf.layers.dense_product(t.x, "hidden", d), FRESH)),
    ("layers.dense_product.reduced_dims", (lambda t, d: mtf.layers.dense_product(t.x, d, "new:2", ("gelu", "linear")), SOME)),
    ("layers.dense_product.unpadded_dims", (lambda t, d: mtf.layers.dense_product(t.x, "hidden", "new:3", unpadded_dims=d), (*FRESH, [NEW], ["new:2"]))),
    ("layers.dense_product.expert_dims", (lambda t, d: mtf.layers.dense_product(t.x, "batch", "new:2", expert_dims=d), ONE)),
    ("layers.feed_forward.d_ff", (lambda t, d: mtf.layers.feed_forward(t.x, d, is_training=False), FRESH)),
    ("layers.dense_relu_dense.hidden_channels", (lambda t, d: mtf.layers.dense_relu_dense(t.x, d, False), FRESH)),
    ("layers.dense_relu_dense.dropout_broadcast_dims", (lambda t, d: mtf.layers.dense_relu_dense(t.x, "new:2", True, 0.5, d), (BATCH, "batch", ["batch"], [("batch", 4)]))),
    ("layers.batch_norm.channel_dims", (lambda t, d: mtf.layers.batch_norm(t.x, True, 0.9, channel_dims=d), SOME)),
    ("layers.normalized_batch.kept_dims", (lambda t, d: mtf.layers.normalized_batch(t.x, mtf.ones(t.mesh, ["hidden:8"]), mtf.zeros(t.mesh, ["hidden:8"]), 1e-5, d), ONE)),
    ("layers.softmax_cross_entropy_with_logits.vocab_dim", (lambda t, d: mtf.layers.softmax_cross_entropy_with_logits(t.x, t.x, d), ONE)),
    ("layers.mask_padded_logits.vocab_dim", (lambda t, d: mtf.layers.mask_padded_logits(t.x, d, 5), ONE)),
    ("layers.kl_divergence.dim", (lambda t, d: mtf.layers.kl_divergence(t.x, t.x, d), ONE)),
    ("layers.cosine_similarity.dim", (lambda t, d: mtf.layers.cosine_similarity(t.x, t.x, d), ONE)),
    ("layers.contrastive_loss.batch_dim", (lambda t, d: mtf.layers.contrastive_loss(t.x, t.x, d, "batch"), ONE)),
    ("layers.contrastive_loss.dim", (lambda t, d: mtf.layers.contrastive_loss(t.x, t.x, "batch", d), ONE)),
    ("layers.ctc_loss.length_dim", (lambda t, d: mtf.layers.ctc_loss(t.rows, t.labels, d, "label", "vocab"), ONE)),
    ("layers.ctc_loss.label_dim", (lambda t, d: mtf.layers.ctc_loss(t.rows, t.labels, "hidden", d, "vocab"), (mtf.Dimension("label", 2), "label", ("label", 2)))),
    ("layers.ctc_loss.vocab_dim", (lambda t, d: mtf.layers.ctc_loss(t.rows, t.labels, "vocab", "label", d), ONE)),
    ("layers.learned_positions.d_model", (lambda t, d: mtf.layers.learned_positions(t.ids, 8, d), FRESH)),
    ("layers.sinusoidal_positions.d_model", (lambda t, d: mtf.layers.sinusoidal_positions(t.ids, d), FRESH)),
    ("layers.project_output.d_model", (lambda t, d: mtf.layers.project_output(mtf.zeros(t.mesh, "batch:4 heads:2 d_kv:4"), d, mtf.layers.AttentionConfig(2, 4)), FRESH)),
    ("einsum.output_shape", (lambda t, d: mtf.einsum([t.x, t.y], d), ([VOCAB, BATCH], "vocab batch", ["vocab", "batch:4"]))),
    ("einsum.output_shape", (lambda t, d: mtf.einsum([t.x, t.x], output_shape=d), WIDE)),
    ("einsum.reduced_dims", (lambda t, d: mtf.einsum([t.x, t.x], reduced_dims=d), ONE)),
    ("einsum.reduced_dims", (lambda t, d: mtf.einsum([t.x, t.x], reduced_dims=d), SOME)),
    ("matmul.output_shape", (lambda t, d: mtf.matmul(t.x, t.x, output_shape=d), ONE)),
    ("matmul.reduced_dims", (lambda t, d: mtf.matmul(t.x, t.x, reduced_dims=d), SOME)),
    ("where.output_shape", (lambda t, d: mtf.where(t.b, t.x, 0.0, output_shape=d), WIDE)),
    ("complex.output_shape", (lambda t, d: mtf.complex(t.x, t.x, output_shape=d), WIDE)),
    ("binary_op_with_broadcasting.output_shape", (lambda t, d: mtf.binary_op_with_broadcasting(tf.add, t.x, t.x, d), WIDE)),
    ("transpose.new_shape", (lambda t, d: mtf.transpose(t.x, d), SOME)),
    ("broadcast.new_shape", (lambda t, d: mtf.broadcast(t.x, d), WIDE)),
    ("reshape.new_shape", (lambda t, d: mtf.reshape(t.x, d), ([BATCH, ("a", 2), ("b", 4)], "batch a:2 b:4", ["batch", "a:2", ("b", 4)]))),
    ("replace_dimensions.old_dim_or_dims", (lambda t, d: mtf.replace_dimensions(t.x, d, "a:2 b:4"), ONE)),
    ("replace_dimensions.new_dim_or_dims", (lambda t, d: mtf.replace_dimensions(t.x, SOME[1].split()[::-1], d), (mtf.Dimension("new", 32), "new:32", ("new", 32), ["new:32"]))),
    ("replace_dimensions.tensor_or_shape", (lambda t, d: mtf.replace_dimensions(d, "hidden", "new:8"), (mtf.Shape([BATCH, HIDDEN]),))),
    ("rename_dimension.old_name", (lambda t, d: mtf.rename_dimension(t.x, d, "new"), ONE)),
    ("rename_dimension.new_name", (lambda t, d: mtf.rename_dimension(t.x, "batch", d), (mtf.Dimension("new", 4), "new", ("new", 4)))),
    ("concat.concat_dim_name", (lambda t, d: mtf.concat([t.x, t.x], d), ONE)),
    ("stack.dim_name", (lambda t, d: mtf.stack([t.x, t.x], d), (*FRESH, "new"))),
    ("split.split_dim", (lambda t, d: mtf.split(t.x, d, 2), ONE)),
    ("slice.slice_dim_name", (lambda t, d: mtf.slice(t.x, 0, 2, d), ONE)),
    ("pad.dim_name", (lambda t, d: mtf.pad(t.x, [1, 1], d), ONE)),
    ("shift.dim", (lambda t, d: mtf.shift(t.x, 1, d, wrap=False), ONE)),
    ("roll.dim", (lambda t, d: mtf.roll(t.x, 1, d), ONE)),
    ("dynamic_shift.dim", (lambda t, d: mtf.dynamic_shift(t.x, t.i, d, wrap=False), ONE)),
    ("dynamic_slice.slice_dim_name", (lambda t, d: mtf.dynamic_slice(t.x, t.i, 2, d), ONE)),
    ("dynamic_update_slice.dim", (lambda t, d: mtf.dynamic_update_slice(t.x, t.x, t.i, d), ONE)),
    ("top_k.reduced_dim", (lambda t, d: mtf.top_k(t.x, d, "new:2"), ONE)),
    ("top_k.k_dim", (lambda t, d: mtf.top_k(t.x, "hidden", d), FRESH)),
    ("rfft.dims", (lambda t, d: mtf.rfft(t.x, d), SOME)),
    ("irfft.dims", (lambda t, d: mtf.irfft(t.z, d), SOME)),
    ("qr.inner_dim", (lambda t, d: mtf.qr(t.square, "vocab", "hidden", d), (mtf.Dimension("inner", 8), "inner", "inner:8"))),
    ("convolution.output_shape", (lambda t, d: mtf.convolution(t.x, mtf.zeros(t.mesh, "taps:3 new:2"), {"hidden": "taps"}, d), WIDE)),
    ("gather.dim", (lambda t, d: mtf.gather(t.x, t.ids, d), ONE)),
    ("embedding_lookup.dim", (lambda t, d: mtf.embedding_lookup(mtf.ones(t.mesh, "hidden:8 d:2"), t.ids, d), ONE)),
    ("layers.EmbeddingTables.embedding", (lambda t, d: mtf.layers.EmbeddingTables((4, 3), d).lookup(mtf.zeros(t.mesh, "batch:4 tables:2", tf.int32), "tables"), FRESH)),
    ("gather.output_shape", (lambda t, d: mtf.gather(t.x, t.ids, "hidden", d), ([mtf.Dimension("n", 3), BATCH], "n batch"))),
    ("scatter_add.dim", (lambda t, d: mtf.scatter_add(t.x, t.ids, mtf.zeros(t.mesh, "batch:4 n:3"), d), ONE)),
    ("scatter_update.dim", (lambda t, d: mtf.scatter_update(t.x, t.ids, mtf.zeros(t.mesh, "batch:4 n:3"), d), ONE)),
    ("one_hot.output_dim", (lambda t, d: mtf.one_hot(t.ids, d), FRESH)),
    ("check_indices.dim", (lambda t, d: mtf.check_indices(t.ids, d), (*FRESH, 2))),
    ("grouped_matmul.rows", (lambda t, d: mtf.grouped_matmul(t.x, mtf.zeros(t.mesh, "groups:2 batch:4 out:3"), t.sizes, d, "groups"), ONE)),
    ("grouped_matmul.groups", (lambda t, d: mtf.grouped_matmul(t.x, mtf.zeros(t.mesh, "groups:2 batch:4 out:3"), t.sizes, "hidden", d), (mtf.Dimension("groups", 2), "groups"))),
    ("grouped_matmul.output_shape", (lambda t, d: mtf.grouped_matmul(t.x, mtf.zeros(t.mesh, "groups:2 batch:4 out:3"), t.sizes, "hidden", "groups", d), ([("out", 3), HIDDEN], "out hidden"))),
    ("range.dim", (lambda t, d: mtf.range(t.mesh, d), FRESH)),
    ("fill.shape", (lambda t, d: mtf.fill(t.mesh, 1.0, d), WHOLE)),
    ("constant.shape", (lambda t, d: mtf.constant(t.mesh, 1.0, d), WHOLE)),
    ("placeholder.shape", (lambda t, d: mtf.placeholder(t.mesh, d), WHOLE)),
    ("import_tf_tensor.shape", (lambda t, d: mtf.import_tf_tensor(t.mesh, [1, 2], d), WHOLE)),
    ("dropout.noise_shape", (lambda t, d: mtf.dropout(t.x, True, rate=0.5, noise_shape=d), ONE)),
    ("DropoutInBlocks.shape", (lambda t, d: mtf.DropoutInBlocks(t.mesh, d, "new", 2, 0.5, "d").block(t.i), WHOLE)),
    ("DropoutInBoxes.shape", (lambda t, d: sorted(mtf.DropoutInBoxes(t.mesh, d, {"new": "in:1"}, rate=0.5, name="d").inside), WHOLE)),
    ("DropoutInBoxes.inside", (lambda t, d: mtf.DropoutInBoxes(t.mesh, "new:4", {"new": d}, rate=0.5, name="d").inside, FRESH)),
    ("get_variable.shape", (lambda t, d: mtf.get_variable(t.mesh, "w", d), WHOLE)),
    ("get_variable.unpadded_shape", (lambda t, d: mtf.get_variable(t.mesh, "w", "new:2 batch:4", unpadded_shape=d), ([NEW, BATCH], "new batch", "new:2 batch:4"))),
    ("get_variable.matrix", (lambda t, d: mtf.get_variable(t.mesh, "w", "hidden:8 batch:4", matrix=(d, "batch")), ONE)),
    ("like_variable.shape", (_like_variable, ONE)),
    ("slicewise.output_shape", (lambda t, d: mtf.slicewise(tf.identity, t.x, d, splittable_dims=[]), ([BATCH, HIDDEN], "batch hidden", "batch:4 hidden"))),
    ("slicewise.splittable_dims", (lambda t, d: mtf.slicewise(tf.identity, t.x, splittable_dims=d), (*ONE, [HIDDEN], ["hidden"]))),
    ("scan.dim", (lambda t, d: mtf.scan(_scanned, [], t.x, d), ONE)),
    ("associative_scan.dim", (lambda t, d: mtf.associative_scan(mtf.add, t.x, d), ONE)),
    ("layer_stack.dim", (lambda t, d: mtf.layer_stack(_scanned, t.i, d), FRESH)),
    ("layer_stack.dim", (lambda t, d: mtf.layer_stack(_scanned, t.i, d, t.x), ONE)),
    ("serialize_training_step.batch_dim", (_micro_batches, (BATCH, "batch", "batch:4", ("batch", 4)))),
    ("vmap.dim", (lambda t, d: mtf.vmap(lambda y: y * 2.0, d)(t.x), ONE)),
    ("combined_dimension.dims", (lambda t, d: mtf.combined_dimension(d), WHOLE)),
    ("Shape.dims", (lambda t, d: mtf.Shape(d), WHOLE)),
    ("TensorSpec.shape", (lambda t, d: mtf.TensorSpec(d), WHOLE)),
    ("convert_to_dimension.d", (lambda t, d: mtf.convert_to_dimension(d), FRESH)),
    ("convert_to_dimension.sizes_from", (lambda t, d: mtf.convert_to_dimension("new", d), (mtf.Shape([NEW]), [mtf.Shape([NEW])]))),
    ("convert_to_shape.x", (lambda t, d: mtf.convert_to_shape(d), WHOLE)),
    ("convert_to_shape.sizes_from", (lambda t, d: mtf.convert_to_shape("new", d), (mtf.Shape([NEW]), [mtf.Shape([NEW])]))),
    ("visualize_layout.tensor_or_shape", (lambda t, d: mtf.visualize_layout(d, "rows:2", "", show=False).title, WHOLE)),
    ("visualize_layout.mesh", (lambda t, d: mtf.visualize_layout("a:2", d, "", show=False).title, WHOLE)),
    ("auto_layout.mesh_shape", (lambda t, d: candidate_meshes(d), WHOLE)),
    ("eye.row_dim", (lambda t, d: mtf.eye(t.mesh, d, "columns:2"), FRESH)),
    ("eye.column_dim", (lambda t, d: mtf.eye(t.mesh, "rows:2", d), FRESH)),
    ("linspace.dim", (lambda t, d: mtf.linspace(t.mesh, 0.0, 1.0, d), FRESH)),
    ("quantile.reduced_dim", (lambda t, d: mtf.quantile(t.x, 0.5, d), ONE)),
    ("quantization.quantize.reduced_dims", (lambda t, d: mtf.quantization.quantize(t.x, d), ONE)),
    ("quantization.quantize.reduced_dims", (lambda t, d: mtf.quantization.quantize(t.x, d), SOME)),
    ("quantization.kernel_product.output_shape", (lambda t, d: mtf.quantization.kernel_product(t.x, t.y, d), ([VOCAB, BATCH], "vocab batch", ["vocab", "batch:4"]))),
    ("quantization.quantized_einsum.output_shape", (lambda t, d: mtf.quantization.quantized_einsum(*[mtf.quantization.quantize(t.x, "hidden")] * 2, d), (BATCH, "batch", "batch:4", ("batch", 4)))),
    ("triangular_solve.rows_dim", (lambda t, d: mtf.triangular_solve(t.square, mtf.zeros(t.mesh, "hidden:8"), d, "vocab"), ONE)),
    ("triangular_solve.columns_dim", (lambda t, d: mtf.triangular_solve(t.square, mtf.zeros(t.mesh, "vocab:8"), "vocab", d), ONE)),
]  # fmt: skip


def _parameters() -> set[str]:
    """The public parameters that take a shape or a dimension, by their annotations."""
    kinds = ("ShapeLike", "DimensionLike", "Dimension", "Shape", "Dims")
    return {
        f"{name.removeprefix('mtf.')}.{parameter.name}"
        for name, thing in language().items()
        if name.removeprefix("mtf.") not in OBJECTS_ONLY
        for parameter in signature(thing).parameters.values()
        if any(kind in str(parameter.annotation) for kind in kinds)
    }


class _Given:
    """A mesh, and tensors on it that are made when they are first read."""

    _TENSORS: Mapping[str, tuple[str, tf.DType]] = {
        "x": ("batch:4 hidden:8", tf.float32),
        "y": ("hidden:8 vocab:8", tf.float32),
        "square": ("hidden:8 vocab:8", tf.float32),
        "b": ("batch:4 hidden:8", tf.bool),
        "z": ("batch:4 hidden:8", tf.complex64),
        "rows": ("batch:4 hidden:8 vocab:8", tf.float32),
        "labels": ("batch:4 label:2", tf.int32),
        "n": ("batch:4 hidden:8", tf.int32),
        "i": ("", tf.int32),
        "ids": ("n:3", tf.int32),
        "sizes": ("groups:2", tf.int32),
    }

    def __init__(self, mesh: mtf.Mesh) -> None:
        self.mesh = mesh

    def __getattr__(self, name: str) -> mtf.Tensor:
        tensor = mtf.zeros(self.mesh, *self._TENSORS[name])
        setattr(self, name, tensor)
        return tensor


def _built(call: Callable[[Any, Any], Any], form: Any) -> tuple[Any, list[str]]:
    """The text of a call's result and of the graph that it builds."""
    with mtf.Graph() as graph:
        result = call(_Given(mtf.Mesh(graph)), form)
    return repr(result), [f"{type(op).__name__} {op.inputs} {op.outputs}" for op in graph.operations]


@pytest.mark.parametrize(("name", "row"), ROWS, ids=[name for name, _ in ROWS])
def test_every_form_builds_the_same(name: str, row: Row) -> None:
    call, (first, *others) = row
    wanted = _built(call, first)
    for form in others:
        assert _built(call, form) == wanted, f"{name} given as {form!r}"


def test_every_parameter_has_a_row() -> None:
    assert _parameters() - {name for name, _ in ROWS} == set()
    assert {name for name, _ in ROWS} - _parameters() == set()
