"""recompute_grad and recomputation in scans: the same results, less memory, in the accounting and in the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.lowering.report.memory.peak_memory import peak_memory
from meshtf.planning.plan import Plan
from meshtf.testing import FUNCTION_TERMS, assert_close, assert_layout_invariant, interpret, plan
from tests.house.sharpest import sharpest

BATCH, D, HIDDEN = mtf.Dimension("batch", 4), mtf.Dimension("d", 4), mtf.Dimension("hidden", 8)
RNG = np.random.default_rng(4)
INPUTS: dict[str, Any] = {
    "x": ("batch:4 d:4", RNG.normal(size=(4, 4))),
    "w": ("d:4 hidden:8", RNG.normal(size=(4, 8)) / 2),
}
LAYOUTS = ["batch:rows;hidden:cols", "d:rows;hidden:cols", "hidden:rows+cols"]
POLICIES = [True, "products", "everything", "costly", mtf.RecomputePolicy("nothing", names=("tanh", "block/einsum"))]


def layer(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    with mtf.variable_scope("block"):
        h = mtf.tanh(mtf.einsum([x, w], reduced_dims=[D]))
        h = mtf.dropout(h, True, rate=0.25)
        return x + mtf.einsum([mtf.sin(h), w], output_shape=x.shape)


def two_layers(recompute: Any) -> Callable[..., Any]:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        for name in ("first", "second"):
            with mtf.variable_scope(name):
                x = layer(x, w) if recompute is None else mtf.recompute_grad(lambda x: layer(x, w), x, recompute)
        return x

    return program


@pytest.mark.parametrize("recompute", sharpest(POLICIES, [True, *POLICIES[1::2], POLICIES[-1]]), ids=str)
def test_results_gradients_and_dropout_are_the_same(twins: Any, recompute: Any) -> None:
    twins(two_layers(recompute), two_layers(None), INPUTS, LAYOUTS[:2] if recompute is True else LAYOUTS[:1])


def test_of_a_tensor_whose_layout_is_overridden(twins: Any) -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        return two_layers(True)(mesh, mtf.with_layout(x, "batch:rows+cols"), w)

    twins(program, two_layers(None), INPUTS, ["batch:rows", "batch:cols"])


def test_on_virtual_cpus() -> None:
    def program(x: mtf.Tensor, w: mtf.Tensor, mesh: mtf.Mesh) -> Any:
        return two_layers(True)(mesh, x, w)

    inputs = {name: (shape, array.astype(np.float32)) for name, (shape, array) in INPUTS.items()}
    assert_layout_invariant(program, inputs, LAYOUTS[:1])


def test_a_loop_inside_and_two_results(twins: Any) -> None:
    def inside(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor]:
        (y,), (sums,) = mtf.scan(lambda c, p: ([layer(c[0], w)], [mtf.reduce_sum(c[0] * p[0])]), x, x, BATCH)
        return [y, sums]

    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        return mtf.recompute_grad(lambda x, w: inside(x, w), [x, w])

    twins(program, lambda mesh, x, w: inside(x, w), INPUTS, LAYOUTS[:2])


def _in_recomputed(fn: Callable[[mtf.Tensor], list[mtf.Tensor]], x: mtf.Tensor) -> list[mtf.Tensor]:
    return list(mtf.recompute_grad(fn, [x]))


def _in_custom_gradient(fn: Callable[[mtf.Tensor], list[mtf.Tensor]], x: mtf.Tensor) -> list[mtf.Tensor]:
    return list(mtf.custom_gradient(fn, lambda *given: [None], [x]))


def _in_scan(fn: Callable[[mtf.Tensor], list[mtf.Tensor]], x: mtf.Tensor) -> list[mtf.Tensor]:
    once = mtf.zeros(x.mesh, "step:1")
    return [y["step", 0] for y in mtf.scan(lambda carried, parts: (carried, fn(x)), [], [once], "step")[1]]


def _accumulated(fn: Callable[[mtf.Tensor], list[mtf.Tensor]], x: mtf.Tensor) -> list[mtf.Tensor]:
    count = mtf.zeros(x.mesh, [], tf.int32)
    return mtf.while_loop(lambda n: n < 1, lambda n: [n + 1, *fn(x)], [count], has_accumulators=True)[1:]


def _in_cond(fn: Callable[[mtf.Tensor], list[mtf.Tensor]], x: mtf.Tensor) -> list[mtf.Tensor]:
    return mtf.cond(mtf.reduce_any(x < 9.0), lambda: fn(x), lambda: fn(-x))


@pytest.mark.parametrize("layout", ["", "n:rows"])
@pytest.mark.parametrize("block", [_in_recomputed, _in_custom_gradient, _in_scan, _accumulated, _in_cond])
def test_a_block_returns_what_nothing_in_it_reads(block: Callable[..., list[mtf.Tensor]], layout: str) -> None:
    """The parts of a split along a split dimension, and the value of an assignment."""

    def inside(x: mtf.Tensor) -> list[mtf.Tensor]:
        total = mtf.get_variable(x.mesh, "total", x.shape, initializer=mtf.zeros)
        return [*mtf.split(x, "n", 2), mtf.assign_add(total, x)]

    x = np.arange(4, dtype=np.float32)
    done = interpret(lambda x: block(inside, x), {"x": ("n:4", x)}, "rows:2", layout)
    for found, expected in zip(done.results, [x[:2], x[2:], x], strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(done.variables["total"], x)


def test_variables_are_assigned_once_and_read_as_they_were() -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        v = mtf.get_variable(mesh, "v", [], INPUTS["x"][1].dtype, initializer=np.array(2.0))

        def block(x: mtf.Tensor) -> mtf.Tensor:
            before = mtf.read_variable(v)
            after = mtf.assign_add(v, mtf.ones(mesh, [], before.dtype))
            return mtf.sin(x * before) * after

        y = mtf.recompute_grad(block, x)
        mtf.assign_add(v, mtf.ones(mesh, [], v.dtype) * 10.0)
        return mtf.gradients([mtf.reduce_sum(y)], [x])[0]

    done = interpret(program, INPUTS, "rows:2", "d:rows")
    assert_close(done.results, 2 * 3 * np.cos(2 * INPUTS["x"][1]), terms=FUNCTION_TERMS)
    assert done.variables["v"] == 13.0


def test_printing_is_not_repeated(capfd: pytest.CaptureFixture[str]) -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        y = mtf.recompute_grad(lambda x: mtf.sin(mtf.print_tensor(mtf.tanh(x), [], "once")), x)
        return mtf.gradients([mtf.reduce_sum(y)], [x])[0]

    interpret(program, INPUTS, "rows:2", "d:rows")
    assert capfd.readouterr().err.count("once") == 1


def test_gradients_of_one_weight_in_several_blocks_are_reduced_together(count_collectives: Any) -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        y = two_layers(recompute)(mesh, x, w)
        return mtf.tanh(mtf.gradients([mtf.reduce_sum(mtf.square(y))], [w])[0])

    for recompute in (None, True):  # noqa: B007 - the program reads it
        done = interpret(program, INPUTS, "rows:2;cols:2", "batch:rows")
        assert count_collectives(done.plan) == {"all_reduce": 1}


def test_a_policy_that_names_nothing() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    with mesh.graph:
        x = mtf.placeholder(mesh, [BATCH, D], name="x")
        with pytest.raises(GraphError, match='keeps "tahn", which is no operation of the block; did you mean "tanh"'):
            mtf.recompute_grad(mtf.tanh, x, mtf.RecomputePolicy(names=("tahn",)))


def test_names_in_a_policy_are_a_list() -> None:
    """The letters of a text are no names."""
    with pytest.raises(GraphError, match="RecomputePolicy: names must be a list, each a string, and is 'tanh'"):
        mtf.RecomputePolicy("nothing", "tanh")  # type: ignore[arg-type]


def test_nested_is_no_choice_of_tensors() -> None:
    with pytest.raises(GraphError, match=r'is written RecomputePolicy\("nothing", nested=True\)'):
        mtf.RecomputePolicy("nested")


# Memory. One activation is [rows, width] float32; a layer makes two products and keeps its input.

DEEP = mtf.Dimension("layers", 12)
ROWS, WIDTH, OUT = mtf.Dimension("rows", 4096), mtf.Dimension("width", 64), mtf.Dimension("out", 64)
ACTIVATION = ROWS.size * WIDTH.size * 4


def deep_program(how: str, recompute: Any, layers: mtf.Dimension = DEEP) -> Callable[..., Any]:
    """Twelve layers, as a scan or unrolled, and the sum of the squares of a gradient."""

    def layer(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        for _ in range(2):
            h = mtf.tanh(mtf.einsum([x, w], output_shape=[x.shape[0], OUT]))
            x = mtf.tanh(mtf.einsum([h, w], output_shape=[h.shape[0], WIDTH]))
        return x

    def program(x: mtf.Tensor, w: mtf.Tensor) -> Any:
        if how == "scan":
            (y,), _ = mtf.scan(lambda c, p: ([layer(c[0], p[0])], []), x, w, layers, recompute=recompute)
        else:
            y = x
            for own in mtf.unstack(w, layers):
                y = mtf.recompute_grad(lambda y, own=own: layer(y, own), y, recompute)
        (grad,) = mtf.gradients([mtf.reduce_sum(mtf.square(y))], [x])
        return mtf.reduce_sum(mtf.square(grad))

    return program


SPECS = {
    "x": mtf.TensorSpec([ROWS, WIDTH]),
    "w": mtf.TensorSpec([DEEP, WIDTH, OUT]),
}


def activations(plan: Plan) -> float:
    """The accounting's peak beside what is fed, in activations."""
    peak = peak_memory(plan)
    return (peak.total - peak.feeds - peak.variables) / ACTIVATION


