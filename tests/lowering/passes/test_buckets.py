"""Small collectives travel together, and nothing else changes: neither values, nor bytes, nor what the report names."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import UsageError
from meshtf.lowering.interpreter import Interpreter
from meshtf.lowering.passes.pass_options import DEFAULT_PASS_OPTIONS, PassOptions
from meshtf.lowering.report import accounting
from meshtf.mesh_impl.blocks import reshaped
from meshtf.planning.plan import Collective, Loop, Plan
from meshtf.testing import FUNCTION_TERMS, assert_close, build

pytestmark = pytest.mark.quick

BATCH, D_MODEL, D_FF, LAYERS = (
    mtf.Dimension(name, size) for name, size in (("batch", 8), ("d_model", 8), ("d_ff", 16), ("layers", 3))
)
X = {"x": mtf.TensorSpec([BATCH, D_MODEL])}
VALUE = {"x": np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)}


def plan_of(
    fn: Callable[..., mtf.Tensor],
    mesh_shape: str,
    layout: str,
    bucket_bytes: int = 1 << 20,
    pass_options: PassOptions = DEFAULT_PASS_OPTIONS,
    num_processes: int = 1,
) -> Plan:
    graph, result = build(fn, X)
    mesh_impl = mtf.PlanMeshImpl(mesh_shape, layout, bucket_bytes=bucket_bytes, num_processes=num_processes)
    return mtf.Lowering(graph, {result.mesh: mesh_impl}, pass_options=pass_options).plan_for((result,))


def run(plan: Plan, initial: Mapping[str, np.ndarray]) -> tuple[np.ndarray, dict[str, list[np.ndarray]]]:
    cores = plan.mesh_shape.size
    interpreter = Interpreter(plan, {name: [array] * cores for name, array in initial.items()})
    feeds = {f.name: np.asarray(f.operation.value) for f in plan.feeds if f.name not in VALUE}  # type: ignore[attr-defined]
    return interpreter.run({**VALUE, **feeds})[0], interpreter.variables


def initial_values(plan: Plan) -> dict[str, np.ndarray]:
    stored = accounting.stored_variables(plan)
    generator = np.random.default_rng(1)
    return {n: generator.uniform(0.5, 1, v.slice_shape).astype(v.dtype.as_numpy_dtype) for n, v in stored.items()}


UPDATES_ARE_DIVIDED = PassOptions(smallest_divided_update=2)


def kinds(plan: Plan) -> collections.Counter[str]:
    return collections.Counter(c.step.kind for c, _ in accounting.collectives(plan))


def layer(x: mtf.Tensor) -> mtf.Tensor:
    """Two biases and a scale, whose gradients are small sums over the batch."""
    scale = mtf.get_variable(x.mesh, "scale", [D_MODEL])
    wi = mtf.get_variable(x.mesh, "wi", [D_MODEL, D_FF])
    wi_bias = mtf.get_variable(x.mesh, "wi_bias", [D_FF])
    wo_bias = mtf.get_variable(x.mesh, "wo_bias", [D_MODEL])
    h = mtf.tanh(mtf.einsum([x * scale, wi], [BATCH, D_FF]) + wi_bias)
    return x + mtf.einsum([h, wi], [BATCH, D_MODEL]) + wo_bias


def train(x: mtf.Tensor) -> mtf.Tensor:
    for i in range(3):
        with mtf.variable_scope(f"layer_{i}"):
            x = layer(x)
    loss = mtf.reduce_mean(mtf.square(x))
    mtf.optimize.MomentumOptimizer(0.1, 0.9).minimize(loss)
    return loss


def sums(x: mtf.Tensor) -> mtf.Tensor:
    """Sums into slices and whole, and maxima; and gathers, of which each is one."""
    functions = (mtf.exp, mtf.sin, mtf.tanh)
    gathered = [mtf.with_layout(f(x), "") for f in functions]
    scattered = [mtf.with_layout(mtf.reduce_sum(f(x), reduced_dim=BATCH), "d_model:all") for f in functions]
    largest = [mtf.reduce_max(mtf.cos(x * i), reduced_dim=BATCH) for i in (1.0, 2.0)]
    return mtf.reduce_sum(mtf.stack([mtf.reduce_sum(y) for y in (*gathered, *scattered, *largest)], "n"))


def in_a_loop(x: mtf.Tensor) -> mtf.Tensor:
    def one(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        (y,) = carried
        means = [mtf.reduce_mean(f(y), output_shape=[D_MODEL]) for f in (mtf.sin, mtf.cos, mtf.square)]
        return [mtf.tanh(y + means[0] + means[1] * means[2])], []

    (y,), _ = mtf.layer_stack(one, x, LAYERS)
    return mtf.reduce_sum(y)


PROGRAMS = {
    "training, data parallel": (train, "all:4", "batch:all"),
    "training, model parallel": (train, "rows:2;cols:2", "batch:rows;d_ff:cols"),
    "sums": (sums, "all:4", "batch:all"),
    "loop": (in_a_loop, "all:4", "batch:all"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_bits_and_bytes_in_fewer_collectives(name: str) -> None:
    fn, mesh_shape, layout = PROGRAMS[name]
    together, alone = plan_of(fn, mesh_shape, layout), plan_of(fn, mesh_shape, layout, bucket_bytes=0)
    initial = initial_values(alone)
    result, variables = run(together, initial)
    expected, expected_variables = run(alone, initial)
    np.testing.assert_array_equal(result, expected)
    for variable, slices in expected_variables.items():
        np.testing.assert_array_equal(variables[variable], slices, err_msg=variable)
    assert sum(kinds(together).values()) < sum(kinds(alone).values())
    sent = [sum(t.bytes_sent for t in accounting.traffic(plan)) for plan in (together, alone)]
    assert abs(sent[0] - sent[1]) <= 2 * sum(kinds(alone).values())  # rounded to whole bytes for each


def test_one_collective_for_all_small_gradients() -> None:
    """Twelve gradients and the loss, on the way of none of which anything else is."""
    (bucket,) = plan_of(train, "all:4", "batch:all").collectives
    assert len(bucket.members) == 13
    assert len(plan_of(train, "all:4", "batch:all", bucket_bytes=0).collectives) == 13


def test_divided_updates_in_two_collectives() -> None:
    """All gradients are scattered at once, and all new weights gathered."""
    together, alone = (plan_of(train, "all:4", "batch:all", b, UPDATES_ARE_DIVIDED) for b in (1 << 20, 0))
    assert kinds(together) == {"reduce_scatter": 1, "all_gather": 1, "all_reduce": 1}
    assert kinds(alone) == {"reduce_scatter": 12, "all_gather": 12, "all_reduce": 1}
    initial = initial_values(alone)
    (loss, variables), (expected, expected_variables) = run(together, initial), run(alone, initial)
    np.testing.assert_array_equal(loss, expected)
    for name, slices in expected_variables.items():
        np.testing.assert_array_equal(variables[name], slices, err_msg=name)


def test_a_bucket_has_at_most_so_many_bytes() -> None:
    plan = plan_of(train, "all:4", "batch:all", bucket_bytes=600)
    sizes = [c.input.slice_bytes for c in plan.collectives]
    assert sum(sizes) == sum(c.input.slice_bytes for c in plan_of(train, "all:4", "batch:all").collectives)
    # A matrix has 512 bytes, a layer's vectors 128.
    assert max(sizes) <= 600
    assert len(sizes) == 5


def test_what_is_large_travels_alone() -> None:
    plan = plan_of(train, "all:4", "batch:all", pass_options=PassOptions(largest_bucket_member=256))
    assert sorted(len(c.members) for c in plan.collectives) == [0, 0, 0, 10]


def test_between_processes_what_is_large_travels_with_others() -> None:
    """Where it does not cross processes it is alone: to start costs less there than to copy."""
    options = PassOptions(largest_bucket_member=256)
    across = plan_of(train, "all:4", "batch:all", pass_options=options, num_processes=2)
    within = plan_of(train, "pods:2;all:2", "batch:all", pass_options=options, num_processes=2)
    assert max(len(c.members) for c in across.collectives) == 13
    assert sorted(len(c.members) for c in within.collectives if c.step.axes == ("all",)) == [0, 0, 0, 10]
    short = plan_of(train, "all:4", "batch:all", bucket_bytes=600, pass_options=options, num_processes=2)
    assert max(c.input.slice_bytes for c in short.collectives) <= 600


def test_only_the_same_kind_axes_and_dtype_travel_together() -> None:
    plan = plan_of(sums, "all:4", "batch:all")
    for bucket in plan.collectives:
        alike = {(m.step.kind, m.step.axes, m.step.reduction, m.input.dtype) for m in bucket.members}
        assert len(alike) <= 1
    assert kinds(plan) == {"all_gather": 3, "reduce_scatter": 1, "all_reduce": 2}


def test_products_do_not_wait() -> None:
    """A sum that a product needs is done before it, though others of its kind follow."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [D_MODEL, D_FF])
        first = mtf.reduce_mean(x, output_shape=[D_MODEL])
        h = mtf.einsum([first, w], [D_FF])
        second = mtf.reduce_mean(mtf.square(x), output_shape=[D_MODEL])
        return mtf.reduce_sum(h) + mtf.reduce_sum(second)

    plan = plan_of(program, "all:4", "batch:all", pass_options=PassOptions(light_flops=0))
    assert [c.members for c in plan.collectives] == [(), ()]


