"""Programs that decode: they have no pipeline, and no expert in them drops a token."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gin
import pytest

import meshtf as mtf
from meshtf.layers import PipelineSchedule
from meshtf.layers.moe import ExpertChoiceRouter, MixtureOfExperts, SwitchRouter
from meshtf.models import TransformerLM
from meshtf.serving.step_program import StepSizes, step_program
from meshtf.train import RunFolder, Training
from meshtf.train.configuration import find_gin_file
from meshtf.train.decoding import Decoding
from meshtf.train.decoding.prompt_text import PromptText
from meshtf.train.decoding.text_decoder import ContinuedTexts, ScoredTexts
from meshtf.train.export import exported_model
from meshtf.train.layouts.without_pipelines import text_by_text, without_pipelines
from meshtf.train.trainer import mesh_of
from meshtf.train.training import configured_training
from tests.train.decoding.small_run import write_small_run

PIPELINE = (
    "TransformerStack.pipeline = @PipelineSchedule()",
    "PipelineSchedule.num_stages = 2",
    "PipelineSchedule.num_microbatches = 2",
    'Training.layout = "stage:rows"',
)
PROMPTS = [PromptText("x", "prompt 1"), PromptText("the text", "prompt 2")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Training]]:
    """One without a pipeline, and one with it, of the same variables as they start."""
    paths = [tmp_path_factory.mktemp("run") for _ in range(2)]
    bindings: list[tuple[str, ...]] = [(), PIPELINE]
    return [
        (path, write_small_run(path, "TransformerStack.num_layers = 2", *more))
        for path, more in zip(paths, bindings, strict=True)
    ]


def test_a_run_with_a_pipeline_continues_and_scores_as_one_without(runs: list[tuple[Path, Training]]) -> None:
    found: list[Any] = []
    for path, training in runs:
        continued = ContinuedTexts(training, mesh_of(training), Decoding(max_new_tokens=4), PROMPTS)
        scored = ScoredTexts(training, mesh_of(training), Decoding(), PROMPTS)
        assert [work.restore(RunFolder(path)) for work in (continued, scored)] == [3, 3]
        found.append(([one.ids for (one,) in continued], [one.log_likelihood for one in scored]))
    (ids, likelihoods), (others, other_likelihoods) = found
    assert ids == others
    # A text has up to 8 tokens, each a log-likelihood of some nats after some hundred float32 roundings.
    assert likelihoods == pytest.approx(other_likelihoods, abs=8 * 10 * 200 * 2**-24)


def test_a_run_with_a_pipeline_is_served_and_exported(runs: list[tuple[Path, Training]]) -> None:
    _, (_, training) = runs
    sizes = StepSizes(4, 4, length=4, pages=1, page_size=4, num_pages=4, num_likeliest=1, vocab_size=258)
    score = exported_model(training, Decoding()).restorable
    step = step_program(training, mtf.PlanMeshImpl("rows:1", ""), sizes)
    shared = [name for name in step.graph.variables if not name.startswith("pages/")]
    assert shared == list(score.graph.variables)
    for name in shared:
        assert step.graph.variables[name].outputs[0].shape == score.graph.variables[name].outputs[0].shape


def test_a_classifier_with_a_pipeline_is_exported() -> None:
    gin.parse_config_files_and_bindings([str(find_gin_file("digits_amoeba_net.gin"))], [])
    training = configured_training()
    assert training.model.pipeline is not None
    assert exported_model(training, Decoding(), batch_size=1).name == "AmoebaNetD"


def test_no_expert_drops_a_token_of_a_score(tmp_path: Path) -> None:
    """Experts have places in proportion to a row's length, which is that of the longest text."""
    training = write_small_run(
        tmp_path,
        "import meshtf.layers.moe",
        "TransformerStack.sublayers = [@SelfAttention(), @MixtureOfExperts()]",
        "MixtureOfExperts.num_experts = 4",
        "MixtureOfExperts.d_ff = 16",
        "MixtureOfExperts.capacity = @Capacity()",
    )
    found: list[float] = []
    for more in ([], [PromptText("a much longer text", "prompt 2")]):
        work = ScoredTexts(training, mesh_of(training), Decoding(), [PromptText("the text", "prompt 1"), *more])
        work.restore(RunFolder(tmp_path))
        found.append(next(iter(work)).log_likelihood)
    assert found[0] == pytest.approx(found[1], abs=8 * 10 * 200 * 2**-24)


def test_experts_that_choose_their_tokens_keep_their_places() -> None:
    """They could not choose without."""
    choosing = MixtureOfExperts(num_experts=2, d_ff=4, router=ExpertChoiceRouter())
    switch = MixtureOfExperts(num_experts=2, d_ff=4, router=SwitchRouter())
    assert text_by_text([choosing, switch]) == [choosing, dataclasses.replace(switch, capacity=None)]
    assert without_pipelines([choosing, switch]) == [choosing, switch]


def test_only_what_has_a_pipeline_is_made_anew(runs: list[tuple[Path, Training]]) -> None:
    (_, plain), (_, piped) = runs
    assert without_pipelines(plain.model) is plain.model
    assert isinstance(piped.model, TransformerLM)
    changed = without_pipelines(piped.model)
    assert changed.stack.pipeline is None
    assert dataclasses.replace(changed, stack=piped.model.stack) == piped.model

    @dataclasses.dataclass
    class Parts:
        parts: list[object]
        pipeline: str = "a word"

    one = Parts([1, piped.model])
    assert without_pipelines(one) == Parts([1, changed])
    assert without_pipelines(PipelineSchedule(2, 2)) == PipelineSchedule(2, 2)
