"""Weights that loops read transposed are transposed once before: the same gradients, and no more memory than is said.

All numbers are small integers, and no sum is too large to be exact in float32: whatever the order of its terms, it is
what it is in NumPy, to the bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers import PipelineSchedule, pipeline
from meshtf.lowering.interpreter import Interpreter
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.passes.transposed_weights import transpose_weights_once
from meshtf.lowering.report import accounting
from meshtf.ops.algebra.contraction import Contraction
from meshtf.planning.plan import Compute, Loop, Plan, walk
from meshtf.testing import build
from tests.lowering.passes.update_programs import known, started

D_MODEL, D_FF = mtf.Dimension("d_model", 6), mtf.Dimension("d_ff", 8)
EVERY, NONE = PassOptions(smallest_transposed=0), PassOptions(most_bytes_transposed=0)
INPUTS = {"x": mtf.TensorSpec([("batch", 256), D_MODEL])}
X = np.random.default_rng(0).integers(-1, 2, size=[256, D_MODEL.size]).astype(np.float32)
OF_ONE = 4 * D_MODEL.size * D_FF.size
"""Bytes of one layer's weight."""

Program: TypeAlias = Callable[[mtf.Tensor], list[mtf.Tensor]]


def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
    h = mtf.layers.dense(carried[0], [D_FF], activation=mtf.relu, use_bias=False)
    return [carried[0] + mtf.layers.dense(h, [D_MODEL], [D_FF], use_bias=False, name="out")], []


