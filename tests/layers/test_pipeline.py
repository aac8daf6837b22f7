"""A pipeline is the plain stack of layers: values, gradients, updates, random bits, files. And what it costs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.layers import PipelineSchedule, pipeline
from meshtf.layers.pipeline import pipeline_with_sums
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret, plan

BATCH, D_MODEL, D_FF = mtf.Dimension("batch", 8), mtf.Dimension("d_model", 6), mtf.Dimension("d_ff", 8)
LAYERS = mtf.Dimension("layers", 4)
X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
SCALE = np.linspace(0.5, 1.5, 8).astype(np.float32)
FEEDS = {"x": (mtf.Shape([BATCH, D_MODEL]), X), "scale": (mtf.Shape([BATCH]), SCALE)}
SPECS = {name: mtf.TensorSpec(shape) for name, (shape, _) in FEEDS.items()}
TERMS = (2 * LAYERS.size * (2 * D_MODEL.size + D_FF.size + 4 * FUNCTION_TERMS), BATCH.size, 4 * FUNCTION_TERMS)
"""Roundings of one step: through norms and products of all layers and back, a sum over the batch, the update."""


def layer(x: mtf.Tensor, scale: mtf.Tensor) -> mtf.Tensor:
    h = mtf.layers.dense(mtf.layers.layer_norm(x, D_MODEL), [D_FF], activation=mtf.tanh)
    h = mtf.dropout(h, True, rate=0.3)
    return x + mtf.layers.dense(h, [D_MODEL], [D_FF], name="out") * scale


def stacked(
    x: mtf.Tensor,
    scale: mtf.Tensor,
    schedule: PipelineSchedule | None,
    recompute: str | None,
    layers: mtf.Dimension = LAYERS,
) -> mtf.Tensor:
    with mtf.variable_scope("decoder"):
        if schedule is None:
            return mtf.layer_stack(lambda xs, _: ([layer(xs[0], scale)], []), x, layers, recompute=recompute)[0][0]
        (y,) = pipeline(lambda xs, beside: [layer(xs[0], beside[0])], x, layers, schedule, [scale], recompute=recompute)
        return y


def program(
    schedule: PipelineSchedule | None, recompute: str | None = None, layers: mtf.Dimension = LAYERS
) -> Callable[..., dict[str, mtf.Tensor]]:
    def step(x: mtf.Tensor, scale: mtf.Tensor) -> dict[str, mtf.Tensor]:
        y = stacked(x, scale, schedule, recompute, layers)
        loss = mtf.reduce_mean(mtf.square(y))
        variables = loss.graph.trainable_variables
        values = [v.value for v in variables]
        *grads, of_x, of_scale = mtf.gradients(loss, [*values, x, scale])
        mtf.optimize.AdamWOptimizer(1e-2, epsilon=1e-3).apply_grads(grads, variables)
        return {"loss": loss, "y": y, "of_x": of_x, "of_scale": of_scale}

    return step


@pytest.fixture(scope="module")
def plain() -> Any:
    return interpret(program(None), FEEDS, "all:1")


@pytest.mark.parametrize(
    ("schedule", "recompute", "mesh_shape", "layout"),
    [
        pytest.param(PipelineSchedule(1, 2), None, "data:2", "batch:data", marks=pytest.mark.long),
        pytest.param(PipelineSchedule(2, 1), "products", "stages:2", "stage:stages", marks=pytest.mark.long),
        pytest.param(PipelineSchedule(4, 2), "nothing", "stages:2", "stage:stages", marks=pytest.mark.long),
        (PipelineSchedule(2, 4, 2), "nested", "stages:2", "stage:stages"),
        (PipelineSchedule(2, 2), None, "data:2;stages:2;model:2", "batch:data;stage:stages;d_ff:model"),
        pytest.param(
            PipelineSchedule(2, 2, 2), "nothing", "data:2;stages:2", "batch:data;stage:stages", marks=pytest.mark.long
        ),
    ],
)
def test_a_pipeline_is_the_plain_stack(
    plain: Any, schedule: PipelineSchedule, recompute: str | None, mesh_shape: str, layout: str
) -> None:
    """Values, gradients, and every variable and slot after an update; dropout is the whole batch's."""
    check_alike(interpret(program(schedule, recompute), FEEDS, mesh_shape, layout), plain, TERMS)


