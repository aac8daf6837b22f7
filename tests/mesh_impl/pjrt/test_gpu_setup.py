"""Set-ups in which no GPU can be used: each has a sentence that names the missing part and the remedy."""

from __future__ import annotations

import ctypes
import dataclasses
import re
import types
from collections.abc import Callable
from typing import Any

import pytest

from meshtf.mesh_impl.pjrt.gpu_setup import GpuSetup

WELL = GpuSetup(driver=(13, 0), gpus=2, visible=None, plugins={13: "0.10.2"}, jaxlib="0.10.2")

SETUPS = {
    "no driver": ({"driver": None, "gpus": None}, "", "no NVIDIA driver", "Install it"),
    "old driver": ({"driver": (11, 8)}, "", "driver is too old; it supports CUDA 11.8, and 12.0", "a newer driver"),
    "hidden": ({"gpus": 0, "visible": ""}, "", "CUDA_VISIBLE_DEVICES='' hides every GPU", "CUDA_VISIBLE_DEVICES=0,1"),
    "container": ({"gpus": 0}, "", "the NVIDIA driver sees no GPU", "docker run --gpus all"),
    "no fabric": (
        {"gpus": 0, "driver_error": "CUDA_ERROR_SYSTEM_NOT_READY"},
        "",
        "does not start: CUDA_ERROR_SYSTEM_NOT_READY",
        "nvidia-fabricmanager",
    ),
    "updated driver": ({"driver_error": "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}, "", "does not start", "restart the mach"),
    "no plugin": ({"plugins": {}}, "", "2 GPUs are there, and the plugin of CUDA", "'meshtf[cuda13]'"),
    "no plugin, CUDA 12": ({"driver": (12, 4), "plugins": {}, "gpus": 1}, "", "1 GPU is there", "'meshtf[cuda12]'"),
    "plugin too new": ({"driver": (12, 9)}, "", "jax-cuda13-plugin needs a newer driver", "'meshtf[cuda12]'"),
    "two plugins": (
        {"plugins": {12: "0.10.2", 13: "0.10.2"}},
        "",
        "jax-cuda12-plugin and jax-cuda13-plugin are both installed",
        "pip uninstall jax-cuda12-plugin",
    ),
    "another release": (
        {"plugins": {13: "0.11.0"}},
        "",
        "jax-cuda13-plugin is of release 0.11.0, and jaxlib of release 0.10.2",
        "Install both of one release",
    ),
    "memory taken": ({}, "INTERNAL: CUDA_ERROR_OUT_OF_MEMORY", "does not start: INTERNAL", "memory_fraction=0.4"),
    "exclusive": (
        {},
        "CUDA_ERROR_DEVICE_UNAVAILABLE: busy",
        "does not start",
        "Another process has the GPU for itself",
    ),
    "JAX on CPUs": ({}, "Unknown backend cuda. Available backends are ['cpu']", "does not start", "JAX_PLATFORMS"),
    "unknown": ({}, "INTERNAL: fell off the bus", "fell off the bus", "`nvidia-smi` says whether the GPU is well"),
}


@pytest.mark.parametrize("name", list(SETUPS))
def test_what_is_missing_is_named(name: str) -> None:
    changes, error, fact, remedy = SETUPS[name]
    text = dataclasses.replace(WELL, **changes).why_none(error, 4)
    lines = text.splitlines()
    assert lines[0].startswith("a GPU was asked for, and none can be used: ")
    assert fact in lines[0]
    assert remedy in lines[1]
    assert "call mtf.virtual_gpus(4) before the first mesh" in lines[2]


def driver(status: int) -> types.SimpleNamespace:
    """CUDA's driver, which starts with this status."""

    def told(value: Any) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            arguments[-1]._obj.value = value
            return 0

        return call

    name = b"CUDA_ERROR_SYSTEM_NOT_READY" if status == 802 else None
    return types.SimpleNamespace(
        cuInit=lambda _: status,
        cuDeviceGetCount=told(3),
        cuDriverGetVersion=told(13010),
        cuGetErrorName=told(name),
    )


@pytest.mark.parametrize(
    ("status", "gpus", "error"),
    [(0, 3, ""), (100, 0, ""), (802, 0, "CUDA_ERROR_SYSTEM_NOT_READY"), (12345, 0, "error 12345")],
)
def test_what_the_driver_answers(status: int, gpus: int, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver(status))
    setup = GpuSetup.of_this_machine()
    assert (setup.driver, setup.gpus, setup.driver_error) == ((13, 1), gpus, error)


def test_this_machine_answers() -> None:
    """Reading the facts opens no GPU, and fails on no machine."""
    setup = GpuSetup.of_this_machine()
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.\d+)?", setup.jaxlib)
    assert (setup.driver is None) == (setup.gpus is None)