def test_buckets_inside_loop_bodies() -> None:
    plan = plan_of(in_a_loop, "all:4", "batch:all")
    (loop,) = (i for i in plan.instructions if isinstance(i, Loop))
    (bucket,) = (i for i in loop.body if isinstance(i, Collective))
    assert len(bucket.members) == 3


def test_the_report_names_every_operation_and_line() -> None:
    with_buckets = mtf.function(train, mtf.PlanMeshImpl("all:4", "batch:all"), inputs=X).report()
    without = mtf.function(train, mtf.PlanMeshImpl("all:4", "batch:all", bucket_bytes=0), inputs=X).report()
    (bucket,) = with_buckets.collectives
    assert sorted(map(str, bucket.members)) == sorted(map(str, without.collectives))
    text, alone = str(with_buckets), str(without)
    assert "buckets: small collectives that travel as one" in text
    assert "buckets: small" not in alone
    places = [line for line in alone.splitlines() if line.endswith((" in layer", " in train"))]
    # The loss, and in the layer the scale, and both biases: the gradients of each have their forward line.
    assert len(places) == 4
    assert all(place in text for place in places)
    assert text.count("bucket 1") >= len(places)


def test_on_devices() -> None:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        first, second = (mtf.reduce_sum(f(x), reduced_dim=BATCH) for f in (mtf.exp, mtf.sin))
        return first * mtf.with_layout(second, "d_model:cols")

    results = []
    for bucket_bytes in (0, 1 << 20):
        mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows", bucket_bytes=bucket_bytes)
        results.append(mtf.function(step, mesh_impl, inputs=X)(**VALUE))
    assert_close(results[1], results[0], terms=(8, 8, 2 * FUNCTION_TERMS))


@pytest.mark.parametrize("bucket_bytes", [-1, 0.5, True])
def test_a_bucket_size_that_is_none(bucket_bytes: int) -> None:
    for mesh_impl in (mtf.PlanMeshImpl, mtf.SpmdMeshImpl):
        with pytest.raises(UsageError, match=r"bucket_bytes must be an integer, 0 or more, and is"):
            mesh_impl("all:1", "", bucket_bytes=bucket_bytes)


def test_what_has_its_sizes_is_not_reshaped() -> None:
    x = tf.range(6)
    assert reshaped(x, [6]) is x
    np.testing.assert_array_equal(reshaped(x, (2, 3)), [[0, 1, 2], [3, 4, 5]])