def check_alike(found: Any, plain: Any, terms: tuple[int, ...]) -> None:
    for name, value in plain.results.items():
        assert_close(found.results[name], value, terms=terms, what=name)
    assert found.variables.keys() == plain.variables.keys()
    for name, value in plain.variables.items():
        own = found.variables[name].reshape(value.shape)
        assert_close(own, value, terms=terms, steps=1, what=name)


@pytest.mark.parametrize(
    ("num_layers", "schedule", "recompute", "mesh_shape", "layout"),
    [
        pytest.param(
            10, PipelineSchedule(4, 2), "nothing", "stages:4", "stage:stages", marks=pytest.mark.long
        ),  # 3, 3, 3 and 1
        pytest.param(
            10, PipelineSchedule(4, 4, 2), "nested", "stages:2", "stage:stages", marks=pytest.mark.long
        ),  # 2, 2, 1 and none, twice
        (3, PipelineSchedule(2, 2), "products", "stages:2;data:2", "stage:stages;batch:data"),
        pytest.param(
            7, PipelineSchedule(2, 4), "products", "stages:2;data:2", "stage:stages;batch:data", marks=pytest.mark.long
        ),
        pytest.param(5, PipelineSchedule(3, 1), None, "all:1", "", marks=pytest.mark.long),
    ],
)
def test_stages_that_do_not_divide_the_layers(
    num_layers: int, schedule: PipelineSchedule, recompute: str | None, mesh_shape: str, layout: str
) -> None:
    layers, terms = mtf.Dimension("layers", num_layers), (num_layers * TERMS[0] // LAYERS.size, *TERMS[1:])
    plain = interpret(program(None, layers=layers), FEEDS, "all:1")
    check_alike(interpret(program(schedule, recompute, layers), FEEDS, mesh_shape, layout), plain, terms)


def test_a_place_that_is_left_over_changes_nothing() -> None:
    """Three layers on two stages of two. Whatever weights the fourth place holds, it would add one, and negate."""

    def step(x: mtf.Tensor) -> list[mtf.Tensor | None]:
        def one(xs: list[mtf.Tensor], _: Sequence[mtf.Tensor]) -> list[mtf.Tensor]:
            y = xs[0] * mtf.get_variable(x.mesh, "w", [D_MODEL], initializer=mtf.ones) + 1.0
            return [y, mtf.logical_not(xs[1])]

        y, is_positive = pipeline(one, [x, x > 0.0], mtf.Dimension("layers", 3), PipelineSchedule(2, 2))
        return [y, is_positive, *mtf.gradients(mtf.reduce_sum(mtf.square(y)), [x])]

    y, is_positive, of_x = interpret(step, {"x": FEEDS["x"]}, "stages:2", "stage:stages").results
    assert_close(y, X + 3.0, terms=3)
    np.testing.assert_array_equal(is_positive, X <= 0.0)
    assert_close(of_x, 2.0 * (X + 3.0), terms=6)


@pytest.mark.long
def test_the_losses_of_twenty_steps_on_devices() -> None:
    def losses(schedule: PipelineSchedule | None, mesh_shape: str, layout: str) -> list[float]:
        mesh_impl = mtf.SpmdMeshImpl(mesh_shape, layout)
        step = mtf.function(program(schedule, "nothing"), mesh_impl, inputs=SPECS, name="step")
        return [float(step(x=X, scale=SCALE)["loss"]) for _ in range(20)]

    expected = losses(None, "all:1", "")
    assert expected[-1] < 0.8 * expected[0]
    assert_close(
        losses(PipelineSchedule(2, 4), "stages:2", "stage:stages"),
        expected,
        terms=TERMS,
        steps=np.arange(20),
        dtype="float32",
    )


def test_a_pipeline_inside_a_micro_batch_has_the_bits_of_the_whole_batch(plain: Any) -> None:
    def step(x: mtf.Tensor, scale: mtf.Tensor) -> mtf.Tensor:
        def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
            y = stacked(features["x"], features["scale"], PipelineSchedule(2, 2), None)
            return {"loss": mtf.reduce_mean(mtf.square(y)) / 2.0, "y": y}

        return mtf.serialize_training_step({"x": x, "scale": scale}, model, BATCH, 2)[1]["y"]

    found = interpret(step, FEEDS, "stages:2", "stage:stages").results
    assert_close(found, plain.results["y"], terms=TERMS)


def by_saved_name(function: mtf.Function) -> dict[str, np.ndarray]:
    saved = {}
    for name in function.variables:
        slices = function.variables.slices(name)
        whole, counts = slices.numpy(), slices.stacked_dims.ndims
        saved.update(zip(slices.saved_names, whole.reshape(-1, *whole.shape[counts:]), strict=True))
    return saved


IN_STAGES = [
    (PipelineSchedule(4, 2), "stages:4", "stage:stages"),
    (PipelineSchedule(3, 2), "stages:3", "stage:stages"),
    (PipelineSchedule(2, 2, 2), "stages:2", "stage:stages"),
    (PipelineSchedule(1, 2), "all:1", ""),
]


@pytest.mark.parametrize("cases", [IN_STAGES[1:3], pytest.param(IN_STAGES, marks=pytest.mark.long)], ids=len)
def test_files_know_no_stages(tmp_path: Any, cases: list[tuple[PipelineSchedule, str, str]]) -> None:
    """Names in files, initial values, and checkpoints that move between the plain stack and stages."""
    from meshtf.checkpoint import CheckpointFolder, restore

    def made(schedule: PipelineSchedule | None, mesh_shape: str, layout: str) -> mtf.Function:
        mesh_impl = mtf.SpmdMeshImpl(mesh_shape, layout)
        function = mtf.function(program(schedule), mesh_impl, inputs=SPECS, seed=3, name="step")
        function.initialize()
        return function

    source = made(None, "all:1", "")
    initial = by_saved_name(source)
    assert "decoder/layer_003/dense/kernel" in initial
    for name in source.variables:
        source.variables[name] = source.variables[name] + 1
    trained, folder = by_saved_name(source), CheckpointFolder(tmp_path)
    folder.save(1, source.variables, {})
    for number, case in enumerate(cases, start=1):
        other = made(*case)
        found = by_saved_name(other)
        assert sorted(found) == sorted(initial)
        for name, value in initial.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)
        restore(folder.open(number), [other])
        for name, value in by_saved_name(other).items():
            np.testing.assert_array_equal(value, trained[name], err_msg=name)
        folder.save(number + 1, other.variables, {})