# Per layer a gradient by what enters the first one keeps: with "everything" the 4 results of tanh, with "products" 4
# products, with "nothing" what enters the layer.
KEPT = {
    ("scan", "everything"): 4 * 12,
    ("scan", "products"): 4 * 12,
    ("scan", "nothing"): 12,
    ("unrolled", "everything"): 4 * 12,
    ("unrolled", "products"): 4 * 12,
    ("unrolled", "nothing"): 12,
}
WORKING = 12
"""Beside that, of one layer: what it computes again (4 products, 4 tanh), its weights, and a few gradients."""


@pytest.mark.parametrize(("how", "keep"), KEPT)
def test_the_accounting_is_close_to_theory(how: str, keep: str) -> None:
    kept = KEPT[how, keep]
    assert kept < activations(plan(deep_program(how, keep), SPECS, "cores:1", "")) <= kept + WORKING


def test_the_accounting_of_nested_recomputation() -> None:
    """Square-root scheme: the inputs of 8 segments, and those of the 8 layers of one segment."""
    many = mtf.Dimension("layers", 64)
    specs = {**SPECS, "w": mtf.TensorSpec([many, WIDTH, OUT])}
    flat, nested = (
        activations(plan(deep_program("scan", keep, many), specs, "cores:1", "")) for keep in ("nothing", "nested")
    )
    assert 64 < flat <= 64 + WORKING
    assert 16 < nested <= 16 + WORKING + 4


