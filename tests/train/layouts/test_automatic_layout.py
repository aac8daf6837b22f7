"""A configuration that asks for a layout: what is searched for it, what is kept of a run, and what it refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import meshtf as mtf
from meshtf.errors import LayoutError
from meshtf.layout_search import LayoutChoice, MeshLayout, PricedLayout, SearchEnd, auto_layout
from meshtf.train.configuration import ConfigurationError, find_gin_file
from meshtf.train.layouts.automatic_layout import ChosenLayout, chosen_layout

FILES = [find_gin_file("lm_tiny.gin")]
TINY = ["TransformerStack.num_layers = 1", "TextTask.length = 16", "Training.layout = 'auto'"]
V5E = mtf.costs.load_machine("v5e")


def choice(seconds: float, in_any_memory: float, communication: float = 0.0) -> LayoutChoice:
    layout = MeshLayout(mtf.convert_to_shape("rows:4;cols:2"), mtf.convert_to_layout_rules("batch:rows+cols"))
    parts = (("products", seconds - communication), ("all_gather over rows", communication))
    best = PricedLayout(layout, seconds, 1000, parts)
    return LayoutChoice("train_step", "v5e", best, (), 1e9, 7, in_any_memory, 0.1, False, SearchEnd("no improvement"))


@dataclasses.dataclass
class Searching:
    """Stands in for the search: gives what it is told for one program after the other."""

    found: list[LayoutChoice | LayoutError]
    asked: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    def __call__(
        self, program: mtf.Function, mesh: str, machine: mtf.costs.Machine, keep: str, **how: Any
    ) -> LayoutChoice:
        self.asked.append((mesh, keep))
        found = self.found[len(self.asked) - 1]
        if isinstance(found, LayoutError):
            raise found
        return found


def chosen(search: Searching, *more: str, **options: Any) -> ChosenLayout | None:
    return chosen_layout(FILES, [*TINY, *more], options.pop("machine", lambda: V5E), search=search, **options)


def test_what_fits_at_once_is_taken() -> None:
    search = Searching([choice(2.0, 2.0)])
    found = chosen(search)
    assert found is not None
    assert [parameter.binding for parameter in found.bindings] == [
        "Training.mesh_shape = 'rows:4;cols:2'",
        "Training.layout = 'batch:rows+cols'",
        "Training.parameter_layout = None",
        "Training.activation_layout = None",
    ]
    assert 'Training.layout = "batch:rows+cols"' in str(found)
    assert len(search.asked) == 1


def test_recomputation_and_micro_batches_are_tried_where_memory_is_wanting() -> None:
    search = Searching([LayoutError("too large"), choice(3.0, 1.0), choice(2.0, 1.0), choice(2.5, 1.0)])
    found = chosen(search)
    assert found is not None
    more = [parameter.binding for parameter in found.bindings[4:]]
    assert more == ["TransformerStack.recompute = 'nothing'", "Training.num_microbatches = 2"]
    assert "  with Training.num_microbatches = 2" in str(found)
    assert len(search.asked) == 4


FOUR_LAYERS = "TransformerStack.num_layers = 4"
PIPELINE = "TransformerStack.pipeline = @PipelineSchedule()"


def test_a_pipeline_is_tried_where_its_stages_wait_for_less_than_collectives_take() -> None:
    """Of 4 stages and 32 micro-batches 8.6 % is waiting, of 2 and 16 5.9 %."""
    search = Searching([choice(2.0, 2.0, communication=0.15), choice(1.9, 1.9)])
    found = chosen(search, FOUR_LAYERS)
    assert found is not None
    assert search.asked == [("rows:4;cols:2", ""), ("rows:4;cols:2", "stage:cols")]
    more = [parameter.binding for parameter in found.bindings[4:]]
    assert more == [PIPELINE, "PipelineSchedule.num_stages = 2", "PipelineSchedule.num_microbatches = 16"]
    assert "  with PipelineSchedule.num_stages = 2" in str(found)
    slower = chosen(Searching([choice(2.0, 2.0, communication=0.15), choice(2.1, 2.1)]), FOUR_LAYERS)
    assert slower is not None
    assert len(slower.bindings) == 4
    search = Searching([*[LayoutError("too large")] * 6, choice(2.0, 2.0), choice(1.0, 1.0)])
    found = chosen(search, FOUR_LAYERS, "Training.mesh_shape = 'auto:4'")
    assert found is not None
    assert search.asked[6:] == [("auto:4", "stage:rows")] * 2
    assert "PipelineSchedule.num_stages = 4" in str(found)


def test_a_pipeline_that_leaves_its_stages_open_gets_as_many_as_are_quickest() -> None:
    passing = "PipelineSchedule.num_microbatches = 8"

    def search(*args: Any, max_planned_operations: int = 0, **options: Any) -> LayoutChoice:
        return auto_layout(*args, max_planned_operations=1_500, **options)

    parameters = [*TINY, FOUR_LAYERS, PIPELINE, passing, "Training.mesh_shape = 'rows:2'"]
    found = chosen_layout(FILES, parameters, lambda: V5E, search=search)
    assert found is not None
    assert found.choice is not None
    assert [parameter.binding for parameter in found.bindings[4:]] == ["PipelineSchedule.num_stages = 2"]
    assert "stage:rows" in str(found.choice.layout.layout)
    with pytest.raises(
        ConfigurationError,
        match=r"num_stages is searched together with the layout, but no number of stages fits mesh \[rows:1\]",
    ):
        chosen(Searching([]), PIPELINE, "Training.mesh_shape = 'rows:1'")


def test_what_the_configuration_says_is_not_changed() -> None:
    said = ("TransformerStack.recompute = 'products'", "Training.num_microbatches = 4")
    with pytest.raises(LayoutError, match="too large"):
        chosen(Searching([LayoutError("too large")]), *said)


def test_a_run_keeps_what_it_has_chosen() -> None:
    before = "Training.layout = 'batch:rows'\nTraining.mesh_shape = 'rows:8'\nTraining.num_steps = 7\n"
    found = chosen(Searching([]), run_before=lambda: before)
    assert found is not None
    assert [p.binding for p in found.bindings] == ["Training.mesh_shape = 'rows:8'", "Training.layout = 'batch:rows'"]
    assert "as the run has chosen it" in str(found)
    piped = f"{before}TransformerStack.pipeline = @PipelineSchedule()\nPipelineSchedule.num_stages = 2\n"
    found = chosen(Searching([]), "PipelineSchedule.num_stages = 4", run_before=lambda: piped)
    assert found is not None
    assert [parameter.binding for parameter in found.bindings[2:]] == [PIPELINE]


def test_a_layout_that_is_given_is_not_searched_for() -> None:
    assert chosen(Searching([]), "Training.layout = 'batch:rows'") is None


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigurationError, match="give --machine"):
        chosen(Searching([]), machine=None)
    with pytest.raises(ConfigurationError, match=r"mesh \[rows:\*\] is as large as the devices allow"):
        chosen(Searching([]), "Training.mesh_shape = 'rows:*'")
    with pytest.raises(ConfigurationError, match="is 'batch:rows': give --layout=auto"):
        chosen(Searching([]), "Training.mesh_shape = 'auto:8'", "Training.layout = 'batch:rows'")