def report(
    schedule: PipelineSchedule,
    batch: int,
    num_layers: int,
    layout: str = "stage:stages",
    *,
    reads_beside: bool = False,
    recompute: str = "nothing",
    dtype: tf.DType = tf.float32,
) -> mtf.Function:
    """Gradients of a pipeline on paper, by default with only what enters a stage kept."""

    def gradients(x: mtf.Tensor) -> list[mtf.Tensor | None]:
        layers = mtf.Dimension("layers", num_layers)
        beside = [mtf.tanh(x)] if reads_beside else []
        (y,) = pipeline(
            lambda xs, own: [layer(xs[0], own[0] if own else xs[0])], x, layers, schedule, beside, recompute=recompute
        )
        loss = mtf.reduce_mean(mtf.square(y))
        return mtf.gradients(loss, [*(v.value for v in loss.graph.trainable_variables), x])

    mesh_impl = mtf.PlanMeshImpl(f"stages:{schedule.num_stages};data:2", layout)
    inputs = {"x": mtf.TensorSpec([("batch", batch), D_MODEL], dtype)}
    variable_dtype = mtf.VariableDType(tf.float32, activation_dtype=dtype)
    return mtf.function(gradients, mesh_impl, inputs=inputs, variable_dtype=variable_dtype)


@pytest.mark.parametrize(
    ("stages", "rounds", "reads_beside", "num_layers"),
    [(4, 1, False, 8), (4, 2, False, 8), (2, 1, False, 8), (4, 1, True, 8), (4, 1, False, 10)],
)
def test_one_permute_a_step_and_one_activation_a_boundary(
    stages: int, rounds: int, reads_beside: bool, num_layers: int
) -> None:
    """Between stages nothing else moves but the whole batch, once as it leaves and once as its gradient does.

    So does the gradient of what stands beside.
    """
    schedule, batch = PipelineSchedule(stages, 8, rounds), 64
    planned = report(schedule, batch, num_layers, "stage:stages;batch:data", reads_beside=reads_beside)
    found = planned.report().collectives
    between = [c for c in found if "stages" in c.axes]
    permutes = [c for c in between if c.kind == "permute"]
    micro_batch = batch // 8 // 2 * D_MODEL.size * 4
    assert [c.times for c in permutes] == [schedule.num_steps] * 2  # forward and backward
    assert [c.bytes_sent for c in permutes] == [schedule.num_steps * micro_batch] * 2
    whole = batch // 2 * D_MODEL.size * 4
    others = [c for c in between if c.kind != "permute"]
    forth = 2 * whole * (stages - 1) // stages
    back = forth * (1 + reads_beside)
    assert [(c.kind, c.times, c.bytes_sent) for c in others] == [("all_reduce", 1, forth), ("all_reduce", 1, back)]
    assert all(c.times == 1 for c in found if c.axes == ("data",))  # gradients, summed over micro-batches before


