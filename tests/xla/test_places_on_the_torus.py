"""Which cores the TPU's compiler has exchange with one another: neighbours, along the axes of the mesh."""

from __future__ import annotations

import itertools
import re

import pytest

import meshtf as mtf
from meshtf.mesh_impl.processor_groups import ordered_groups
from meshtf.mesh_impl.tpu.topology import TpuTopology

_ALL_REDUCE = re.compile(r" all-reduce(?:-start)?\(.*replica_groups=\{(\{[\d,{}]+\})\}")


def sums_along_both_axes(x: mtf.Tensor) -> list[mtf.Tensor]:
    return [mtf.reduce_sum(mtf.square(x), reduced_dim="c"), mtf.reduce_sum(mtf.exp(x), reduced_dim="r")]


def groups_in(hlo: str) -> set[tuple[tuple[int, ...], ...]]:
    """Of each all-reduce, the cores that sum together."""
    found = [re.findall(r"\{([\d,]+)\}", text) for text in _ALL_REDUCE.findall(hlo)]
    return {tuple(tuple(map(int, group.split(","))) for group in groups) for groups in found}


@pytest.mark.parametrize(
    ("topology", "mesh"),
    [
        ("v5p:2x2x4", "rows:4;cols:4"),
        pytest.param("v5e:4x4", "rows:4;cols:4", marks=pytest.mark.long),
        pytest.param("v3:2x2", "rows:2;cols:4", marks=pytest.mark.long),
        pytest.param("v4:4x4x4", "rows:4;cols:16", marks=pytest.mark.long),
        pytest.param("v2:4x4", "rows:4;cols:8", marks=pytest.mark.long),
    ],
)
def test_cores_that_sum_together_are_neighbours(topology: str, mesh: str) -> None:
    mesh_impl = mtf.PlanMeshImpl(mesh, "r:rows;c:cols")
    inputs = {"x": mtf.TensorSpec("r:512 c:512 d:64")}
    compiled = mtf.function(sums_along_both_axes, mesh_impl, inputs=inputs).compile(topology)
    wanted = {tuple(map(tuple, ordered_groups(mesh_impl.shape, [axis]).tolist())) for axis in ("rows", "cols")}
    assert groups_in(compiled.hlo) == wanted
    chosen = TpuTopology.of(topology)
    places = [(*place[: len(chosen.chips)], place[-1]) for place in chosen.places(mesh_impl.shape)]
    for group in itertools.chain(*wanted):
        hops = [chosen.torus.hops(places[a], places[b]) for a, b in itertools.pairwise([*group, group[0]])]
        assert max(hops) <= 1, f"{group} on {topology}: {hops}"
