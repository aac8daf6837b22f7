"""The line of peak memory. No device here counts its memory, so the tests give the counts."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.bin.shared.peak_memory import say_peak_memory

pytestmark = pytest.mark.quick


def test_the_plan_holds_all_variables_and_what_one_program_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training has a slot beside the weight, of 4 KiB each. Evaluation has larger activations, of 16 KiB."""
    mesh_impl, inputs = mtf.SpmdMeshImpl("rows:1", ""), {"x": mtf.TensorSpec("batch:4 wide:1024")}
    store = mtf.VariableStore()

    def weight(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.get_variable(x.mesh, "weight", [x.shape[1]])

    def train_step(x: mtf.Tensor) -> mtf.Tensor:
        slot = mtf.get_variable(x.mesh, "slot", [x.shape[1]], trainable=False)
        return mtf.assign_add(slot, weight(x))

    def evaluation(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_sum(mtf.exp(x * weight(x)))

    programs = [mtf.function(fn, mesh_impl, inputs, variables=store) for fn in (train_step, evaluation)]
    said = list[str]()
    say_peak_memory(said.append, programs)
    assert said == []
    monkeypatch.setattr(mtf.SpmdMeshImpl, "peak_bytes", 3 << 29)
    for given in (programs, programs[1:]):
        say_peak_memory(said.append, given)
    # The weight, what is fed, and the exponential beside the product.
    evaluated = 4 + 16 + 2 * 16
    assert said == [
        f"peak memory:   1.5 GiB on a core by its own count, {kib}.0 KiB by the plan"
        for kib in (4 + evaluated, evaluated)
    ]


def test_virtual_gpus_say_nothing() -> None:
    program = mtf.function(lambda x: 2.0 * x, mtf.GpuMeshImpl("rows:1", ""), {"x": mtf.TensorSpec("batch:4")})
    program([1.0] * 4)
    say_peak_memory(pytest.fail, [program])
