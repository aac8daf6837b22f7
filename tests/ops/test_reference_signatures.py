"""Mesh TensorFlow's operations: names, parameter names, their order and defaults are kept, so that its users' calls are
right here. Parameters of ours come after those of the original."""

from __future__ import annotations

import inspect
import typing

import pytest
import tensorflow as tf

import meshtf as mtf
import meshtf.compat.mesh_tensorflow as compat

# What stands for TensorFlow's types and the language's own functions in the defaults below.
VALUES = {"tf": tf, "reduce_mean": mtf.reduce_mean}

SIGNATURES = """
convert_to_dimension(d)
convert_to_shape(x)
convert_to_layout_rules(x)
combined_dimension(dims, name=None)
pnum_to_processor_coordinates(mesh_shape, pnum)
processor_coordinates_to_pnum(mesh_shape, coord)
pnum_to_group(mesh_shape, group_dims, pnum)
processor_groups(mesh_shape, group_dims)
slicewise(tf_fn, xs, output_shape=None, output_dtype=None, splittable_dims=None, grad_function=None, name=None)
cwise(tf_fn, xs, output_dtype=None, grad_function=None, name=None)
identity(x, name='identity')
sin(x, name='sin')
cos(x, name='cos')
square(x, name='square')
sqrt(x, name='sqrt')
rsqrt(x, name='rsqrt')
log(x, name='log')
exp(x, name='exp')
sigmoid(x, name='sigmoid')
tanh(x, name='tanh')
pow(x, y)
negative(x, name='negative')
logical_not(x, name='logical_not')
swish(x)
gelu(x)
elu(x)
selu(x)
softplus(x)
squared_relu(x)
reciprocal(x, name='reciprocal')
relu(x, name='relu')
leaky_relu(x, alpha=0.2, name='leaky_relu')
sign(x, name='sign')
abs(x)
cast(x, dtype, name='cast')
to_float(x, name='to_float')
to_bfloat16(x, name='to_bfloat16')
to_int32(x, name='to_int32')
stop_gradient(x)
binary_op_with_broadcasting(tf_fn, x1, x2, output_shape=None, output_dtype=None)
less(x1, x2, output_shape=None)
greater(x1, x2, output_shape=None)
less_equal(x1, x2, output_shape=None)
greater_equal(x1, x2, output_shape=None)
equal(x1, x2, output_shape=None)
not_equal(x1, x2, output_shape=None)
logical_and(x1, x2, output_shape=None)
logical_or(x1, x2, output_shape=None)
floordiv(x1, x2, output_shape=None)
mod(x1, x2, output_shape=None)
add(x1, x2, output_shape=None, name=None)
add_n(xs)
sub(x1, x2, output_shape=None, name=None)
multiply(x1, x2, output_shape=None, name=None)
divide(x1, x2, output_shape=None, name=None)
minimum(x1, x2, output_shape=None, name=None)
maximum(x1, x2, output_shape=None, name=None)
where(condition, if_true, if_false, output_shape=None)
reduce_logsumexp(x, reduced_dim, extra_logit=None, name=None)
log_softmax(x, reduced_dim, extra_logit=None, name=None)
softmax(x, reduced_dim, extra_logit=None, name=None)
cumsum(x, dim, exclusive=False)
top_k(x, reduced_dim, k_dim, name=None)
top_1(x, reduced_dim, name=None)
argmax(x, reduced_dim, name=None)
nth_largest_element(x, n, reduced_dim, name=None)
nth_smallest_element(x, n, reduced_dim, name=None)
sample_with_temperature(logits, dim, temperature=1.0, name=None)
pool_tensor_1d(tensor, pool_dim, reduce_fn=reduce_mean, pool_size=2)
stride_tensor_1d(tensor, pool_dim, pool_size=2)
reduce_first(tensor, reduced_dim)
matmul(a, b, output_shape=None, reduced_dims=None, name=None)
broadcast(x, new_shape)
transpose(x, new_shape, name='transpose')
reshape(x, new_shape, name='reshape')
rename_dimension(x, old_name, new_name)
replace_dimensions(tensor_or_shape, old_dim_or_dims, new_dim_or_dims)
concat(xs, concat_dim_name, name=None)
split(x, split_dim, num_or_size_splits, name=None)
stack(xs, dim_name, axis=0, name=None)
unstack(x, dim, name=None)
slice(x, begin, size, slice_dim_name, name=None)
pad(x, paddings, dim_name, name=None)
shift(x, offset, dim, wrap, name=None)
dynamic_shift(x, offset, dim, wrap)
halo_exchange(x, blocks_dim, block_size_dim, halo_size, wrap=False)
left_halo_exchange(x, blocks_dim, block_size_dim, halo_size, wrap=False)
one_hot(indices, output_dim, on_value=1.0, off_value=0.0, dtype=tf.float32, name=None)
gather(weights, indices, dim, output_shape=None)
range(mesh, dim, dtype, name=None)
constant(mesh, value, shape=None, dtype=tf.float32)
zeros(mesh, shape, dtype=tf.float32)
zeros_like(t)
ones(mesh, shape, dtype=tf.float32)
ones_like(t)
import_tf_tensor(mesh, tf_tensor, shape=None, name=None)
conv2d_backprop_input(input_shape, conv_filter, dy, strides, padding, name=None)
conv2d_backprop_filter(conv_input, filter_shape, dy, strides, padding, name=None)
conv3d_backprop_input(input_shape, conv_filter, dy, strides, padding, name=None)
conv3d_backprop_filter(conv_input, filter_shape, dy, strides, padding, name=None)
conv2d_transpose_backprop_input(input_shape, conv_filter, dy, strides, padding, name=None)
conv2d_transpose_backprop_filter(conv_input, filter_shape, dy, strides, padding, name=None)
conv3d_transpose_backprop_input(input_shape, conv_filter, dy, strides, padding, name=None)
conv3d_transpose_backprop_filter(conv_input, filter_shape, dy, strides, padding, name=None)
pool_backprop(x, y, dy, ksize, strides, pool_fn_string, name=None)
random_uniform(mesh, shape)
random_normal(mesh, shape)
dropout(x, is_training, keep_prob=None, rate=None, noise_shape=None)
while_loop(cond_fn, body_fn, inputs, num_loop_vars=None, has_accumulators=False)
custom_gradient(fn, grad_fn, explicit_inputs)
recompute_grad(fn, explicit_inputs)
gradients(ys, xs, grad_ys=None)
depend(x, dependencies)
serialize_training_step(features, model_fn, batch_dim, num_splits)
VariableDType(master_dtype=tf.float32, slice_dtype=None, activation_dtype=None)
read_variable(var)
assign(var, new_val)
assign_add(var, new_val)
assign_sub(var, new_val)
scalar_summary(name, x)
Print(x, data, message)
"""


