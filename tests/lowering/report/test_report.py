"""Reports: as data, as text, and against the collectives of the TensorFlow graph that runs."""

from __future__ import annotations

import collections
import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers import PipelineSchedule
from meshtf.lowering.report._report_text import render
from meshtf.lowering.report.report import Report
from tests.lowering.emitted import core_functions, nodes_in

BATCH, IN, HIDDEN, OUT = (
    mtf.Dimension("batch", 8),
    mtf.Dimension("d_in", 16),
    mtf.Dimension("hidden", 32),
    mtf.Dimension("d_out", 8),
)

NODES = {
    "all_reduce": ["CollectiveReduceV2"],
    "all_gather": ["CollectiveGatherV2"],
    "all_to_all": ["CollectiveAllToAllV2"],
    "reduce_scatter": ["CollectiveAllToAllV2"],  # and a local sum
    "permute": ["CollectiveGatherV2"] * 2,  # one with the core sent to, one with the core heard from
}
"""The nodes that each kind of collective becomes on a mesh of few cores."""


def layers(x: mtf.Tensor, count: int = 1) -> mtf.Tensor:
    for i in range(count):
        with mtf.variable_scope(f"layer_{i:03}"):
            wide = mtf.get_variable(x.mesh, "wide", [IN, HIDDEN])
            narrow = mtf.get_variable(x.mesh, "narrow", [HIDDEN, IN])
            h = mtf.relu(mtf.einsum([x, wide], [BATCH, HIDDEN]))
            x = x + mtf.einsum([h, narrow], [BATCH, IN])
    return x


def train(x: mtf.Tensor) -> mtf.Tensor:
    loss = mtf.reduce_mean(mtf.square(layers(x)))
    mtf.optimize.SgdOptimizer(0.1).minimize(loss)
    return loss


