"""What several virtual CPUs of a process would do alike, one of them does."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.lowering.processors import work_done_once
from meshtf.lowering.processors.cores_in_one_memory import CoresInOneMemory
from meshtf.planning.plan import Compute, Loop, walk
from tests.house.sharpest import sharpest
from tests.lowering.emitted import CALLS, LOOPS, cores_in_memory, graph_of

BATCH, D_MODEL, D_FF = mtf.Dimension("batch", 8), mtf.Dimension("d_model", 64), mtf.Dimension("d_ff", 512)
LAYERS = mtf.Dimension("layers", 3)
X = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)


def layer(x: mtf.Tensor, n: int) -> mtf.Tensor:
    """A norm and a residual sum, which are whole along `cols`, and two products, which are split."""
    w = mtf.get_variable(x.mesh, f"w_{n}", [D_MODEL, D_FF])
    v = mtf.get_variable(x.mesh, f"v_{n}", [D_FF, D_MODEL])
    y = x * mtf.rsqrt(mtf.reduce_mean(mtf.square(x), reduced_dim=D_MODEL) + 1e-6)
    return x + mtf.einsum([mtf.relu(mtf.einsum([y, w], [BATCH, D_FF])), v], [BATCH, D_MODEL])


def layers_one_by_one(x: mtf.Tensor) -> mtf.Tensor:
    for n in range(LAYERS.size):
        x = layer(x, n)
    return x


def layers_in_a_loop(x: mtf.Tensor) -> mtf.Tensor:
    """Its weights' gradients are stacked; what it keeps for its own is whole along `cols`."""
    (y,), _ = mtf.layer_stack(lambda carried, parts: ([layer(carried[0], 0)], []), x, LAYERS)
    return y


def trained(model: Any, mesh_shape: str = "rows:2;cols:4") -> mtf.Function:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        loss = mtf.reduce_mean(mtf.square(model(x)))
        mtf.optimize.AdamOptimizer(0.01).minimize(loss)
        return loss

    layout = "batch:rows;d_ff:cols"
    inputs = {"x": mtf.TensorSpec([BATCH, D_MODEL])}
    return mtf.function(step, mtf.SpmdMeshImpl(mesh_shape, layout), inputs=inputs, seed=3)


@pytest.fixture
def done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little it is."""
    monkeypatch.setattr(work_done_once, "CALL_BYTES", 0)
    monkeypatch.setattr(work_done_once, "CALL_FLOPS", 0)


@pytest.mark.parametrize("model", sharpest([layers_one_by_one, layers_in_a_loop], [layers_in_a_loop]))
def test_results_are_the_same_to_the_bit(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses and every variable, as where each core does all of its work."""
    each = trained(model)
    expected = [each(x=X) for _ in range(3)]
    assert all(s.axes is None for s in cores_in_memory(each)._segments)
    monkeypatch.setattr(work_done_once, "CALL_BYTES", 0)
    once = trained(model)
    np.testing.assert_array_equal([once(x=X) for _ in range(3)], expected)
    assert set(cores_in_memory(once).traces.values()) == {1}
    for name, value in each.variables.items():
        np.testing.assert_array_equal(once.variables[name], value)


@pytest.mark.usefixtures("done_once")
def test_norms_and_sums_are_done_once_for_each_part_of_the_batch() -> None:
    """Of eight cores, two; products, on all of them."""
    step = trained(layers_one_by_one)
    cores = cores_in_memory(step)
    alike = [s for s in cores._segments if s.axes == ("rows",)]
    kinds = {i.kind for s in alike for i in s.instructions if isinstance(i, Compute)}
    assert {"square", "reduce_sum", "rsqrt", "multiply", "add"} <= kinds
    assert not any(i.facts.products for s in alike for i in s.instructions if isinstance(i, Compute))
    calls = calls_by_function(step)
    served = collections.Counter(name(cores, s) for s in alike)
    assert {name: calls[name] for name in served} == {name: 2 * count for name, count in served.items()}
    products = [s for s in cores._segments if any(i.facts.products for i in s.instructions if isinstance(i, Compute))]
    served = collections.Counter(name(cores, s) for s in products)
    assert {name: calls[name] for name in served} == {name: 8 * count for name, count in served.items()}


