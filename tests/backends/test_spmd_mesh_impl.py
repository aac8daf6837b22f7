from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from meshtf.backends.spmd_mesh_impl import SpmdMeshImpl
from meshtf.errors import DeviceError, LayoutError
from meshtf.mesh_impl.device_names import device_order


def test_the_first_cpus_by_default() -> None:
    mesh = SpmdMeshImpl("rows:2;cols:4", "batch:rows;hidden:cols")
    assert mesh.devices == tuple(d.name for d in tf.config.list_logical_devices("CPU")[:8])
    assert (mesh.size, mesh.ndims, mesh.shape.dimension_names) == (8, 2, ["rows", "cols"])
    assert mesh.layout_rules.axes("batch") == ("rows",)
    assert mesh.options.parameter_layout_rules is None
    assert mesh.options.collective_timeout_seconds == 300


def test_parameters_may_have_a_layout_of_their_own() -> None:
    mesh = SpmdMeshImpl("rows:2", "batch:rows", parameter_layout="hidden:rows")
    assert mesh.options.parameter_layout_rules.axes("hidden") == ("rows",)
    assert mesh.layout_rules.axes("hidden") == ()


def test_devices_in_any_order_and_spelling() -> None:
    spellings = ["CPU:3", "/cpu:1", "/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:12"]
    mesh = SpmdMeshImpl("rows:2;cols:2", "", spellings)
    names = [d.name for d in tf.config.list_logical_devices("CPU")]
    assert mesh.devices == tuple(names[i] for i in (3, 1, 0, 12))
    assert "CPU:12" in repr(mesh)


def test_devices_are_ranked_by_number_and_not_as_text() -> None:
    assert device_order("/device:CPU:2") < device_order("/device:CPU:10")
    assert device_order("/job:worker/replica:0/task:0/device:CPU:9") < device_order(
        "/job:worker/replica:0/task:1/device:CPU:0"
    )


@pytest.mark.parametrize(
    ("shape", "devices", "message"),
    [
        ("rows:8;cols:4", None, r"(?s)32 cores, and TensorFlow has 16 logical CPUs.*mtf\.virtual_cpus\(32\)"),
        ("rows:2", ["CPU:0", "cpu:0"], "more than one core: .*CPU:0"),
        ("rows:2", ["CPU:0", "CPU:99"], r"no such device: 'CPU:99'.*virtual_cpus\(2\)"),
        ("rows:2", ["CPU:0", "nonsense"], "no such device: 'nonsense'"),
        ("rows:2", ["CPU:0", "/job:worker/task:3/device:CPU:0"], "no such device: '/job:worker"),
        ("rows:2", ["CPU:0"], "2 cores, and 1 device was given"),
        ("rows:2", "CPU:0", "a list of names"),
        ("rows:0", None, "has no cores"),
    ],
)
def test_device_errors(shape: str, devices: Any, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        SpmdMeshImpl(shape, "", devices)


def test_a_timeout_is_positive() -> None:
    with pytest.raises(DeviceError, match="must be positive, and is 0"):
        SpmdMeshImpl("rows:2", "", collective_timeout_seconds=0)


@pytest.mark.parametrize("layouts", [{"layout_rules": "batch:row"}, {"layout_rules": "", "parameter_layout": "w:row"}])
def test_rules_name_axes_of_the_mesh(layouts: dict[str, str]) -> None:
    with pytest.raises(LayoutError, match=r'"row".*did you mean "rows"'):
        SpmdMeshImpl("rows:2", **layouts)
