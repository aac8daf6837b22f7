"""Published trainings, planned on their own meshes, keep within the memory and the bytes that were aimed at."""

from __future__ import annotations

from collections.abc import Iterator

import gin
import pytest

import meshtf as mtf
from benchmarks.published.found_layouts import CASES, T5_BASE, found_for, predicted
from benchmarks.published.layout_search import UNSPLIT, rows
from benchmarks.published.trainings import GB, GIB, TRAININGS, Training
from meshtf.lowering.report.report import Report


@pytest.fixture(autouse=True)
def _no_configuration_is_left() -> Iterator[None]:
    yield
    gin.clear_config()


def named(name: str) -> Training:
    (training,) = (t for t in TRAININGS if t.name == name)
    return training


def planned(name: str) -> Report:
    return named(name).report()


def test_a_language_model_sends_what_is_read() -> None:
    """Gradients are scattered in bfloat16, and new weights gathered in bfloat16: 2 x 0.14 billion x 2 bytes."""
    report = planned("Mesh-TensorFlow LM 0.14B")
    assert report.bytes_sent_per_core <= 0.56 * GB
    assert report.memory.peak <= 1.5 * GIB


def test_a_pipeline_of_eight_stages_fits_a_core_of_v3() -> None:
    """Huang et al. 2019, table 1."""
    assert planned("GPipe K=8").memory.peak <= 16 * GIB


@pytest.mark.long
@pytest.mark.parametrize("stages", [32, 128])
def test_a_pipeline_of_many_stages_fits_a_core_of_v3(stages: int) -> None:
    assert planned(f"GPipe K={stages}").memory.peak <= 16 * GIB


@pytest.mark.long
def test_experts_fit_a_core_of_v3() -> None:
    """As published, each weight of attention dropped by itself; scores are held a block at a time."""
    lean = named("GShard 128E 12L").report()
    plain = named("GShard 128E 12L").with_plain_attention().report()
    assert lean.memory.peak <= 16 * GIB < plain.memory.peak
    assert lean.bytes_sent_per_core == plain.bytes_sent_per_core


@pytest.mark.long
def test_images_are_not_held_whole() -> None:
    assert planned("ResNet-50, batch 32k").memory.peak <= 2 * GIB


@pytest.mark.long
@pytest.mark.parametrize("name", [t.name for t in TRAININGS if "Lingvo" in t.name and t.name.endswith("2-D")])
def test_two_dimensional_layouts_fit_a_core_of_v3(name: str) -> None:
    assert planned(name).memory.peak <= 16 * GIB


@pytest.mark.long
@pytest.mark.parametrize("name", [t.name for t in TRAININGS if "Lingvo" in t.name and t.name.endswith("by rules")])
def test_layouts_that_are_found_are_no_slower_than_the_published_ones(name: str) -> None:
    (row,) = (row for row in rows() if row.name == name)
    machine = mtf.costs.load_machine("v3")
    published = mtf.costs.predict(planned(name.replace("by rules", "2-D")), machine)
    program = row.program(*UNSPLIT)
    found = mtf.auto_layout(program, program.lowering.mesh_shape, machine, memory_per_core=16 * GIB)
    assert found.best.seconds <= published.seconds


@pytest.mark.long
@pytest.mark.parametrize("name", [*CASES, "t5_base"])
def test_layouts_that_are_found_are_no_slower_than_those_that_come_with_meshtf(name: str) -> None:
    """On paper; `python -m benchmarks.published.found_layouts` measures them."""
    case = T5_BASE if name == "t5_base" else CASES[name]
    mesh_shape = case.training().mesh_shape
    machine = mtf.costs.load_machine("v5e")
    found = found_for(case, machine, mesh_shape)
    shipped = {recipe: predicted(case, case.tables(recipe), machine) for recipe in ("", *case.recipes)}
    assert shipped[""] is not None
    slower = {recipe: seconds for recipe, seconds in shipped.items() if seconds and seconds < found.best.seconds}
    assert not slower, found