def loss_of(x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
    return mtf.reduce_sum(x * y)


def in_micro_batches(num_layers: int, recompute: str | None = None) -> Program:
    """Gradients of a stack of layers, over eight micro-batches."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        def of_one(own: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
            layers = mtf.Dimension("layers", num_layers)
            return {"loss": loss_of(own["x"], mtf.layer_stack(layer, own["x"], layers, recompute=recompute)[0][0])}

        return mtf.serialize_training_step({"x": x}, of_one, x.shape[0], 8)[0]

    return program


def of_stages(num_layers: int, num_rounds: int = 1, recompute: str | None = "nothing") -> Program:
    """Gradients of a pipeline of two stages, over eight micro-batches."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        schedule = PipelineSchedule(2, 8, num_rounds)
        layers = mtf.Dimension("layers", num_layers)
        (y,) = pipeline(lambda xs, own: layer(xs, own)[0], x, layers, schedule, recompute=recompute)
        gradients = mtf.gradients(loss_of(x, y), [v.value for v in x.graph.trainable_variables])
        return [g for g in gradients if g is not None]

    return program


PROGRAMS: dict[str, tuple[Program, int, str, str]] = {
    "one layer": (in_micro_batches(1), 1, "all:1", ""),
    "recomputed": (in_micro_batches(3, "nothing"), 3, "rows:2;cols:2", "batch:rows;d_ff:cols"),
    "segments": (in_micro_batches(4, "nested"), 4, "rows:2", "d_model:rows"),
    "stages": (of_stages(4), 4, "stages:2", "stage:stages"),
    "stages on one core": (of_stages(2, recompute=None), 2, "all:1", ""),
    "uneven stages": (of_stages(3), 3, "stages:2;cols:2", "stage:stages;d_ff:cols"),
    "rounds": (of_stages(4, num_rounds=2), 4, "stages:2", "stage:stages"),
}
"""The program, how many layers it has, the mesh and the layout."""


def integers(shapes: dict[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Arrays of -1, 0 and 1."""
    rng = np.random.default_rng(1)
    return {name: rng.integers(-1, 2, size=size).astype(np.float32) for name, size in shapes.items()}


def by_numpy(x: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of weights [layers d_model d_ff] and [layers d_ff d_model]."""
    y, kept = x, []
    for w, v in zip(first, second, strict=True):
        h = np.maximum(y @ w, 0)
        kept.append((y, h))
        y = y + h @ v
    dy, found = x, []
    for (y, h), w, v in reversed(list(zip(kept, first, second, strict=True))):
        dh = (dy @ v.T) * (h > 0)
        found.append((y.T @ dh, h.T @ dy))
        dy = dy + dh @ w.T
    dw, dv = zip(*found[::-1], strict=True)
    return np.stack(dw), np.stack(dv)


def is_exact(x: np.ndarray, *weights: np.ndarray) -> bool:
    """Whether no sum of some of the terms can be so large that float32 would round it."""
    largest = max(g.max() for g in by_numpy(abs(x).astype(np.float64), *map(abs, weights)))
    return largest < 2**24


def transposes(plan: Plan) -> list[Compute]:
    """What loops are given, and was made for products that they do."""
    products = {i.operation for i, _ in walk(plan.instructions) if isinstance(i, Compute) and i.facts.products}
    return [
        i for i in plan.instructions if isinstance(i, Compute) and i.kind == "transpose" and i.operation in products
    ]


def num_read_transposed(plan: Plan) -> int:
    """How many products of loops read a matrix so."""
    loops = [i for i in plan.instructions if isinstance(i, Loop)]
    products = [i for i, _ in walk(loops) if isinstance(i, Compute) and isinstance(i.emit, Contraction)]
    return sum(reads_transposed(i) for i in products)


def reads_transposed(product: Compute) -> bool:
    sizes = {d.name: n for v in product.inputs for d, n in zip(v.shape, v.slice_shape, strict=True)}
    assert isinstance(product.emit, Contraction)
    return product.emit.read_transposed(sizes) is not None


def planned(program: Program, options: PassOptions, mesh_shape: str, layout: str) -> tuple[mtf.Lowering, Plan]:
    graph, results = build(program, INPUTS)
    lowering = mtf.Lowering(graph, {results[0].mesh: mtf.PlanMeshImpl(mesh_shape, layout)}, pass_options=options)
    return lowering, lowering.plan_for(tuple(results))


@pytest.mark.parametrize("case", PROGRAMS)
def test_gradients_are_those_of_numpy(case: str) -> None:
    program, num_layers, mesh_shape, layout = PROGRAMS[case]
    step = mtf.function(program, mtf.SpmdMeshImpl(mesh_shape, layout), INPUTS, pass_options=EVERY)
    weights = integers({v.full_name: v.shape.to_integer_list for v in step.graph.trainable_variables})
    step.initialize(weights)
    ordered = [w.reshape(num_layers, *w.shape[-2:]) for w in weights.values()]
    assert is_exact(X, *ordered)
    for own, expected in zip(step(x=X), by_numpy(X, *ordered), strict=True):
        np.testing.assert_array_equal(own.numpy().reshape(expected.shape), expected)


@pytest.mark.parametrize("case", PROGRAMS)
def test_no_product_of_a_gradient_reads_a_weight_transposed(case: str) -> None:
    program, _, mesh_shape, layout = PROGRAMS[case]
    (_, own), (_, other) = (planned(program, o, mesh_shape, layout) for o in (EVERY, NONE))
    # Where one core has all stages, its products are batches, which are read as they are.
    count = 0 if case == "stages on one core" else 2
    assert (len(transposes(own)), num_read_transposed(own)) == (count, 0)
    assert (len(transposes(other)), num_read_transposed(other)) == (0, count)
    assert accounting.flops(own) == accounting.flops(other)
    assert accounting.traffic(own) == accounting.traffic(other)


def test_the_plan_counts_what_is_there_twice() -> None:
    program = in_micro_batches(4, "nothing")
    own, other = (accounting.peak_memory(planned(program, o, "all:1", "")[1]) for o in (EVERY, NONE))
    assert own.total - other.total == 2 * 4 * OF_ONE


def test_so_much_is_there_twice_and_no_more() -> None:
    program = in_micro_batches(4)
    for most, count in ((4 * OF_ONE - 1, 0), (4 * OF_ONE, 1), (8 * OF_ONE - 1, 1), (8 * OF_ONE, 2)):
        options = PassOptions(smallest_transposed=0, most_bytes_transposed=most)
        assert len(transposes(planned(program, options, "all:1", "")[1])) == count


def test_small_matrices_stay_as_they_are() -> None:
    for smallest, count in ((D_MODEL.size * D_FF.size, 2), (D_MODEL.size * D_FF.size + 1, 0)):
        plan = planned(in_micro_batches(2), PassOptions(smallest_transposed=smallest), "all:1", "")[1]
        assert len(transposes(plan)) == count


def test_a_compiler_sees_to_it_itself() -> None:
    plan = planned(in_micro_batches(2), NONE, "all:1", "")[1]
    assert transpose_weights_once(plan, PassOptions(smallest_transposed=0)) is plan
    assert transpose_weights_once(plan, PassOptions(smallest_transposed=0, computes_on_processors=True)) is not plan


def of_random_loops(rng: random.Random) -> Program:
    """Of a stack of weights with dimensions in any order, in one loop over layers or in two."""
    sizes = rng.choice([(1, 1), (2, 1), (1, 2)])  # of more layers some sums might be rounded
    layers, groups = mtf.Dimension("layers", sizes[0]), mtf.Dimension("groups", sizes[1])
    order, kept = rng.sample([D_MODEL, D_FF, layers, groups], 4), rng.choice([None, "products", "nothing", "nested"])
    rows = rng.sample(["batch", "d_model"], 2)

    def own(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        x, w = *carried, *parts
        h = mtf.relu(mtf.einsum([x, w], reduced_dims=[D_MODEL]))
        y = mtf.einsum(rng.sample([h, w], 2), output_shape=[x.shape.get_dim_by_name(name) for name in rows])
        return [x + mtf.transpose(y, x.shape)], []

    def group(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        return [mtf.scan(own, carried[0], parts, layers, recompute=kept)[0][0]], []

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        def of_one(given: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
            w = mtf.get_variable(x.mesh, "w", order)
            return {"loss": loss_of(given["x"], mtf.scan(group, given["x"], [w], groups)[0][0])}

        return mtf.serialize_training_step({"x": x}, of_one, x.shape[0], 8)[0]

    return program


def test_random_loops() -> None:
    counts = []
    for number in range(8):
        rng = random.Random(number)
        layout = rng.choice(["", "batch:rows", "d_ff:rows", "d_model:rows;batch:cols", "d_model:rows;d_ff:cols"])
        results = []
        for options in (EVERY, NONE):
            lowering, plan = planned(of_random_loops(random.Random(number)), options, "rows:2;cols:2", layout)
            variables = {n: [np.sign(w) for w in own] for n, own in started(lowering, plan).variables.items()}
            results.append(Interpreter(plan, variables).run({**known(plan), "x": X}))
            counts.append(len(transposes(plan)))
        for own, other in zip(*results, strict=True):
            assert np.abs(own).max() > 0
            np.testing.assert_array_equal(own, other)
    assert not any(counts[1::2])
    assert np.count_nonzero(counts[::2]) >= 4
