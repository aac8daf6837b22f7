"""Mesh shapes with an axis as long as the devices allow."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.errors import DeviceError, MeshtfError, ShapeError
from meshtf.mesh_impl.mesh_shape_rule import MeshShapeRule


def rule(text: str) -> MeshShapeRule:
    return MeshShapeRule.parse(text)


@pytest.mark.parametrize(("devices", "shape"), [(2, "data:1 model:2"), (8, "data:4 model:2"), (7, "data:3 model:2")])
def test_it_takes_as_many_devices_as_it_can(devices: int, shape: str) -> None:
    assert str(rule("data:*;model:2").shape(devices)) == shape


@pytest.mark.parametrize(("processes", "most", "shape"), [
    (4, 2, "data:4 model:2"), (3, 2, "data:3 model:2"), (3, 3, "data:3 model:2"), (1, 5, "data:2 model:2"),
    (2, 1, "data:1 model:2"),
])  # fmt: skip
def test_processes_have_equal_parts(processes: int, most: int, shape: str) -> None:
    assert str(rule("data:* model:2").shape_over(processes, most)) == shape


def test_a_shape_without_an_open_size_is_itself() -> None:
    for given in ("rows:2;cols:4", [("rows", 2), ("cols", 4)], mtf.convert_to_shape("rows:2 cols:4")):
        found = MeshShapeRule.parse(given)
        assert not found.is_open
        assert found.shape(1) == found.shape_over(3, 1) == mtf.convert_to_shape("rows:2 cols:4")


@pytest.mark.parametrize(("make", "words"), [
    (lambda: rule("data:*;model:*"), "only one axis can be as long as the devices allow: data, model are"),
    (lambda: rule("data:**;model:2"), "data:**;model:2\n    ^^^^^^^"),
    (lambda: rule("data:*;data:2"), 'dimension "data" stands twice'),
    (lambda: rule("data:*;model:0"), "mesh [data:* model:0] has no cores"),
    (lambda: rule("data:*;model:4").shape(3), "mesh [data:* model:4] has at least 4 cores, and 3 devices are there"),
    (lambda: rule("data:*;model:4").shape(1), "and 1 device is there"),
    (lambda: rule("data:*;model:2").shape_over(3, 1), "of 3 processes each has as many of them, 1 at most"),
    (lambda: mtf.PlanMeshImpl("data:*;model:2", ""), "mesh [data:* model:2] is as large as the devices allow"),
    (lambda: mtf.SpmdMeshImpl("data:*;model:2", "", ["CPU:0"]), "has at least 2 cores, and 1 device is there"),
    (lambda: mtf.SpmdMeshImpl("data:*;model:2", "", [f"CPU:{i}" for i in range(3)]), "3 devices were given for it"),
])  # fmt: skip
def test_what_is_wrong_is_told(make: object, words: str) -> None:
    with pytest.raises(MeshtfError) as raised:
        make()  # type: ignore[operator]
    assert isinstance(raised.value, ShapeError | DeviceError)
    assert words in str(raised.value)


def test_a_mesh_is_as_large_as_its_devices_allow() -> None:
    assert str(mtf.SpmdMeshImpl("data:*;model:2", "batch:data").shape) == "data:8 model:2"
    some = [f"CPU:{i}" for i in range(6)]
    mesh_impl = mtf.SpmdMeshImpl("model:3 data:*", "batch:data", some)
    assert (str(mesh_impl.shape), len(mesh_impl.devices)) == ("model:3 data:2", 6)
