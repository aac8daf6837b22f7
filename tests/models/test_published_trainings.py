"""Published trainings, planned on their own meshes, keep within the memory and the bytes that were aimed at."""

from __future__ import annotations

from collections.abc import Iterator

import gin
import pytest

import meshtf as mtf
from benchmarks.layout_search import UNSPLIT, rows
from benchmarks.published_trainings import GB, GIB, TRAININGS
from meshtf.lowering.report.report import Report


@pytest.fixture(autouse=True)
def _no_configuration_is_left() -> Iterator[None]:
    yield
    gin.clear_config()


def planned(name: str) -> Report:
    (training,) = (t for t in TRAININGS if t.name == name)
    return training.report()


def test_a_language_model_sends_what_is_read() -> None:
    """Gradients are scattered in bfloat16, and new weights gathered in bfloat16: 2 x 0.14 billion x 2 bytes."""
    report = planned("Mesh-TensorFlow LM 0.14B")
    assert report.bytes_sent_per_core <= 0.56 * GB
    assert report.memory.peak <= 1.5 * GIB


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
