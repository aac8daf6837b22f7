"""The options of a mesh: declared once, the same for every mesh."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DeviceError, LayoutError, UsageError
from meshtf.mesh_impl.mesh_options import MeshOptionFields, MeshOptionKeywords
from meshtf.train.training import Training

MAKERS: list[Callable[..., Any]] = [
    mtf.PlanMeshImpl,
    mtf.SpmdMeshImpl,
    lambda *arguments, **options: mtf.TpuMeshImpl(*arguments, physical_torus="1x2", **options),
]


def test_every_option_is_a_keyword() -> None:
    fields = {field.name: field.type for field in dataclasses.fields(mtf.MeshOptions)}
    keywords: dict[str, Any] = MeshOptionKeywords.__annotations__
    assert {name: declared.__forward_arg__ for name, declared in keywords.items()} == fields


def test_options_are_declared_once() -> None:
    declared = MeshOptionFields.__annotations__.keys()
    for other in (mtf.MeshOptions, Training):
        assert declared <= {field.name for field in dataclasses.fields(other)}
        assert not declared & other.__annotations__.keys()


@pytest.mark.parametrize("make", MAKERS)
def test_options_reach_every_mesh(make: Callable[..., Any]) -> None:
    assert make("rows:2;cols:2", "batch:rows").options == mtf.MeshOptions()
    chosen = mtf.MeshOptions(bucket_bytes=0, shard_weight_update=False)
    assert make("rows:2;cols:2", "batch:rows", options=chosen).options == chosen
    both = make("rows:2;cols:2", "batch:rows", options=chosen, bucket_bytes=8, parameter_layout="d:cols").options
    assert both == mtf.MeshOptions(bucket_bytes=8, shard_weight_update=False, parameter_layout="d:cols")


@pytest.mark.parametrize("make", MAKERS)
def test_what_every_mesh_refuses(make: Callable[..., Any]) -> None:
    with pytest.raises(LayoutError, match=r'mesh axis "row", which mesh \[rows:2\] does not have; did you mean "rows"'):
        make("rows:2", "", parameter_layout="d:row")
    with pytest.raises(UsageError, match='a mesh has no option "bucket_size"; did you mean "bucket_bytes"'):
        make("rows:2", "", bucket_size=8)


def test_an_option_that_cannot_be() -> None:
    with pytest.raises(
        UsageError, match=r"must be an integer, 0 or more, and is -1: [^\n]*\n  at .*test_mesh_options.py"
    ):
        mtf.MeshOptions(bucket_bytes=-1)
    with pytest.raises(DeviceError, match="collective_timeout_seconds must be positive, and is 0"):
        mtf.MeshOptions(collective_timeout_seconds=0)
    with pytest.raises(LayoutError, match="parameter_layout: bad layout, not of the form dimension:axis"):
        mtf.MeshOptions(parameter_layout="rows")
    with pytest.raises(DeviceError, match="num_processes must be positive, or None for one, and is 0"):
        mtf.MeshOptions(num_processes=0)
    with pytest.raises(DeviceError, match="num_processes must be positive, or None for one, and is '2'"):
        mtf.MeshOptions(num_processes="2")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r'axes_over_processes must be a list of names, as \("rows",\), and is .rows.'):
        mtf.MeshOptions(axes_over_processes="rows")  # type: ignore[arg-type]


def test_processes_that_do_not_fit_the_mesh() -> None:
    with pytest.raises(DeviceError, match=r"mesh \[rows:4\] has 4 cores, which 3 processes cannot share equally"):
        mtf.SpmdMeshImpl("rows:4", "", num_processes=3)
    with pytest.raises(LayoutError, match=r'names row, and mesh \[rows:4\] has no such axis; did you mean "rows"'):
        mtf.PlanMeshImpl("rows:4", "", axes_over_processes=("row",))
    assert mtf.PlanMeshImpl("rows:2;cols:2", "", num_processes=2).process_of_core == (0, 0, 1, 1)


def test_one_layout_and_one_dtype_however_they_are_written() -> None:
    written = mtf.MeshOptions(parameter_layout="d:rows; batch:cols", gradient_sum_dtype="bfloat16")  # type: ignore[arg-type]
    given = mtf.MeshOptions(parameter_layout={"d": "rows", "batch": "cols"}, gradient_sum_dtype=tf.bfloat16)
    assert written == given
    assert hash(written) == hash(given)