def moved(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.with_layout(mtf.exp(x), "d_in:rows")


def permuted(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.with_layout(mtf.exp(x), "batch:cols+rows")


def scattered(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.with_layout(mtf.reduce_sum(x, reduced_dim=BATCH), "d_in:rows")


def extremes(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.reduce_max(x, reduced_dim=BATCH) + mtf.reduce_min(x, reduced_dim=BATCH)


def step_of(
    fn: Callable[..., object], layout: str, mesh: str = "rows:2;cols:4", *, share_memory: bool = True
) -> mtf.Function:
    mesh_impl = mtf.SpmdMeshImpl(mesh, layout, share_memory=share_memory)
    return mtf.function(fn, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, IN])})


def emitted_collectives(step: mtf.Function) -> collections.Counter[str]:
    """Collective nodes of the traced per-core program, its loops included."""
    (core_function,) = core_functions(step)
    nodes = nodes_in(core_function.graph)
    return collections.Counter(node.op for node in nodes if node.op.startswith("Collective"))


@pytest.mark.parametrize(
    ("fn", "layout"),
    [
        (layers, ""),
        (layers, "batch:rows;hidden:cols"),
        (layers, "d_in:rows;hidden:cols"),
        (train, "batch:rows+cols"),
        (train, "batch:rows;hidden:cols"),
        (moved, "batch:rows"),
        (permuted, "batch:rows+cols"),
        (scattered, "batch:rows"),
        (extremes, "batch:rows"),
    ],
)
def test_every_collective_that_runs_is_in_the_report(fn: Callable[..., object], layout: str) -> None:
    step = step_of(fn, layout, share_memory=False)
    reported = [node for c in step.report().collectives for node in NODES[c.kind]]
    assert emitted_collectives(step) == collections.Counter(reported)


def test_collectives_name_the_operation_the_line_and_the_bytes() -> None:
    def body(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [IN, OUT])
        return mtf.exp(mtf.einsum([x, w], [BATCH, OUT], name="product"))  # this line

    lines, first = inspect.getsourcelines(body)
    (record,) = step_of(body, "batch:rows;d_in:cols").report().collectives
    assert (record.kind, record.operation, record.axes, record.cores) == ("all_reduce", "product", ("cols",), 4)
    assert (record.filename, record.function) == (__file__, "body")
    assert record.line == first + next(i for i, line in enumerate(lines) if "this line" in line)
    assert record.bytes_sent == 2 * (4 * 8 * 4) * 3 // 4
    assert (record.shape, record.layout, record.dtype) == ("batch:8 d_out:8", "batch:8/rows d_out:8", "float32")


def test_a_move_gives_both_layouts() -> None:
    (record,) = step_of(moved, "batch:rows").report().collectives
    assert record.kind == "all_to_all"
    assert (record.layout, record.result_layout) == ("batch:8/rows d_in:16", "batch:8 d_in:16/rows")
    assert "[batch:8/rows d_in:16 -> batch d_in/rows] float32" in str(step_of(moved, "batch:rows").report())


def test_variables_feeds_and_results() -> None:
    report = step_of(layers, "batch:rows;hidden:cols").report()
    wide, _ = report.variables
    assert (wide.name, wide.layout, wide.dtype) == ("layer_000/wide", "d_in:16 hidden:32/cols", "float32")
    assert (wide.bytes_per_core, wide.bytes_whole) == (16 * 8 * 4, 16 * 32 * 4)
    assert [(f.name, f.bytes_per_core) for f in report.feeds] == [("x", 4 * 16 * 4)]
    # A sharded fetch stays in slices until it is handed over.
    assert [(r.layout, r.bytes_per_core) for r in report.results] == [("batch:8/rows d_in:16", 4 * 16 * 4)]


def test_tensors_on_request() -> None:
    report = step_of(layers, "batch:rows;hidden:cols").report()
    by_name = {t.name: t for t in report.tensors}
    assert by_name["layer_000/relu"].layout == "batch:8/rows hidden:32/cols"
    assert by_name["layer_000/relu"].bytes_per_core == 4 * 8 * 4
    assert "layer_000/relu" not in report.text()
    assert "[batch:8/rows hidden:32/cols]" in report.text(tensors=True)
    assert "tensors" not in report.to_dict(tensors=False)


def test_as_data() -> None:
    report = step_of(train, "batch:rows;hidden:cols").report()
    data = report.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["program"] == "train"
    assert data["mesh"] == [["rows", 2], ["cols", 4]]
    assert data["layout"] == "batch:rows;hidden:cols"
    assert data["bytes_sent_per_core"] == sum(c["bytes_sent"] for c in data["collectives"])
    assert data["bytes_sent_per_core"] == sum(t["bytes_sent"] for t in data["traffic"])
    assert sum(t["count"] for t in data["traffic"]) == len(data["collectives"])
    assert data["memory"]["peak"] >= data["memory"]["variables"] + data["memory"]["feeds"]


def test_text_gives_the_totals_first() -> None:
    lines = str(step_of(layers, "batch:rows;hidden:cols").report()).splitlines()
    assert lines[0] == 'program "layers" on 8 cores, mesh [rows:2 cols:4]'
    totals = dict(line.strip().split("  ", 1) for line in lines[1:6])
    assert totals["layout"].strip() == "batch:rows;hidden:cols"
    assert totals["variables"].strip() == "1.0 KiB per core, 4.0 KiB in all"
    assert totals["communication"].strip() == "384 B sent per core, in 1 collective"
    assert any(line.split() == ["all_reduce", "cols", "1", "384", "B"] for line in lines)


def test_text_groups_identical_collectives_of_many_layers() -> None:
    step = mtf.function(
        lambda x: layers(x, count=12),
        mtf.SpmdMeshImpl("rows:2;cols:4", "batch:rows;hidden:cols"),
        inputs={"x": mtf.TensorSpec([BATCH, IN])},
    )
    report = step.report()
    assert len(report.collectives) == 12
    rows = [line for line in str(report).splitlines() if "layer*/einsum" in line]
    assert [row.split()[:5] for row in rows] == [["4.5", "KiB", "12", "all_reduce", "cols"]]


def test_text_fits_the_width_and_ends_no_line_with_blanks() -> None:
    report = step_of(train, "batch:rows;hidden:cols").report()
    for width in (80, 100, 120):
        text = report.text(tensors=True, width=width)
        assert max(map(len, text.splitlines())) <= width
        assert all(line == line.rstrip() for line in text.splitlines())


def test_text_shortens_files_to_the_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = step_of(scattered, "batch:rows").report()
    here = Path(__file__)
    monkeypatch.chdir(here.parent)
    assert f"  {here.name}:" in str(report)
    monkeypatch.chdir(tmp_path)
    assert f"  {here.parent.name}/{here.name}:" in str(report)


def test_text_says_that_there_is_no_communication() -> None:
    text = str(step_of(layers, "").report())
    assert "communication     none" in text
    assert "every collective" not in text


def test_text_shows_repeated_work() -> None:
    report = step_of(layers, "hidden:cols").report()
    assert report.repeated_flops_per_core == report.flops_per_core
    row = next(line for line in str(report).splitlines() if "2 cores" in line)
    assert row.split()[2:5] == ["2", "cores", "rows"]
    assert "(100%) of it repeated on other cores" in str(report)


def test_a_parameter_layout_of_its_own_is_shown() -> None:
    mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:4", "batch:rows", parameter_layout="d_in:rows")
    step = mtf.function(layers, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, IN])})
    assert step.report().parameter_layout == "d_in:rows"
    assert "parameter layout  d_in:rows" in str(step.report())


