"""A small training, planned in several layouts, for all that shows plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from meshtf.bin.layouts.plan_layouts import LayoutPlanner
from meshtf.costs import load_machine
from meshtf.plan_view.planned_layout import PlannedLayout
from meshtf.train.configuration import find_gin_file
from meshtf.train.training import Training
from tests.plan_view.browser import started

NOT_POSSIBLE = "batch:nowhere"


@pytest.fixture(scope="module")
def planner() -> LayoutPlanner:
    mesh = ["Training.mesh_shape = 'rows:4;cols:2'", "Training.layout = 'batch:rows;hidden:cols'"]
    return LayoutPlanner([find_gin_file("digits_mlp.gin")], mesh, None, load_machine("v5e"), allow_unread=False)


@pytest.fixture(scope="module")
def training_and_layouts(planner: LayoutPlanner) -> tuple[Training, list[PlannedLayout]]:
    others = planner.compared(["data", NOT_POSSIBLE, "mesh_shape=rows:2;cols:1 batch_size=32"])
    training, first = planner.as_configured("as configured")
    return training, [first, *others]


@pytest.fixture(scope="module")
def training(training_and_layouts: tuple[Training, list[PlannedLayout]]) -> Training:
    return training_and_layouts[0]


@pytest.fixture(scope="module")
def layouts(training_and_layouts: tuple[Training, list[PlannedLayout]]) -> list[PlannedLayout]:
    return training_and_layouts[1]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from started(tmp_path_factory.mktemp("profile"))
