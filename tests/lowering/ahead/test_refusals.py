"""Texts of the TPU's compiler, in the user's terms."""

from __future__ import annotations

import pytest

from meshtf.lowering.ahead.refusals import refused_by_compiler
from meshtf.mesh_impl.tpu.topology import TpuTopology

pytestmark = pytest.mark.quick

ORIGINS = {
    "Compute_17": "sort_3, at model.py:8 in layer",
    "Loop_2": "scan, at model.py:5 in layer",
    "Compute_8": "fft_1, at model.py:9 in layer",
}


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ('UNIMPLEMENTED: no such type: loc("Compute_17/SortV2")', "sort_3, at model.py:8 in layer"),
        ('INTERNAL: loc(fused["Loop_2.body/while/Add", "x"])', "scan, at model.py:5 in layer"),
        ("INVALID_ARGUMENT: Unexpected operand type for FFT: c128[56]{0}", "fft_1, at model.py:9 in layer"),
        ("INTERNAL: something", "that the compiler does not name"),
    ],
)
def test_the_operation_is_named(text: str, origin: str) -> None:
    message = refused_by_compiler(text + "\n  and\n more", "step", TpuTopology.of("v5e:2x2"), ORIGINS, ["Compute_8"])
    assert 'program "step" cannot be compiled for v5e:2x2: libtpu says' in message
    assert f"{text} and more\n  in operation {origin}\n" in message
