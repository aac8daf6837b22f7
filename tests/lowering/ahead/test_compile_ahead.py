"""Programs compiled by the TPU's own compiler, for topologies that are not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import meshtf as mtf
from meshtf.errors import DeviceError

D_MODEL, D_FF = mtf.Dimension("d_model", 512), mtf.Dimension("d_ff", 2048)


def on_paper(batch: int = 256) -> mtf.Function:
    def train_step(x: mtf.Tensor) -> mtf.Tensor:
        hidden = mtf.layers.dense(x, [D_FF], activation=mtf.relu, name="wi")
        loss = mtf.reduce_mean(mtf.square(mtf.layers.dense(hidden, [D_MODEL], name="wo") - x))
        mtf.optimize.AdamWOptimizer(1e-3).minimize(loss)
        return loss

    mesh_impl = mtf.PlanMeshImpl("rows:2;cols:4", "batch:rows;d_ff:cols")
    return mtf.function(train_step, mesh_impl, inputs={"x": mtf.TensorSpec([("batch", batch), D_MODEL])})


def test_a_step_is_compiled_once_and_says_what_it_needs(tmp_path: Path) -> None:
    step, waited = on_paper(), []
    compiled = step.compile("v5e:2x4", cache_dir=tmp_path, on_wait=waited.append)
    memory, planned = compiled.memory, step.report().memory
    # Rows have half of the input each. Arrays lie in tiles, so that arguments take a little more than their elements.
    arguments = planned.variables + planned.feeds
    assert arguments <= memory.arguments < 1.01 * arguments
    assert planned.variables <= memory.aliased <= memory.results < memory.arguments
    assert memory.arguments < memory.peak < memory.available
    assert memory.arguments < compiled.planned_peak <= planned.peak
    assert compiled.flops == pytest.approx(step.report().flops_per_core, rel=0.05)
    assert "all-reduce" in compiled.hlo
    assert not compiled.is_cached
    assert waited == sorted(waited) != []

    again = on_paper().compile("v5e:2x4", cache_dir=tmp_path)
    assert (again.is_cached, again.memory, again.hlo) == (True, memory, compiled.hlo)
    assert json.loads(json.dumps(again.to_dict()))["memory"]["peak"] == memory.peak
    text = str(again)
    assert "train_step on mesh [rows:2 cols:4], compiled by libtpu" in text
    assert "for v5e:2x4, 8 cores, reused from an earlier compilation" in text
    assert "15.8 GiB (0%) of the core's memory; the plan says 6.8 MiB at the peak" in text


def test_a_program_on_any_mesh_and_on_two_cores_of_a_chip() -> None:
    mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:4", "batch:rows;d_model:cols")
    inputs = {"x": mtf.TensorSpec([("batch", 256), D_MODEL])}
    compiled = mtf.function(lambda x: mtf.reduce_sum(mtf.square(x)), mesh_impl, inputs=inputs).compile("v3:2x2")
    assert (compiled.cores, compiled.topology, compiled.is_cached) == (8, "v3:2x2", False)


def of_layers(batch: int) -> mtf.Function:
    def train_step(x: mtf.Tensor) -> mtf.Tensor:
        def layer(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            hidden = mtf.layers.dense(carried[0], [D_FF], activation=mtf.relu, name="wi")
            return [carried[0] + mtf.layers.dense(hidden, [D_MODEL], name="wo")], []

        (y,), _ = mtf.layer_stack(layer, x, ("layers", 10))
        loss = mtf.reduce_mean(mtf.square(y))
        mtf.optimize.AdamWOptimizer(1e-3).minimize(loss)
        return loss

    mesh_impl = mtf.PlanMeshImpl("rows:2;cols:4", "batch:rows;d_ff:cols")
    return mtf.function(train_step, mesh_impl, inputs={"x": mtf.TensorSpec([("batch", batch), D_MODEL])})


def test_more_memory_than_a_core_has(tmp_path: Path) -> None:
    step = of_layers(2**20)
    for _ in range(2):  # the second answer is the first
        with pytest.raises(DeviceError, match=r"does not fit v5e:2x4, whose cores leave 15\.75 GiB") as raised:
            step.compile("v5e:2x4", cache_dir=tmp_path)
        message = str(raised.value)
        assert "exceeds available HBM (15.75G)" in message
        assert "By the plan a core takes " in message
        assert f", at {__file__}:" in message.split("By the plan")[1]
        assert "The largest at that point:" in message
        largest = message.split("The largest at that point:")[1]
        assert "10.0 GiB layer [(iterations):10 batch:1048576/rows d_model:512] float32" in largest
        assert 'these would fit: recompute="nothing" in every mtf.layer_stack and mtf.scan (10.1 GiB)' in message
        assert '; "batch" of 822,096 instead of 1,048,576 (15.7 GiB); ' in message


@pytest.mark.long
def test_the_batch_that_is_named_compiles_and_a_larger_one_does_not() -> None:
    memory = of_layers(822_096).compile("v5e:2x4").memory
    assert memory.peak < memory.available
    with pytest.raises(DeviceError, match="does not fit v5e:2x4"):
        of_layers(904_304).compile("v5e:2x4")


@pytest.mark.long
def test_layouts_that_would_fit_are_named() -> None:
    """Adam's moments and the weights of 22 layers take 16.5 GiB of 15.75, and 2.1 in eight parts."""
    width = [mtf.Dimension("d_model", 8192), mtf.Dimension("d_ff", 8192)]

    def train_step(x: mtf.Tensor) -> mtf.Tensor:
        for layer in range(22):
            x = mtf.einsum([x, mtf.get_variable(x.mesh, f"w_{layer}", width)], [x.shape[0], width[1]])
            x = mtf.rename_dimension(x, "d_ff", "d_model")
        loss = mtf.reduce_mean(x)
        mtf.optimize.AdamWOptimizer(1e-3).minimize(loss)
        return loss

    inputs = {"x": mtf.TensorSpec([("batch", 64), width[0]])}
    step = mtf.function(train_step, mtf.PlanMeshImpl("all:8", "batch:all", shard_weight_update=False), inputs)
    with pytest.raises(DeviceError, match="By the plan these would fit") as raised:
        step.compile("v5e:2x4")
    assert 'parameter_layout="d_' in str(raised.value)
    fitting = mtf.PlanMeshImpl("all:8", "batch:all", shard_weight_update=False, parameter_layout="d_model:all")
    memory = mtf.function(train_step, fitting, inputs).compile("v5e:2x4").memory
    assert memory.peak < memory.available


def test_a_mesh_that_does_not_fit() -> None:
    with pytest.raises(DeviceError, match=r"Give v5e:2x4, or a mesh of 16 cores\.\n  at .*test_compile_ahead"):
        on_paper().compile("v5e:4x4")