def test_gradients_of_norms_in_bfloat16_are_summed_over_cores_once() -> None:
    """A norm computes in float32, and its scale's gradient is cast to bfloat16."""
    found = report(PipelineSchedule(4, 8), 64, 8, "stage:stages;batch:data", dtype=tf.bfloat16).report().collectives
    assert [c.times for c in found if c.axes == ("data",)] == [1]  # one bucket


def test_103_layers_in_8_stages() -> None:
    """Seven stages have 13 layers and one 12; each core holds 13, and computes 13 in a step."""
    uneven, even = (report(PipelineSchedule(8, 16), 64, n).report() for n in (103, 104))
    assert uneven.memory.variables == even.memory.variables
    assert even.memory.peak <= uneven.memory.peak < 1.02 * even.memory.peak
    (dimension,) = uneven.padding
    assert (dimension.dimension, dimension.size, dimension.share) == ("stage", 103, 1 / 104)


def test_activations_need_the_memory_that_gpipe_says() -> None:
    """Of a batch N: a N + (b + c L/K) N/M bytes on each core, the same for all numbers of stages, layers, parts.

    Of a, one part is of the batch as it enters and its gradient, the other of all steps, also those of waiting. Stages
    are of so many layers that the peak is in one of them.
    """
    batch = 4096
    cases = [*itertools.product((4,), (4, 16, 64), (64, 128)), (8, 64, 128), (8, 16, 128)]
    rows, peaks = [], []
    for stages, microbatches, num_layers in cases:
        memory = report(PipelineSchedule(stages, microbatches), batch, num_layers).report().memory
        peaks.append((memory.peak - memory.variables - memory.feeds) / (batch * D_MODEL.size * 4))
        steps = (microbatches + stages - 1) / microbatches
        rows.append([1.0, steps, 1 / microbatches, num_layers / stages / microbatches])
    (batches, of_steps, parts, layers), *_ = np.linalg.lstsq(np.array(rows), np.array(peaks), rcond=None)
    np.testing.assert_allclose(np.array(rows) @ [batches, of_steps, parts, layers], peaks, rtol=0.1)
    assert batches + of_steps < 6.0
    assert 3.0 < layers < 12.0
    without_parts = report(PipelineSchedule(4, 1), batch, 64).report().memory.peak
    with_parts = report(PipelineSchedule(4, 64), batch, 64).report().memory.peak
    assert with_parts < without_parts / 10