def test_gathers_for_want_of_a_way_are_listed_with_why_there_is_none() -> None:
    def report_of(fn: Callable[[mtf.Tensor], mtf.Tensor], more: str = "") -> Report:
        mesh_impl = mtf.PlanMeshImpl("rows:2;cols:4", f"d_in:cols{more}")
        inputs = {"x": mtf.TensorSpec("batch:1 d_in:12")}  # whole on every core, as what is fed is
        return mtf.function(lambda x: fn(mtf.tanh(x)), mesh_impl, inputs=inputs).report()

    for fn, reason in (
        (lambda x: mtf.argsort(x, "d_in"), "sorting needs all elements of a dimension (d_in)"),
        (
            lambda x: mtf.reshape(x, "few:6 many:2"),
            "slices of [batch:1 d_in:12/cols] are no slices of [few:6 many:2/rows]",
        ),
        (lambda x: mtf.unstack(x, "d_in")[0], "each element of d_in is a result, and all cores work on each result"),
    ):
        report = report_of(fn, ";many:rows" if "many" in reason else "")
        (record,) = report.gathers_for_want
        assert (record.kind, record.why) == ("all_gather", reason)
        assert "gathered for want of a way to work on slices" in str(report)
    for fn, sends in ((mtf.roll, True), (lambda x, n, dim: mtf.shift(x, n, dim, wrap=False), False)):
        found = mtf.function(lambda x, fn=fn: fn(mtf.tanh(x), 1, "n"), mtf.PlanMeshImpl("cols:4", "n:cols"),
                             inputs={"x": mtf.TensorSpec("n:10")}).report()  # fmt: skip
        reasons = [r.why for r in found.gathers_for_want]
        assert reasons == ["slices that do not divide are worked on whole here (n)"] * sends
    called_for = report_of(mtf.replicate)
    assert called_for.collectives
    assert not called_for.gathers_for_want  # the layout says so
    assert "for want" not in str(called_for)


def test_a_lowering_prints_the_report_of_its_assignments(capsys: pytest.CaptureFixture[str]) -> None:
    graph = mtf.Graph("by_hand")
    mesh = mtf.Mesh(graph)
    with graph:
        x = mtf.placeholder(mesh, [BATCH, IN], tf.float32, "x")
        total = mtf.reduce_sum(x)
        mtf.assign_add(mtf.get_variable(mesh, "total", []), total)
    lowering = mtf.Lowering(graph, {mesh: mtf.SpmdMeshImpl("rows:2", "batch:rows")})
    print(lowering)
    printed = capsys.readouterr().out
    assert 'program "by_hand" on 2 cores' in printed
    assert "all_reduce" in printed
    assert [r.name for r in lowering.report([total]).results] == ["reduce_sum"]


def test_a_lowering_that_assigns_nothing_says_how_to_ask() -> None:
    graph = mtf.Graph("by_hand")
    mesh = mtf.Mesh(graph)
    with graph:
        mtf.reduce_sum(mtf.ones(mesh, [BATCH, IN]))
    text = str(mtf.Lowering(graph, {mesh: mtf.SpmdMeshImpl("rows:2", "batch:rows")}))
    assert "lowering.report([tensor, ...])" in text


def test_report_is_frozen() -> None:
    report = step_of(layers, "").report()
    assert isinstance(report, Report)
    with pytest.raises(AttributeError):
        report.program = "other"  # type: ignore[misc]
    assert str(report) == render(report, tensors=False, width=120)


