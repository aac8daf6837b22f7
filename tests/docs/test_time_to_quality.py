"""The predictions on the page about time to quality are those of the configurations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import gin
import pytest

import meshtf as mtf
from meshtf.costs import load_machine, predict
from meshtf.train.configuration import find_gin_file, read_configuration
from meshtf.train.step_programs import training_step
from meshtf.train.training import configured_training

PAGE = Path(__file__).parents[2] / "docs" / "time_to_quality.md"
ROW = re.compile(r"\| (.+) \| ([\d,]+) of (v\d) \| ([\d.,]+) \| ([\d.]+) \|")
GIB = 1 << 30
SHORT = ("transformer", "bert", "dlrm")


@pytest.fixture(autouse=True)
def _no_configuration_is_left() -> Iterator[None]:
    yield
    gin.clear_config()


def test_every_configuration_has_a_row() -> None:
    files = sorted(path.stem for path in find_gin_file("quality/on_paper/bert.gin").parent.glob("*.gin"))
    assert sorted(rows()) == files


@pytest.mark.parametrize(
    "name", [*SHORT, *(pytest.param(name, marks=pytest.mark.long) for name in ("resnet50", "ssd", "amoeba_net_d"))]
)
def test_a_row_is_what_the_configuration_plans(name: str) -> None:
    cores, machine, milliseconds, gibibytes = rows()[name]
    read_configuration([find_gin_file(f"quality/on_paper/{name}.gin")], [])
    training = configured_training()
    mesh_impl = mtf.PlanMeshImpl(training.mesh_shape, training.layout, options=training.mesh_options)
    report = training_step(training, mesh_impl).report()
    seconds = predict(report, load_machine(machine)).seconds
    assert mtf.convert_to_shape(training.mesh_shape).size == int(cores.replace(",", ""))
    assert float(f"{seconds * 1e3:.3g}") == float(milliseconds.replace(",", ""))
    assert f"{report.memory.peak / GIB:.1f}" == gibibytes


def rows() -> dict[str, tuple[str, str, str, str]]:
    """Cores, machine, milliseconds and GiB of each row of the table, by the name of the configuration."""
    names = {
        "ResNet-50": "resnet50", "Transformer": "transformer", "BERT-large": "bert", "DLRM": "dlrm",
        "SSD-ResNet-34": "ssd", "AmoebaNet-D": "amoeba_net_d",
    }  # fmt: skip
    found = {}
    for title, *cells in ROW.findall(PAGE.read_text()):
        (name,) = (name for start, name in names.items() if title.startswith(start))
        found[name] = tuple(cells)
    return found