WORKER = """
import json, os, sys
import numpy as np
import tensorflow as tf
import meshtf as mtf
from meshtf.lowering.emit.function_calls import grappler_off
sys.path[:0] = [{folder!r}, {tree!r}]
from tests.lowering.emitted import emitted_program
import test_recompute_grad as t

def status(key):
    return int(next(l for l in open("/proc/self/status") if l.startswith(key)).split()[1]) * 1024

def needed(how, keep, rows):
    specs = t.specs_of(rows)
    step = mtf.function(t.deep_program(how, keep), mtf.SpmdMeshImpl("cores:1", ""), inputs=specs)
    rng = np.random.default_rng(0)
    x = rng.normal(size=specs["x"].shape.to_integer_list).astype("f")
    w = (rng.normal(size=specs["w"].shape.to_integer_list) / 20).astype("f")
    with grappler_off():
        emitted_program(step._execution.program)._function(asserted=False)
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmRSS")
    step(x=x, w=w)
    return status("VmHWM") - before

rows, ways = int(sys.argv[1]), json.loads(sys.argv[2])
for how, keep in ways:
    child = os.fork()  # each in a process that has computed nothing
    if child == 0:
        # With several threads, whether two operations overlap, and so hold one more activation, changes with each run.
        tf.config.threading.set_inter_op_parallelism_threads(1)
        mtf.virtual_cpus(1)
        needed(how, keep, 8)
        print(needed(how, keep, rows) / (rows * t.WIDTH.size * 4), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, (how, keep)
"""
HIGH_WATER_ROWS = 16384
HIGH_WATER_BEYOND = 4
"""Activations that a process may need beyond the accounting, which leaves out scratch memory of kernels and what the
executor runs early: a product's operands packed anew, and results of the layer that comes next."""
GIVES_BACK = {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1", "MALLOC_MMAP_THRESHOLD_": f"{1 << 16}"}
"""Environment of a process that has what it holds, and no more. Else what was freed is kept, by TensorFlow's pool or,
where the processor is one for which it has none, by malloc: up to 15 activations of these programs. Both settings are
read when a process starts, so it is none that is forked."""


def specs_of(rows: int) -> dict[str, mtf.TensorSpec]:
    return {**SPECS, "x": mtf.TensorSpec([mtf.Dimension("rows", rows), WIDTH])}


def high_waters(*ways: tuple[str, str]) -> list[float]:
    """What a process needs more than before the first step, at most, in activations, for each way of recomputing.

    A first step of any program takes 27 MB (code that is loaded, functions that are made ready), which have nothing to
    do with activations: the same program with few rows is run before.
    """
    program = WORKER.format(folder=str(Path(__file__).parent), tree=str(Path(__file__).parents[2]))
    command = [sys.executable, "-c", program, str(HIGH_WATER_ROWS), json.dumps(ways)]
    own = os.environ | GIVES_BACK
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False, env=own)
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]


def accounted(how: str, keep: str) -> float:
    """The same by the plan's accounting."""
    peak = peak_memory(plan(deep_program(how, keep), specs_of(HIGH_WATER_ROWS), "cores:1", ""))
    return peak.total / (HIGH_WATER_ROWS * WIDTH.size * 4)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_process_needs_what_the_accounting_says() -> None:
    """Recomputation is undone by nobody: not by the executor, that runs early what it can, and not by merging."""
    (recomputed,) = high_waters(("scan", "nothing"))
    theory = accounted("scan", "nothing")
    assert theory < 24
    assert 10 < recomputed < theory + HIGH_WATER_BEYOND


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_other_recomputations_need_what_the_accounting_says() -> None:
    ways = [("scan", "nested"), ("unrolled", "nothing")]
    *recomputed, kept = high_waters(*ways, ("scan", "everything"))
    for way, needed in zip(ways, recomputed, strict=True):
        theory = accounted(*way)
        assert theory < 24
        assert 10 < needed < theory + HIGH_WATER_BEYOND
    assert kept > 45