def pipelined(schedule: PipelineSchedule, layout: str = "stage:stages;batch:data") -> mtf.Function:
    """Two layers a stage and round, and an update, on paper."""
    microbatches = mtf.Dimension("batch", 4 * schedule.num_microbatches)

    def layer(xs: list[mtf.Tensor], _: Sequence[mtf.Tensor]) -> list[mtf.Tensor]:
        return [mtf.layers.dense(xs[0], [IN], [IN], activation=mtf.tanh)]

    def train_step(x: mtf.Tensor) -> mtf.Tensor:
        depth = mtf.Dimension("layers", 2 * schedule.num_stages * schedule.num_rounds)
        with mtf.variable_scope("decoder"):
            (y,) = mtf.layers.pipeline(layer, x, depth, schedule, recompute="nothing")  # this line
        loss = mtf.reduce_mean(mtf.square(y))
        mtf.optimize.SgdOptimizer(0.1).minimize(loss)
        return loss

    mesh_impl = mtf.PlanMeshImpl(f"stages:{schedule.num_stages};data:2", layout)
    return mtf.function(train_step, mesh_impl, inputs={"x": mtf.TensorSpec([microbatches, IN])})


@pytest.mark.parametrize(
    ("stages", "microbatches", "rounds"), [(1, 3, 1), (2, 1, 1), (3, 7, 1), (4, 32, 1), (2, 4, 3), (4, 8, 2)]
)
def test_the_bubble_of_a_pipeline_is_that_of_the_papers(stages: int, microbatches: int, rounds: int) -> None:
    """(K-1) / (M+K-1); and of a circular schedule, whose steps are 1/R as long, (K-1) / (MR+K-1)."""
    (found,) = pipelined(PipelineSchedule(stages, microbatches, rounds)).report().pipelines
    assert found.bubble == (stages - 1) / (microbatches * rounds + stages - 1)
    assert (found.stages, found.microbatches, found.rounds) == (stages, microbatches, rounds)
    assert (found.steps, found.times) == (microbatches * rounds + stages - 1, 2)
    micro_batch = 4 // 2 * IN.size * 4
    assert found.bytes_per_step == (micro_batch if stages > 1 else 0)
    assert (found.axes, found.operation) == (("stages",) * (stages > 1), "decoder/pipeline/steps")


def test_text_and_data_of_pipelines() -> None:
    report = pipelined(PipelineSchedule(4, 8)).report()
    lines = str(report).splitlines()
    start = lines.index("pipelines; the bubble is the share of stage-steps that compute nothing useful")
    titles = "bubble  stages  micro-batches  rounds  steps  times  sent a step  mesh axes  operation"
    assert lines[start + 1].strip() == titles
    source, first = inspect.getsourcelines(pipelined)
    line = first + next(i for i, text in enumerate(source) if "this line" in text)
    assert lines[start + 2].endswith(f"test_report.py:{line} in train_step")
    assert " ".join(lines[start + 3].split()) == "27.3% 4 8 1 11 2 128 B stages decoder/pipeline/steps"
    assert lines[start + 4] == ""
    title = "activations kept for the backward pass of pipelines, per core: of all steps; in a stage, of one step"
    kept = lines.index(title)
    assert lines[kept + 1].strip() == "all steps  in a stage  operation"
    assert " ".join(lines[kept + 2].split()) == "1.4 KiB 512 B decoder/pipeline/steps"
    (data,) = json.loads(json.dumps(report.to_dict()))["pipelines"]
    assert (data["bubble"], data["axes"], data["line"]) == (3 / 11, ["stages"], line)
    micro_batch = 4 // 2 * IN.size * 4
    assert data["bytes_kept_in_stage"] == 2 * 2 * micro_batch  # of two layers, what enters each and what leaves it
    assert 11 * micro_batch < data["bytes_kept"] < 11 * (micro_batch + 14)  # from the stage before


def test_a_program_without_pipelines_says_nothing_of_them() -> None:
    report = step_of(train, "batch:rows;hidden:cols").report()
    assert report.pipelines == ()
    assert "pipeline" not in str(report)


def test_a_reshape_names_the_users_dimensions() -> None:
    def body(x: mtf.Tensor) -> mtf.Tensor:
        heads, key = mtf.Dimension("heads", 4), mtf.Dimension("key", 4)
        return mtf.exp(mtf.replace_dimensions(mtf.exp(x), IN, [heads, key]))

    (record,) = step_of(body, "batch:rows;d_in:cols").report().collectives
    assert (record.kind, record.layout) == ("all_gather", "batch:8/rows d_in:16/cols")
