"""Gradients summed over cores in the dtype that was asked for: which collectives, how many bytes, which digits."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import UsageError
from meshtf.lowering.core_slices import joined
from meshtf.lowering.interpreter import Interpreter
from meshtf.lowering.passes.pass_options import DEFAULT_PASS_OPTIONS, PassOptions
from meshtf.optimize.parameter import Parameter
from meshtf.planning.plan import Compute, Plan, walk
from meshtf.testing import FUNCTION_TERMS, assert_close

BATCH, D_MODEL, D_FF, LAYERS = (
    mtf.Dimension(name, size) for name, size in (("batch", 8), ("d_model", 8), ("d_ff", 16), ("layers", 3))
)
INPUTS = {"x": mtf.TensorSpec([BATCH, D_MODEL]), "y_grad": mtf.TensorSpec([BATCH, D_FF])}
Sum = tuple[str, str, int]
"""Kind, dtype, bytes sent."""


def bfloat16(x: np.ndarray) -> np.ndarray:
    return x.astype(tf.bfloat16.as_numpy_dtype)


def feeds() -> dict[str, np.ndarray]:
    """Numbers that bfloat16 has, whose products it has as well; float32 has the sums of all eight examples."""
    generator = np.random.default_rng(0)
    x = bfloat16(generator.uniform(1, 2, [8, 8])).astype(np.float32)
    return {"x": x, "y_grad": generator.choice([0.5, 1.0, 2.0], [8, 16]).astype(np.float32)}


def exact() -> np.ndarray:
    """The gradient of a kernel, summed in float64: [d_model, d_ff]."""
    given = feeds()
    return given["x"].astype(np.float64).T @ given["y_grad"]


def product(x: mtf.Tensor, name: str = "w") -> mtf.Tensor:
    w = mtf.get_variable(x.mesh, name, [D_MODEL, D_FF], initializer=mtf.zeros)
    return mtf.einsum([mtf.cast(x, w.dtype), w], [BATCH, D_FF])


def minimize(y: mtf.Tensor, y_grad: mtf.Tensor, optimizer: mtf.optimize.Optimizer | None = None) -> mtf.Tensor:
    """Of a loss whose gradient for `y` is `y_grad`: weights that were zero are then their negative gradients."""
    loss = mtf.reduce_sum(mtf.cast(y * mtf.cast(y_grad, y.dtype), tf.float32))
    (optimizer or mtf.optimize.SgdOptimizer(1.0)).minimize(loss)
    return loss


def dense(x: mtf.Tensor, y_grad: mtf.Tensor) -> mtf.Tensor:
    y = product(x)
    return minimize(y + mtf.get_variable(x.mesh, "bias", [D_FF], initializer=mtf.zeros), y_grad)


def stack(x: mtf.Tensor, y_grad: mtf.Tensor) -> mtf.Tensor:
    """Layers that add the product of the same `x` and their own weights."""
    dtype = mtf.get_variable(x.mesh, "start", [D_FF], initializer=mtf.zeros).dtype
    start = mtf.zeros(x.mesh, [BATCH, D_FF], dtype)
    (y,), _ = mtf.layer_stack(lambda carried, _: ([carried[0] + product(x)], []), start, LAYERS)
    return minimize(y + mtf.get_variable(x.mesh, "start", [D_FF]), y_grad)


def uneven(x: mtf.Tensor, y_grad: mtf.Tensor) -> mtf.Tensor:
    """A kernel [5, 15], of the first elements of `x` and `y_grad`."""
    five, fifteen = mtf.Dimension("d_model", 5), mtf.Dimension("d_ff", 15)
    w = mtf.get_variable(x.mesh, "w", [five, fifteen], initializer=mtf.zeros)
    first, grad = mtf.slice(mtf.cast(x, w.dtype), 0, 5, "d_model"), mtf.slice(y_grad, 0, 15, "d_ff")
    return minimize(mtf.einsum([first, w], [BATCH, fifteen]), grad)


def shared(x: mtf.Tensor, y_grad: mtf.Tensor) -> mtf.Tensor:
    """A loop in which each iteration uses the same weights: their gradients are accumulated."""
    w = mtf.get_variable(x.mesh, "w", [D_MODEL, D_FF], initializer=mtf.zeros)

    def body(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        return [carried[0] + mtf.einsum([mtf.cast(x, w.dtype), w], [BATCH, D_FF])], []

    (y,), _ = mtf.scan(body, mtf.zeros(x.mesh, [BATCH, D_FF], w.dtype), [], LAYERS)
    return minimize(y, y_grad)


def program(
    fn: Callable[..., mtf.Tensor],
    activations: tf.DType,
    mesh_shape: str = "all:8",
    layout: str = "batch:all",
    implementation: Callable[..., Any] = mtf.PlanMeshImpl,
    pass_options: PassOptions = DEFAULT_PASS_OPTIONS,
    **options: Any,
) -> mtf.Function:
    dtype = mtf.VariableDType(tf.float32, activation_dtype=activations)
    mesh_impl = implementation(mesh_shape, layout, **options)
    return mtf.function(fn, mesh_impl, inputs=INPUTS, variable_dtype=dtype, pass_options=pass_options)


def sums(step: mtf.Function) -> collections.Counter[Sum]:
    """Those of tensors that are no scalars."""
    found: collections.Counter[Sum] = collections.Counter()
    for c in step.report().collectives:
        if c.kind in ("all_reduce", "reduce_scatter") and c.shape:
            found[c.kind, c.dtype, c.bytes_sent // c.times] += c.times
    return found


def plan_of(step: mtf.Function) -> Plan:
    return step.lowering.plan_for(())


def interpreted(step: mtf.Function) -> dict[str, np.ndarray]:
    """The variables, which were zeros, after a step."""
    plan = plan_of(step)
    zeros = {i.name: [np.zeros(i.output.slice_shape, np.float32)] * plan.mesh_shape.size for i in plan.reads}
    interpreter = Interpreter(plan, zeros)
    interpreter.run({f.name: feeds()[f.name] for f in plan.feeds})
    values = {i.name: i.input for i in plan.assignments}
    return {
        name: joined(slices, values[name].layout, plan)[tuple(map(slice, values[name].shape.to_integer_list))]
        for name, slices in interpreter.variables.items()
    }


def casts(plan: Plan) -> int:
    return sum(isinstance(i, Compute) and i.kind == "cast" for i, _ in walk(plan.instructions))


UPDATES_ARE_DIVIDED = PassOptions(smallest_divided_update=2)


@pytest.mark.parametrize("activations", [tf.float32, tf.bfloat16])
@pytest.mark.parametrize("sums_in", [None, tf.float32, tf.bfloat16])
def test_each_gradient_is_sent_in_the_chosen_dtype(activations: tf.DType, sums_in: tf.DType | None) -> None:
    """An allreduce sends 7/8 of the 16 numbers of the bias, and of the 128 of the kernel, twice; the loss is no
    gradient."""
    dtype = sums_in or activations
    step = program(dense, activations, gradient_sum_dtype=sums_in, bucket_bytes=0)
    assert sums(step) == {
        ("all_reduce", dtype.name, 128 * 2 * 7 // 8 * dtype.size): 1,
        ("all_reduce", dtype.name, 16 * 2 * 7 // 8 * dtype.size): 1,
    }
    (loss,) = (c for c in step.report().collectives if not c.shape)
    assert loss.dtype == "float32"


def test_divided_updates_and_buckets() -> None:
    """Kernel and bias are scattered together, in the chosen dtype; new weights are gathered as they are stored."""
    for sums_in in (tf.float32, tf.bfloat16):
        for activations in (tf.float32, tf.bfloat16):
            step = program(dense, activations, gradient_sum_dtype=sums_in, pass_options=UPDATES_ARE_DIVIDED)
            assert sums(step) == {("reduce_scatter", sums_in.name, (128 + 16) * 7 // 8 * sums_in.size): 1}
            (bucket,) = (c for c in step.report().collectives if c.kind == "reduce_scatter")
            assert [m.dtype for m in bucket.members] == [sums_in.name] * 2
            (gathered,) = (c for c in step.report().collectives if c.kind == "all_gather")
            assert gathered.dtype == "float32"


def test_weights_kept_split_in_a_stack() -> None:
    """Each layer's gradient is scattered inside the loop."""
    for sums_in in (tf.float32, tf.bfloat16):
        step = program(stack, tf.bfloat16, parameter_layout="d_ff:all", gradient_sum_dtype=sums_in, bucket_bytes=0)
        assert sums(step)["reduce_scatter", sums_in.name, 128 * 7 // 8 * sums_in.size] == 3
        assert {dtype for _, dtype, _ in sums(step)} == {sums_in.name}


def test_nothing_is_rounded_between_two_sums() -> None:
    """The kernel's gradient is scattered over one mesh axis, and what is left of it over the other."""
    options: dict[str, Any] = {"parameter_layout": "d_ff:rows", "gradient_sum_dtype": tf.float32, "bucket_bytes": 0}
    step = program(dense, tf.bfloat16, "rows:4;cols:2", "batch:rows+cols", **options)
    kernel = [c for c in step.report().collectives if c.kind == "reduce_scatter" and c.shape == "d_model:8 d_ff:16"]
    assert sorted(c.axes for c in kernel) == [("cols",), ("rows",)]
    assert {c.dtype for c in kernel} == {"float32"}
    np.testing.assert_array_equal(interpreted(step)["w"], -exact())


@pytest.mark.parametrize("options", [{}, {"parameter_layout": "d_ff:all"}, {"bucket_bytes": 0}])
def test_sums_in_float32_keep_every_digit(options: dict[str, Any]) -> None:
    """They are those of float64; sums in bfloat16 are not."""
    in_float32 = interpreted(program(dense, tf.bfloat16, gradient_sum_dtype=tf.float32, **options))
    np.testing.assert_array_equal(in_float32["w"], -exact())
    np.testing.assert_array_equal(in_float32["bias"], -feeds()["y_grad"].sum(0))
    for activations in (tf.bfloat16, tf.float32):
        in_bfloat16 = interpreted(program(dense, activations, gradient_sum_dtype=tf.bfloat16, **options))
        error = np.abs(in_bfloat16["w"] + exact()) / exact()
        assert 2**-10 < np.max(error) < 2**-6


def test_one_rounding_for_each_layer_of_a_stack() -> None:
    """A stack holds each layer's gradient in the dtype of its activations."""
    step = program(stack, tf.bfloat16, parameter_layout="d_ff:all", gradient_sum_dtype=tf.float32)
    rounded = bfloat16(exact()).astype(np.float32)
    np.testing.assert_array_equal(interpreted(step)["layer/w"], -np.stack([rounded] * 3))
    whole = program(stack, tf.bfloat16, gradient_sum_dtype=tf.float32)
    np.testing.assert_array_equal(interpreted(whole)["layer/w"], -np.stack([exact()] * 3))


def test_what_iterations_accumulated_is_not_rounded_first() -> None:
    """Three times a number of bfloat16 may be none; the sum over the cores starts from that."""
    step = program(shared, tf.bfloat16, gradient_sum_dtype=tf.float32)
    np.testing.assert_array_equal(interpreted(step)["w"], -3 * exact())
    assert np.any(interpreted(program(shared, tf.bfloat16))["w"] != -3 * exact())


def test_padding_is_no_reason_to_round() -> None:
    """Eight cores divide neither 5 nor 3: slices are padded, scattered and cropped in the dtype of the sum."""
    options = {"gradient_sum_dtype": tf.float32, "bucket_bytes": 0, "pass_options": UPDATES_ARE_DIVIDED}
    step = program(uneven, tf.bfloat16, **options)
    assert {(kind, dtype) for kind, dtype, _ in sums(step)} == {("reduce_scatter", "float32")}
    expected = feeds()["x"].astype(np.float64)[:, :5].T @ feeds()["y_grad"][:, :15]
    np.testing.assert_array_equal(interpreted(step)["w"], -expected)


def test_both_readers_of_a_sum_have_its_digits() -> None:
    """The norm of the gradients is that of what is clipped: one collective each, and no cast but of the terms."""

    def clipped(x: mtf.Tensor, y_grad: mtf.Tensor) -> mtf.Tensor:
        sgd = mtf.optimize.SgdOptimizer(1.0)
        optimizer = mtf.optimize.ClippedOptimizer(sgd, mtf.optimize.ClipByGlobalNorm(1.0))
        return minimize(product(x), y_grad, optimizer)

    step = program(clipped, tf.bfloat16, gradient_sum_dtype=tf.float32)
    assert list(sums(step).values()) == [1]
    assert_close(interpreted(step)["w"], -exact() / np.linalg.norm(exact()), terms=(8, 8 * 16, 2 * FUNCTION_TERMS))


OPTIMIZERS: dict[str, mtf.optimize.Optimizer] = {
    "Adafactor": mtf.optimize.AdafactorOptimizer(0.1),
    "LAMB": mtf.optimize.LambOptimizer(0.1),
    "clipped": mtf.optimize.ClippedOptimizer(mtf.optimize.AdamOptimizer(0.1), mtf.optimize.ClipByGlobalNorm(1.0)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_statistics_are_summed_as_before(name: str) -> None:
    """Norms and means of squares over divided gradients are no gradients; neither are those of activations."""

    def step(x: mtf.Tensor, y_grad: mtf.Tensor) -> mtf.Tensor:
        y = product(x)
        mean = mtf.reduce_mean(y, output_shape=[D_FF])
        moving = mtf.get_variable(x.mesh, "moving_mean", [D_FF], trainable=False)
        mtf.assign(moving, 0.9 * mtf.read_variable(moving) + 0.1 * mean)
        return minimize(y - mean, y_grad, OPTIMIZERS[name])

    def statistics(sums_in: tf.DType | None) -> list[tuple[str, str, str]]:
        options = {"gradient_sum_dtype": sums_in, "bucket_bytes": 0, "pass_options": UPDATES_ARE_DIVIDED}
        records = program(step, tf.float32, **options).report().collectives
        return [(c.kind, c.dtype, c.shape) for c in records]

    before, after = statistics(None), statistics(tf.bfloat16)
    gradient = "d_model:8 d_ff:16"
    changed = [(kind, dtype, shape) for kind, dtype, shape in before if (kind, shape) == ("reduce_scatter", gradient)]
    assert len(changed) == 1
    expected = [(k, "bfloat16" if (k, d, s) in changed else d, s) for k, d, s in before]
    assert sorted(after) == sorted(expected)


class _Mixing(mtf.optimize.Optimizer):
    """Moves each weight by what all weights of its row before it have gathered."""

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        moved = []
        for p in parameters:
            gathered = mtf.assign(p.variable.graph.variables["w/gathered"], p.grad)
            moved.append(p.value - mtf.cumsum(gathered, D_FF))
        return moved


def test_an_optimizer_that_mixes_what_it_gathered() -> None:
    """The gradient is found through state of its shape where the weight does not follow element by element."""

    def mixed(x: mtf.Tensor, y_grad: mtf.Tensor) -> mtf.Tensor:
        y = product(x)
        mtf.like_variable(y.graph.trainable_variables[0], "gathered")
        return minimize(y, y_grad, _Mixing())

    step = program(mixed, tf.bfloat16, gradient_sum_dtype=tf.float32)
    assert {dtype for _, dtype, _ in sums(step)} == {"float32"}
    np.testing.assert_array_equal(interpreted(step)["w"], -np.cumsum(exact(), 1))


def test_updates_inside_loops_and_branches() -> None:
    def repeated(x: mtf.Tensor, y_grad: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [D_MODEL, D_FF], initializer=mtf.zeros)

        def update() -> mtf.Tensor:
            return mtf.reduce_sum(mtf.assign_sub(w, mtf.einsum([x, y_grad], [D_MODEL, D_FF])))

        def body(turn: mtf.Tensor) -> mtf.Tensor:
            mtf.cond(mtf.less(turn, 2), update, lambda: mtf.zeros(x.mesh, []))
            return turn + 1

        (turns,) = mtf.while_loop(lambda t: mtf.less(t, 4), body, [mtf.zeros(x.mesh, [], tf.int32)])
        return turns

    step = program(repeated, tf.float32, gradient_sum_dtype=tf.bfloat16)
    assert {(kind, dtype) for kind, dtype, _ in sums(step)} == {("all_reduce", "bfloat16")}
    error = np.abs(interpreted(step)["w"] + 2 * exact()) / exact()
    assert 2**-10 < np.max(error) < 2**-5


def test_sums_that_are_in_the_chosen_dtype_are_left() -> None:
    plans = [plan_of(program(dense, tf.float32, gradient_sum_dtype=dtype)) for dtype in (None, tf.float32)]
    assert len({len(p.instructions) for p in plans}) == 1
    assert casts(plans[0]) == casts(plans[1])


@pytest.mark.parametrize("shard_weight_update", [False, True])
def test_on_devices(shard_weight_update: bool) -> None:
    """Eight cores: float32 sums are NumPy's, bfloat16 sums farther off."""
    errors = []
    for sums_in in (tf.float32, tf.bfloat16):
        step = program(
            dense,
            tf.bfloat16,
            implementation=mtf.SpmdMeshImpl,
            pass_options=UPDATES_ARE_DIVIDED,
            gradient_sum_dtype=sums_in,
            shard_weight_update=shard_weight_update,
        )
        step(**feeds())
        errors.append(np.max(np.abs(step.variables["w"] + exact()) / exact()))
    assert errors[0] == 0
    assert 2**-10 < errors[1] < 2**-6


def test_a_gradient_that_is_returned_is_rounded_once() -> None:
    def returned(x: mtf.Tensor, y_grad: mtf.Tensor) -> mtf.Tensor:
        y = product(x)
        loss = mtf.reduce_sum(mtf.cast(y * mtf.cast(y_grad, y.dtype), tf.float32))
        (w,) = loss.graph.trainable_variables
        (grad,) = mtf.gradients([loss], [w.value])
        assert grad is not None
        mtf.optimize.SgdOptimizer(1.0).apply_grads([grad], [w])
        return grad

    step = program(returned, tf.bfloat16, implementation=mtf.SpmdMeshImpl, gradient_sum_dtype=tf.float32)
    np.testing.assert_array_equal(step(**feeds()).numpy(), bfloat16(exact()))
    np.testing.assert_array_equal(step.variables["w"], -exact())


def test_a_stack_whose_weights_are_kept_split_on_devices() -> None:
    options: dict[str, Any] = {"parameter_layout": "d_ff:all", "gradient_sum_dtype": tf.float32}
    step = program(stack, tf.bfloat16, implementation=mtf.SpmdMeshImpl, **options)
    step(**feeds())
    rounded = bfloat16(exact()).astype(np.float32)
    np.testing.assert_array_equal(step.variables["layer/w"], -np.stack([rounded] * 3))


BAD = [
    (tf.int32, "is tf.int32"),
    ("floats32", "is 'floats32'; did you mean \"float32\"\\?"),
    (tf.float64, "is tf.float64"),
    (True, "is True"),
]


@pytest.mark.parametrize(("dtype", "said"), BAD)
def test_a_dtype_in_which_nothing_is_summed(dtype: object, said: str) -> None:
    makers: list[Callable[..., object]] = [mtf.PlanMeshImpl, mtf.SpmdMeshImpl, mtf.TpuMeshImpl]
    for mesh_impl in makers:
        with pytest.raises(
            UsageError, match=f"gradient_sum_dtype must be one of float32, bfloat16, or None, and {said}"
        ):
            mesh_impl("all:1", "", gradient_sum_dtype=dtype)


def test_a_dtype_may_be_given_by_its_name() -> None:
    assert mtf.PlanMeshImpl("all:1", "", gradient_sum_dtype="bfloat16").options.gradient_sum_dtype is tf.bfloat16  # type: ignore[arg-type]
