"""Summaries reach TensorBoard when a writer is there, and cost nothing when none is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf

BATCH, FEATURES = mtf.Dimension("batch", 8), mtf.Dimension("features", 4)
INPUTS = {"x": mtf.TensorSpec([BATCH, FEATURES])}
X = np.arange(32, dtype=np.float32).reshape(8, 4)


def summarized(mesh: mtf.Mesh, x: mtf.Tensor) -> mtf.Tensor:
    count = mtf.get_variable(mesh, "count", [], tf.float32, initializer=mtf.zeros, trainable=False)
    mtf.assign_add(count, mtf.ones(mesh, []))
    with mtf.variable_scope("layer"):
        mtf.scalar_summary("total", mtf.reduce_sum(x))
        mtf.histogram_summary("squares", mtf.square(x))
    return mtf.reduce_max(x)


def program() -> mtf.Function:
    return mtf.function(summarized, mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows;features:cols"), inputs=INPUTS)


def events(folder: Path) -> dict[str, list[tuple[int, tf.Tensor]]]:
    found: dict[str, list[tuple[int, tf.Tensor]]] = {}
    for path in folder.iterdir():
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, tf.make_ndarray(value.tensor)))
    return found


def test_summaries_are_written_under_a_writer_and_only_there(tmp_path: Path) -> None:
    step = program()
    writer = tf.summary.create_file_writer(str(tmp_path))
    assert float(step(X)) == 31
    with writer.as_default(step=7):
        assert float(step(X)) == 31
    assert float(step(X)) == 31
    writer.close()
    written = events(tmp_path)
    assert set(written) == {"layer/total", "layer/squares"}
    ((at, total),) = written["layer/total"]
    assert (at, float(total)) == (7, X.sum())
    ((_, buckets),) = written["layer/squares"]
    assert buckets[:, 2].sum() == X.size
    assert step.variables["count"] == 3  # the step itself runs once, with summaries or without


def test_started_steps_are_written_with_the_steps_of_their_starts(tmp_path: Path) -> None:
    step, count = program(), tf.Variable(0, dtype=tf.int64)
    with tf.summary.create_file_writer(str(tmp_path)).as_default(step=count):
        started = []
        for n in range(2):
            started.append(step.start(n * X))
            count.assign_add(1)
        for wait in started:
            wait()
    assert [(at, float(total)) for at, total in events(tmp_path)["layer/total"]] == [(0, 0.0), (1, X.sum())]


def test_a_writer_without_a_step_is_told_so(tmp_path: Path) -> None:
    step = program()
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default(), pytest.raises(mtf.errors.UsageError, match="has summaries, and the writer has no step"):
        step(X)
    assert "count" not in step.variables  # refused before anything ran


def test_without_a_writer_a_summary_costs_nothing() -> None:
    assert [c.kind for c in program().report().collectives] == ["all_reduce"]


def test_bad_summaries_are_refused_where_they_are_written() -> None:
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    with graph:
        x = mtf.placeholder(mesh, [BATCH, FEATURES])
        total = mtf.reduce_sum(x)
        with pytest.raises(mtf.errors.ShapeError, match=r"a scalar is needed, not \[batch:8 features:4\].*reduce it"):
            mtf.scalar_summary("x", x)
        mtf.scalar_summary("total", total)
        with pytest.raises(mtf.errors.GraphError, match='there is already a summary "total"'):
            mtf.scalar_summary("total", total)
        with pytest.raises(mtf.errors.DtypeError, match="real numbers, not bool"):
            mtf.histogram_summary("positive", mtf.greater(x, 0.0))


def test_a_summary_inside_a_loop_is_refused() -> None:
    def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        total = carried[0] + mtf.reduce_sum(parts[0])
        mtf.scalar_summary("total", total)
        return [total], []

    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    with graph, pytest.raises(mtf.errors.GraphError, match="inside a loop or a branch"):
        mtf.scan(body, [mtf.zeros(mesh, [])], [mtf.placeholder(mesh, [BATCH, FEATURES])], BATCH)
