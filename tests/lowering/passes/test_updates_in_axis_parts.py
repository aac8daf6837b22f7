"""Updates of weights that no mesh axis divides, but parts of one do: [12, 20] and [20, 18] among eight cores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import meshtf as mtf
from meshtf import optimize
from meshtf.checkpoint import CheckpointFolder, restore
from meshtf.dimension import ShapeLike
from meshtf.errors import LayoutError
from meshtf.testing import assert_close
from tests.lowering.passes.update_programs import OPTIMIZERS, TwoMatrices

SIZES = TwoMatrices.of_sizes(12, 20, 18)
CORES, NUM_STEPS = 8, 50


def program(
    optimizer: optimize.Optimizer, mesh_shape: ShapeLike, layout: str = "batch:data", **options: Any
) -> mtf.Function:
    return SIZES.on_devices(optimizer, mesh_shape, layout, **options)


@pytest.mark.parametrize(
    "name", ["adafactor", *(pytest.param(n, marks=pytest.mark.long) for n in ("clipped", "adamw", "lamb", "rounded"))]
)
def test_fifty_steps_as_without(name: str) -> None:
    divided, whole = (program(OPTIMIZERS[name], "data:8", shard_weight_update=sharded) for sharded in (True, False))
    assert dict(divided.report().axis_parts) in ({"data.0": 2, "data.1": 4}, {"data.0": 4, "data.1": 2})
    assert not divided.report().repeated_updates
    losses = [[float(step(**batch)) for batch in SIZES.batches(NUM_STEPS)] for step in (divided, whole)]
    assert losses[1][-1] < losses[1][0]
    assert_close(losses[0], losses[1], terms=SIZES.terms, steps=np.arange(NUM_STEPS), dtype="float32")


@hypothesis.settings(
    max_examples=2, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(
    st.tuples(*[st.integers(2, 30)] * 3),
    st.sampled_from(sorted(OPTIMIZERS)),
    st.sampled_from(["data:6", "data:8", "data:12", "data:2;model:8", "data:4;model:6"]),
)
@hypothesis.example((12, 22, 12), "adafactor", "data:2;model:8")  # one axis pads, the other divides
def test_any_sizes(sizes: tuple[int, int, int], name: str, mesh_shape: str) -> None:
    layout = "batch:data+model" if "model" in mesh_shape else "batch:data"
    two = TwoMatrices.of_sizes(*sizes, batch=48)
    losses, expected = (two.losses(OPTIMIZERS[name], *mesh, 3) for mesh in ((mesh_shape, layout), ("all:1", "")))
    assert_close(losses, expected, terms=two.terms, steps=np.arange(3), dtype="float32")


@pytest.mark.parametrize(
    ("mesh_shape", "layout", "options"),
    [
        ("model:1;data:8", "batch:data;hidden:model", {}),
        ("data:8", "batch:data", {"bucket_bytes": 0}),
        ("data:8", "batch:data", {"devices": [f"CPU:{i}" for i in (3, 1, 0, 2, 7, 5, 6, 4)]}),
    ],
)
def test_slots_are_kept_in_equal_shares(mesh_shape: str, layout: str, options: dict[str, Any]) -> None:
    divided = program(OPTIMIZERS["adamw"], mesh_shape, layout, **options)
    divided.initialize()
    slot = divided.variables.slices("first/adam_m")
    assert {piece.shape.num_elements() for piece in slot.slices.values()} == {
        SIZES.inner.size * SIZES.hidden.size // CORES
    }
    sent, whole = (
        program(OPTIMIZERS["adamw"], mesh_shape, layout, shard_weight_update=sharded, **options)
        .report()
        .bytes_sent_per_core
        for sharded in (True, False)
    )
    assert sent <= whole


def test_checkpoints_move_between_meshes(tmp_path: Path) -> None:
    first, second, third = SIZES.batches(3)
    reference = program(OPTIMIZERS["adamw"], "data:2", shard_weight_update=False)
    expected = [float(reference(**batch)) for batch in (first, second, third)]
    saving = program(OPTIMIZERS["adamw"], "data:8")
    actual = [float(saving(**batch)) for batch in (first, second)]
    folder = CheckpointFolder(tmp_path)
    folder.save(2, saving.variables, {})
    for mesh_shape in ("data:8", "data:2"):
        restored = program(OPTIMIZERS["adamw"], mesh_shape)
        restore(folder.open(2), [restored])
        np.testing.assert_array_equal(restored.variables["first/adam_v"], saving.variables["first/adam_v"])
        assert_close(
            [*actual, float(restored(**third))], expected, terms=SIZES.terms, steps=np.arange(3), dtype="float32"
        )


def predict(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.einsum(
        [x, mtf.get_variable(x.mesh, "first", [SIZES.inner, SIZES.hidden])], output_shape=[SIZES.batch, SIZES.hidden]
    )


def momentum(x: mtf.Tensor) -> mtf.Tensor:
    slot = mtf.get_variable(x.mesh, "first/adam_m", [SIZES.inner, SIZES.hidden], initializer=mtf.zeros, trainable=False)
    return mtf.einsum([x, slot], output_shape=[SIZES.batch, SIZES.hidden])


def test_other_programs_share_the_store() -> None:
    """Those that are lowered afterwards, whatever they read. One that was lowered before says what to do."""
    training = program(OPTIMIZERS["adamw"], "data:8")
    mesh_impl, inputs = mtf.SpmdMeshImpl("data:8", "batch:data"), {"x": SIZES.inputs["x"]}

    def reading() -> list[mtf.Function]:
        return [mtf.function(reads, mesh_impl, inputs, variables=training.variables) for reads in (predict, momentum)]

    weights, slots = reading()
    (batch,) = SIZES.batches(1)
    training(**batch)
    for reads, name in ((weights, "first"), *zip(reading(), ("first", "first/adam_m"), strict=True)):
        assert_close(reads(x=batch["x"]), batch["x"] @ training.variables[name], terms=SIZES.inner.size)
    with pytest.raises(
        LayoutError, match=r'(?s)"first/adam_m" is kept as \[inner:12/data.0 hidden:20/data.1\].* initialize'
    ):
        slots(x=batch["x"])


def test_a_program_on_another_mesh_is_refused() -> None:
    training = program(OPTIMIZERS["adamw"], "data:8")
    training.initialize()
    mesh_impl, inputs = mtf.SpmdMeshImpl("data:4", "batch:data"), {"x": SIZES.inputs["x"]}
    with pytest.raises(LayoutError, match=r'variable "first" lives on mesh \[data:8\] of devices'):
        mtf.function(predict, mesh_impl, inputs=inputs, variables=training.variables)


def test_names_of_parts_that_a_mesh_has_already() -> None:
    """Then nothing is taken apart."""
    assert program(OPTIMIZERS["adamw"], mtf.Shape([("data.0", 1), ("data", 8)])).report().axis_parts == ()


def test_a_mesh_in_parts_is_still_the_users_mesh() -> None:
    training = program(OPTIMIZERS["adamw"], "data:8")
    assert repr(training) == "mtf.function(step) on mesh [data:8]"
    assert training.report().layout == "batch:data"
