"""Machines: what is no machine is refused, and virtual cores share what there is."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from meshtf.costs import Machine, NetworkLevel, TorusLinks
from meshtf.errors import MachineError

pytestmark = pytest.mark.quick

LEVELS = (NetworkLevel(8, 100e9, 1e-6), NetworkLevel(None, 10e9, 5e-6))
GPU = Machine("gpu", "a test", {"bfloat16": 100e12, "float32": 20e12}, 80e9, 1e12, LEVELS)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"memory_bandwidth": -1.0}, "Machine.memory_bandwidth is a positive number, and not -1.0"),
        ({"memory_bytes": math.nan}, "Machine.memory_bytes is a positive number, and not nan"),
        ({"memory_bytes": "16 GiB"}, "Machine.memory_bytes is a positive number, and not '16 GiB'"),
        ({"product_efficiency": 1.5}, "Machine.product_efficiency is a share, at most 1, and not 1.5"),
        ({"kernel_efficiency": 0.0}, "Machine.kernel_efficiency is a positive number, and not 0.0"),
        ({"kernel_platform": "CUDA"}, "Machine.kernel_platform is \"cuda\" or empty, and not 'CUDA'"),
        ({"peak_flops": {}}, "Machine.peak_flops has a number for each dtype, and is {}"),
        (
            {"peak_flops": {"bf16": 1e12}},
            'Machine.peak_flops has no dtype "bf16"; there are float64, float32, bfloat16',
        ),
        ({"peak_flops": {"bfloat16": 0}}, "Machine.peak_flops of bfloat16 is a positive number, and not 0"),
        ({"operation_seconds": -1e-6}, "Machine.operation_seconds is a number, not negative, and not -1e-06"),
        ({"product_tile": (8, 128)}, r"Machine.product_tile is three positive integers, and not \(8, 128\)"),
        ({"links": ()}, r"Machine.links is a TorusLinks, or a list of NetworkLevels, and not \(\)"),
        ({"links": LEVELS[:1]}, r"the last of all \(None\), not of \[8\]"),
        ({"processors": 0}, "Machine.processors is a positive number or None, and not 0"),
        ({"processors": 2, "links": TorusLinks(2, 2, 1e9, 0.0)}, "virtual cores, which no torus connects"),
    ],
)
def test_what_is_no_machine_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(MachineError, match=message):
        dataclasses.replace(GPU, **changed)


def test_links_are_checked_by_themselves() -> None:
    with pytest.raises(MachineError, match=r"TorusLinks.axes is 2 or 3, and not 1"):
        TorusLinks(1, 1, 1e9, 0.0)
    with pytest.raises(MachineError, match=r"TorusLinks.cores_per_chip is 1 or 2, and not 4"):
        TorusLinks(2, 4, 1e9, 0.0)
    with pytest.raises(MachineError, match=r"NetworkLevel.cores is a positive number of cores or None, and not 0"):
        NetworkLevel(0, 1e9, 0.0)
    with pytest.raises(MachineError, match=r"NetworkLevel.bandwidth is a positive number, and not 0"):
        NetworkLevel(None, 0, 0.0)


def test_a_dtype_that_a_machine_does_not_name_is_as_slow_as_its_slowest() -> None:
    assert GPU.peak_of("bfloat16") == 100e12
    assert GPU.peak_of("complex64") == 20e12


def test_virtual_cores_share_processors_memory_and_links() -> None:
    host = dataclasses.replace(GPU, processors=2, operation_seconds=1e-5, convolution_seconds=3e-5)
    one = host.shared_by(8)
    assert one.peak_flops["float32"] == GPU.peak_flops["float32"] / 8
    assert one.memory_bytes == GPU.memory_bytes / 8
    assert one.operation_seconds == 4e-5
    assert one.convolution_seconds == pytest.approx(12e-5)
    assert isinstance(one.links, tuple)
    assert one.links[0].bandwidth == LEVELS[0].bandwidth / 8
    assert GPU.shared_by(8) is GPU