def test_the_report_says_what_is_kept_for_the_backward_pass() -> None:
    """Of all steps what comes from the stage before; in a stage, of each layer as much.

    That is GPipe's O(N + L/K N/M), and falls as the number M of micro-batches grows.
    """
    batch, of_layers, sums = 4096, set(), []
    for stages, microbatches, num_layers in [
        (4, 1, 16),
        (4, 4, 16),
        (4, 16, 16),
        (4, 64, 16),
        (4, 64, 64),
        (8, 64, 64),
    ]:
        schedule = PipelineSchedule(stages, microbatches)
        found = report(schedule, batch, num_layers).report()
        (record,) = found.pipelines
        assert record.bytes_kept is not None
        assert record.bytes_kept_in_stage is not None
        micro_batch, tables = batch // microbatches, 3 * 4 + 1
        assert record.bytes_kept == schedule.num_steps * (micro_batch * D_MODEL.size * 4 + tables)
        of_layers.add(record.bytes_kept_in_stage / (num_layers // stages * micro_batch))
        sums.append(record.bytes_kept + record.bytes_kept_in_stage)
        assert sums[-1] <= found.memory.activations
    (of_layer,) = of_layers  # bytes of an example
    assert 3 * D_MODEL.size * 4 < of_layer < 12 * D_MODEL.size * 4
    assert sums[0] > 2 * sums[1] > 2 * sums[2] > 2 * sums[3]


@pytest.mark.parametrize("rounds", [1, 2])
def test_the_policy_says_what_is_kept(rounds: int) -> None:
    """With everything kept a stage is not computed again; nested, only what enters its layers is kept of a stage."""
    (nothing,) = report(PipelineSchedule(4, 8, rounds), 64, 16).report().pipelines
    (nested,) = report(PipelineSchedule(4, 8, rounds), 64, 16, recompute="nested").report().pipelines
    (everything,) = report(PipelineSchedule(4, 8, rounds), 64, 16, recompute="everything").report().pipelines
    entering_layer = 64 // 8 * D_MODEL.size * 4
    assert nested.bytes_kept_in_stage == 16 // 4 // rounds * entering_layer
    assert nested.bytes_kept == nothing.bytes_kept
    assert everything.bytes_kept_in_stage == 0
    of_layers = PipelineSchedule(4, 8, rounds).num_steps * nothing.bytes_kept_in_stage
    assert of_layers <= everything.bytes_kept < of_layers + nothing.bytes_kept


def test_what_waits_computes_on_finite_numbers() -> None:
    """Zeros would be infinite here, and so would the gradient of every weight."""

    def step(x: mtf.Tensor) -> list[mtf.Tensor | None]:
        def one(xs: list[mtf.Tensor], _: Sequence[mtf.Tensor]) -> list[mtf.Tensor]:
            (x,) = xs
            w = mtf.get_variable(x.mesh, "w", [D_MODEL], initializer=mtf.ones)
            return [x / mtf.sqrt(mtf.reduce_sum(mtf.square(x), reduced_dim=D_MODEL)) * w]

        (y,) = pipeline(one, x, LAYERS, PipelineSchedule(4, 2))
        loss = mtf.reduce_sum(mtf.square(y - 1.0))
        return [y, *mtf.gradients(loss, [v.value for v in loss.graph.trainable_variables])]

    found = interpret(step, {"x": FEEDS["x"]}, "stages:4", "stage:stages").results
    assert all(np.all(np.isfinite(value)) for value in found)


def test_what_waits_may_compute_what_it_likes() -> None:
    """A stage that waits has one micro-batch's input beside another's signs, and takes roots of negative numbers.

    Results, sums over the batch and gradients are those of the plain stack nevertheless.
    """
    signs = np.where(np.arange(8) % 2, -1.0, 1.0).astype(np.float32)
    feeds = {"x": (FEEDS["x"][0], (np.abs(X) + 0.5) * signs[:, None]), "scale": (FEEDS["scale"][0], signs)}

    def one(xs: list[mtf.Tensor], beside: Sequence[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        (x,), (sign,) = xs, beside
        w = mtf.get_variable(x.mesh, "w", [D_MODEL], initializer=mtf.ones)
        root = mtf.sqrt(x * sign) * w
        total = mtf.reduce_sum(root, output_shape=[d for d in root.shape if d.name in ("stage", "d_model")])
        count = mtf.reduce_sum(mtf.ones(x.mesh, [x.shape.get_dim_by_name("batch")], tf.int32))
        return [root * sign], [total, count]

    def step(schedule: PipelineSchedule | None) -> Callable[..., list[mtf.Tensor | None]]:
        def taken(x: mtf.Tensor, scale: mtf.Tensor) -> list[mtf.Tensor | None]:
            if schedule is None:
                (y,), (total, count) = mtf.layer_stack(lambda xs, _: one(xs, [scale]), x, LAYERS)
            else:
                (y,), (total, count) = pipeline_with_sums(one, x, LAYERS, schedule, [scale])
            loss = mtf.reduce_sum(mtf.square(y)) + mtf.reduce_mean(total)
            return [y, total, count, *mtf.gradients(loss, [x, scale, *(v.value for v in x.graph.trainable_variables)])]

        return taken

    plain = interpret(step(None), feeds, "all:1").results
    found = interpret(step(PipelineSchedule(4, 2)), feeds, "stages:2;data:2", "stage:stages;batch:data").results
    for value, expected in zip(found, plain, strict=True):
        assert np.all(np.isfinite(expected))
        assert_close(value.reshape(expected.shape), expected, terms=(2 * LAYERS.size * 2 * FUNCTION_TERMS, BATCH.size))


TWO_STAGES = PipelineSchedule(2, 2)


def built(fn: Any, *, schedule: PipelineSchedule = TWO_STAGES, layers: int = 4, batch: int = 8) -> None:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        return pipeline(fn, x, mtf.Dimension("layers", layers), schedule)[0]

    plan(step, {"x": mtf.TensorSpec([("batch", batch), D_MODEL])}, "all:1")


def same(xs: list[mtf.Tensor], _: list[mtf.Tensor]) -> list[mtf.Tensor]:
    return xs


def test_sizes_that_do_not_fit_are_refused_with_those_that_do() -> None:
    with pytest.raises(ShapeError, match=r'"layers:9" does not divide into 2 rounds; these fit: \[1, 3, 9\]'):
        built(same, schedule=PipelineSchedule(4, 4, 2), layers=9)
    with pytest.raises(
        ShapeError, match=r'"layers:3" in 4 stages: 3 layers would leave stages .*; use at most 3 stages'
    ):
        built(same, schedule=PipelineSchedule(4, 2), layers=3)
    with pytest.raises(ShapeError, match=r"3 layers in each of 2 rounds would leave stages without work"):
        built(same, schedule=PipelineSchedule(4, 4, 2), layers=6)
    with pytest.raises(ShapeError, match=r'"batch:6" does not divide into 4 micro-batches; these fit: \[1, 2, 3, 6\]'):
        built(same, schedule=PipelineSchedule(2, 4), batch=6)


def test_tensors_that_do_not_fit_are_refused() -> None:
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    with graph:
        for shape, message in (
            ([D_MODEL], 'has no dimension "batch" to cut into micro-batches'),
            ([BATCH, ("stage", 2)], 'has dimension "stage", a name that pipelines use; rename it'),
        ):
            with pytest.raises(ShapeError, match=re.escape(message)):
                pipeline(same, mtf.zeros(mesh, shape), LAYERS, PipelineSchedule(2, 2))
        x, message = mtf.zeros(mesh, [BATCH, D_MODEL]), r'\[d_model:6\] must begin with "layers:'
        with pytest.raises(ShapeError, match=message):
            pipeline_with_sums(lambda xs, _: (xs, []), x, LAYERS, TWO_STAGES, sliced=[mtf.zeros(mesh, [D_MODEL])])
        with pytest.raises(ShapeError, match="at least one carried value"):
            pipeline(same, [], LAYERS, PipelineSchedule(2, 2))
        with pytest.raises(ShapeError, match="a layer of a pipeline must return a list of tensors, and returned None"):
            pipeline(lambda xs, _: None, x, LAYERS, TWO_STAGES)  # type: ignore[arg-type,return-value]
        with pytest.raises(ShapeError, match=r"must return \(carried, sums\), and returned None"):
            pipeline_with_sums(lambda xs, _: None, x, LAYERS, TWO_STAGES)  # type: ignore[arg-type,return-value]
        with pytest.raises(ShapeError, match=r"needs a mtf.layers.PipelineSchedule, and was given None"):
            pipeline(same, x, LAYERS, None)  # type: ignore[arg-type]


def test_a_sum_that_has_the_batch_is_refused() -> None:
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    message = r'a sum over the micro-batch still has dimension "batch": \[stage:2 batch:4 d_model:6\]'
    with graph, pytest.raises(ShapeError, match=message):
        pipeline_with_sums(lambda xs, _: (xs, xs), mtf.zeros(mesh, [BATCH, D_MODEL]), LAYERS, TWO_STAGES)


def test_a_layer_that_changes_a_shape_is_refused() -> None:
    def grows(xs: list[mtf.Tensor], _: list[mtf.Tensor]) -> list[mtf.Tensor]:
        return [mtf.layers.dense(xs[0], [D_FF])]

    with pytest.raises(
        ShapeError, match=r"changes the shape .*: \[stage:2 batch:4 d_model:6\] becomes \[stage:2 batch:4 d_ff:8\]"
    ):
        built(grows)


def test_a_layer_must_not_act_on_what_is_not_useful() -> None:
    def checks(xs: list[mtf.Tensor], _: list[mtf.Tensor]) -> list[mtf.Tensor]:
        return [mtf.check_finite(xs[0])]

    def nests(xs: list[mtf.Tensor], _: list[mtf.Tensor]) -> list[mtf.Tensor]:
        x = mtf.rename_dimension(xs[0], "stage", "outer")
        return pipeline(same, x, LAYERS, PipelineSchedule(2, 2))

    with pytest.raises(GraphError, match=r"check_finite.* inside layers that are computed together"):
        built(checks)
    with pytest.raises(GraphError, match="cannot hold another pipeline"):
        built(nests)