def name(cores: CoresInOneMemory, segment: Any) -> str:
    function: Any = cores._function(segment).function
    return function.name.decode()


def calls_by_function(step: mtf.Function) -> collections.Counter[str]:
    """Of the function that starts all cores."""
    return collections.Counter(o.get_attr("f").name for o in graph_of(step).get_operations() if o.type in CALLS)


@pytest.mark.usefixtures("done_once")
def test_a_loop_carries_what_cores_have_alike_once() -> None:
    """In a loop over layers the residual stream, of which the part of the batch tells which it is."""
    step = trained(layers_in_a_loop)
    cores, graph = cores_in_memory(step), graph_of(step)
    forward = next(i for i in cores._plan.instructions if isinstance(i, Loop) and i.stacked)
    loops = [o for o in graph.get_operations() if o.type in LOOPS]
    stream = [x for x in loops[0].outputs if x.shape.as_list() == [BATCH.size // 2, D_MODEL.size]]
    stacks = [o for o in graph.get_operations() if o.type == "TensorListStack" and o.inputs[0].op is loops[0]]
    kept = [o for o in stacks if o.outputs[0].shape.as_list() == [LAYERS.size, BATCH.size // 2, D_MODEL.size]]
    assert len(forward.carried) == 1
    whole = [s for s in forward.stacked if s.part.slice_shape == (BATCH.size // 2, D_MODEL.size)]
    assert (len(stream), len(kept)) == (2, 2 * len(whole))


def test_little_work_is_done_by_each() -> None:
    """To start a function costs as much; and nothing is replicated where all axes split the batch."""
    assert all(s.axes is None for s in cores_in_memory(trained(layers_one_by_one))._segments)
    wide = mtf.Dimension("wide", 1 << 18)

    def squares(x: mtf.Tensor) -> mtf.Tensor:
        y = mtf.reduce_sum(mtf.square(mtf.broadcast(x, [BATCH, wide])))
        return y + mtf.reduce_sum(mtf.square(x))

    for layout, axes in [("batch:rows", ("rows",)), ("batch:rows;wide:cols", None)]:
        step = mtf.function(squares, mtf.SpmdMeshImpl("rows:2;cols:4", layout), {"x": mtf.TensorSpec([BATCH])})
        assert cores_in_memory(step)._segments[0].axes == axes
        np.testing.assert_allclose(step(x=X[:, 0]), np.sum(np.square(X[:, 0])) * ((1 << 18) + 1), rtol=1e-5)


@pytest.mark.usefixtures("done_once")
def test_what_is_written_where_it_lies_and_users_functions_are_of_each_core() -> None:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        y = mtf.slicewise(lambda x: x + 1.0, [x], splittable_dims=["batch"], grad_function=lambda _, dy: [dy])
        w = mtf.get_variable(x.mesh, "w", [D_MODEL, mtf.Dimension("d_ff", 128)])
        y = mtf.relu(mtf.einsum([y, w], [BATCH, mtf.Dimension("d_ff", 128)]))
        loss = mtf.reduce_mean(mtf.square(y))
        mtf.optimize.MomentumOptimizer(0.1, 0.9).minimize(loss)
        return loss

    mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:4", "batch:rows")  # all weights are whole on every core
    cores = cores_in_memory(mtf.function(step, mesh_impl, {"x": mtf.TensorSpec([BATCH, D_MODEL])}))
    for segment in cores._segments:
        for i, _ in walk(segment.instructions):
            if i in cores.facts.in_place or i.operation.why_not_compiled:
                assert segment.axes is None
    assert cores.facts.in_place