def parameters_of(line: str) -> tuple[str, inspect.Signature]:
    name, _, rest = line.partition("(")
    scope: dict[str, object] = dict(VALUES)
    exec(f"def original({rest}: pass", scope)
    return name, inspect.signature(scope["original"])  # type: ignore[arg-type]


@pytest.mark.parametrize("line", SIGNATURES.split("\n")[1:-1])
def test_calls_of_the_original_mean_the_same(line: str) -> None:
    name, original = parameters_of(line)
    ours = list(inspect.signature(getattr(compat if "_backprop" in name else mtf, name)).parameters.values())
    wanted = list(original.parameters.values())
    assert [p.name for p in ours[: len(wanted)]] == [p.name for p in wanted]
    for own, theirs in zip(ours, wanted, strict=False):
        assert own.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD, own
        # Where the original has no default, ours may have one.
        assert theirs.default in (inspect.Parameter.empty, own.default), (own, theirs)
    assert all(p.default is not p.empty or p.kind is p.VAR_KEYWORD for p in ours[len(wanted) :])


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_all", "reduce_any"])
def test_reductions_take_the_original_s_arguments(name: str) -> None:
    """The original refuses a second argument by position. Here it is the reduced dimension, as NumPy's axis is."""
    ours = inspect.signature(getattr(mtf, name)).parameters
    assert list(ours) == ["x", "reduced_dim", "output_shape", "name"]
    assert all(p.default is None for p in list(ours.values())[1:])


def test_einsum_takes_the_original_s_arguments() -> None:
    """It also takes a pattern and the tensors one by one, so its parameters stand in an overload."""
    by_list, _ = typing.get_overloads(mtf.einsum.__wrapped__)  # type: ignore[attr-defined]
    assert list(inspect.signature(by_list).parameters) == ["xs", "output_shape", "reduced_dims", "name"]
    with mtf.Graph() as graph:
        x = mtf.ones(mtf.Mesh(graph, "mesh"), "batch:4 hidden:8")
    product = mtf.einsum([x, x], None, [mtf.Dimension("hidden", 8)], "own")
    assert (product.name, product.shape) == ("own", mtf.Shape("batch:4"))
    assert mtf.einsum([x, x], "hidden").shape == mtf.einsum([x, x], output_shape="hidden:8").shape
