"""Small batches of every model and configuration in two processes: the losses of one, and each makes its rows alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

import meshtf as mtf
from meshtf.cluster.cluster import Cluster
from meshtf.lowering.local_inputs import input_slices
from meshtf.train import Trainer
from meshtf_programs.packaged_configurations import recipes
from tests.cluster.joined_processes import JoinedProcesses
from tests.cluster.small_trainings import CLASSIFIER, STEPS, Made, Small, Trained, trained
from tests.house.by_kind import by_kind
from tests.models.test_recipes import OF_EXPERTS, layouts_of
from tests.models.transformers import KINDS, WITH_EXPERTS

pytestmark = pytest.mark.timeout(3600)

SAME = {
    "gpt2_xl": "gpt2",
    "switch_large": "switch_base",
    "resnet34": "resnet18",
    "resnet152": "resnet101",
    "vit_b16": "vit_s16",
    **{f"gshard_{n}b": "gshard_12b" for n in (37, 50, 150, 200, 600)},
}
"""Configurations that differ in the sizes alone that are made small here."""
DIFFERENT = [name for name in [*KINDS, CLASSIFIER] if name not in SAME]
BATCHES = (2, 64, 4, 16, 8, 32, 6)
NO_BATCH = ("TokenEmbedding.positions = @SinusoidalPositions()", "TransformerStack.bias = @DistanceBias()",
            "DistanceBias.config = @AttentionConfig()")  # fmt: skip
"""Constants of the program: sinusoids and slopes, beside the frequencies that lm_tiny has."""
ONE_LAYER = "TransformerStack.num_layers = 1"
SHORT = Small("lm_tiny", 6, "rows:4", parameters=(*NO_BATCH, ONE_LAYER, "TransformerStack.unroll = True"))
"""What is counted as rows of a batch where it is none, and rows that do not divide."""
PAIRS = Small("t5_1_0", 4, "rows:2;cols:2", "batch:rows;heads:cols", ("num_layers = 1",), {"num_microbatches": 2})
"""Micro-batches, of pairs of texts."""

PIPELINE = ("TransformerStack.pipeline = @PipelineSchedule()", "PipelineSchedule.num_stages = 2",
            "PipelineSchedule.num_microbatches = 2")  # fmt: skip
RING = ("SelfAttention.algorithm = 'ring'",)
BY_HEADS = "batch:rows;heads:cols;d_ff:cols"
CROSSED = [
    PAIRS,
    Small("lm_tiny", 2, parameters=NO_BATCH),
    Small("llama", 4, "rows:2;cols:2", BY_HEADS, ("TransformerStack.recompute = 'nothing'",)),
    Small("llama", 16, "rows:4", parameters=("TransformerStack.unroll = True",), options={"num_microbatches": 4}),
    Small("llama", 6, "rows:4", options={"activation_dtype": "bfloat16"}),
    Small("llama", 8, "rows:2;stages:2", "batch:rows;stage:stages", PIPELINE),
    Small("llama", 8, "stages:2;rows:2", "batch:rows;stage:stages", PIPELINE, is_divided=False),
    Small("llama", 8, "rows:2;cols:2", "batch:rows+cols", options={"parameter_layout": "d_model:rows+cols"}),
    Small("llama", 4, "rows:2;cols:2", BY_HEADS, options={"activation_layout": "length:cols"}),
    Small("llama", 4, "rows:2;cols:2", "batch:cols;length:rows", RING, is_divided=False),
    Small("llama", 4, "rows:2;cols:2", "batch:cols", is_divided=False),
    Small("llama", 4, "rows:2;cols:2", "batch:cols", options={"axes_over_processes": ("cols",)}),
    Small("moe_tiny", 8, "rows:2;cols:2", "batch:rows+cols;experts:rows+cols"),
    Small("moe_tiny", 4, "rows:2;cols:2", f"{BY_HEADS};experts:rows;vocab:cols", NO_BATCH),
    Small("t5_1_0", 6, "rows:2", options={"num_microbatches": 3}),
    Small("resnet50", 8, "rows:4", options={"num_microbatches": 2}),
]
"""With what else a batch meets: recomputation, micro-batches, pipelines, weights and sequences in parts, experts."""


def under_recipe(recipe: str) -> Small:
    """A small model under one of the layouts that meshtf brings along."""
    own = {name: text for name, text in layouts_of(recipe).items() if text is not None}
    layout, parameters = own.pop("layout"), RING if recipe == "ring" else ()
    return Small("moe_tiny" if recipe in OF_EXPERTS else "lm_tiny", 8, "rows:2;cols:2", layout, parameters, own)


def train(cluster: Cluster, every: Sequence[Small]) -> list[Trained]:
    return [trained(small) for small in every]


def alone(every: Sequence[Small]) -> list[Trained]:
    """In one process, whose sums are taken in the order of two."""
    return [trained(small, num_processes=2) for small in every]


def own_rows(small: Small, process: int) -> range:
    """Those of the first half of the cores along the batch's axes, or of the second; or all."""
    if not small.is_divided:
        return range(small.batch_size)
    cores = math.prod(d.size for d in mtf.convert_to_shape(small.mesh_shape) if d.name in small.axes_of_batch)
    each = -(-small.batch_size // cores) * cores // 2
    return range(small.batch_size)[process * each : (process + 1) * each]


def check_rows(small: Small, by_process: Sequence[Sequence[Made]], by_one: Sequence[Made]) -> None:
    """Each process makes its rows of every training batch, and of every held-out one that has them, and no others.

    Of held-out batches all make all where a metric tells of the batch as a whole, as the load of experts does.
    """
    held_out = {place for made in by_one if not made.is_for_training for place in made.places}
    for process, every in enumerate(by_process):
        own = own_rows(small, process)
        batches = [made.places for made in every if made.is_for_training]
        assert len(batches) >= STEPS
        for places in batches:
            first = places[0] - own[0]
            assert first % small.batch_size == 0
            assert places == tuple(first + row for row in own)
        found = {place for made in every if not made.is_for_training for place in made.places}
        assert found == {place for place in held_out if small.name in WITH_EXPERTS or place % small.batch_size in own}


def check(processes: JoinedProcesses, every: Sequence[Small]) -> None:
    """Losses and evaluations are those of one process, to the bit."""
    processes.start(train, every)
    expected, found = alone(every), processes.returned(3000)
    for small, one, two in zip(every, expected, zip(*found, strict=True), strict=True):
        for own in two:
            assert (own.losses, own.held_out) == (one.losses, one.held_out), str(small)
        if one.made:
            check_rows(small, [own.made for own in two], one.made)


def test_small_batches_are_trained_on_as_in_one_process(two_processes: JoinedProcesses) -> None:
    check(two_processes, [SHORT])


def on_paper(small: Small) -> list[set[range]]:
    """For each of two processes, the rows that a training's two programs read of their inputs."""
    training = small.training(num_processes=2)
    mesh_impl = mtf.PlanMeshImpl(training.mesh_shape, training.layout, options=training.mesh_options)
    found: list[set[range]] = [set(), set()]
    for program in Trainer(training, mesh_impl).programs:
        plan = program._execution.plan
        for process, own in enumerate(found):
            cores = [core for core, of in enumerate(plan.process_of_core) if of == process]
            own.update(range(box[0].start, box[0].stop) for box in input_slices(plan, cores).values())
    return found


@pytest.mark.parametrize(
    "small", [*(Small(name, 2) for name in ("llama", "t5_1_0", "bert", "digits_mlp")), PAIRS], ids=str
)
def test_on_paper_a_process_reads_its_own_rows(small: Small) -> None:
    assert on_paper(small) == [{own_rows(small, 0)}, {own_rows(small, 1)}]


@pytest.mark.long
@pytest.mark.parametrize(("name", "batch_size"), by_kind({**KINDS, CLASSIFIER: CLASSIFIER}, (3, 5, *BATCHES)))
def test_on_paper_a_process_reads_its_own_rows_of_every_batch(name: str, batch_size: int) -> None:
    small = Small(name, batch_size)
    assert on_paper(small) == [{own_rows(small, 0)}, {own_rows(small, 1)}]


def test_configurations_that_are_the_same_when_they_are_small() -> None:
    """So that the sweep leaves nothing out by training each of these once."""
    for name, other in SAME.items():
        assert Small(name, 2).training().model == Small(other, 2).training().model


@pytest.mark.long
@pytest.mark.parametrize("small", CROSSED, ids=str)
def test_what_else_a_batch_meets(small: Small, two_processes: JoinedProcesses) -> None:
    check(two_processes, [small])


@pytest.mark.long
@pytest.mark.parametrize("recipe", recipes())
def test_every_recipe_gives_the_losses_of_one_process(recipe: str, two_processes: JoinedProcesses) -> None:
    check(two_processes, [under_recipe(recipe)])


@pytest.mark.long
@pytest.mark.parametrize(("name", "batch_size"), by_kind({name: KINDS.get(name, name) for name in DIFFERENT}, BATCHES))
def test_every_model_trains_on_every_batch_as_in_one_process(
    name: str, batch_size: int, two_processes: JoinedProcesses
) -> None:
    check(two_processes, [Small(name, batch_size)])
