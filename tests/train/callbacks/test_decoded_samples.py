"""Samples while a model learns: what is trained is the same with them, and they are the same when resumed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import gin
import pytest

from meshtf.layers import PipelineSchedule
from meshtf.train import Training
from meshtf.train.callbacks import DecodedSamples
from meshtf.train.callbacks.decoded_samples import _printable
from meshtf.train.configuration import ConfigurationError, find_gin_file
from meshtf.train.decoding import Decoding
from meshtf.train.monitoring.metrics import digest_of, read_metrics
from meshtf.train.training import configured_training
from tests.train.decoding.small_run import BINDINGS
from tests.train.test_loop import Run, run


@pytest.fixture
def training(tmp_path: Path) -> Training:
    """A small language model of some lines of text, for two steps, each followed by an evaluation."""
    (tmp_path / "text.txt").write_text("".join(f"line {number} of the text\n\n" for number in range(400)))
    more = (
        f'TextFiles.patterns = "{tmp_path}/*.txt"',
        'TextFiles.document = "paragraph"',
        "TextTask.num_evaluation_examples = 4",
        "Training.num_steps = 2",
        "Training.evaluate_every = 1",
        "TransformerStack.sublayers = [@FeedForward()]",
    )
    gin.parse_config_files_and_bindings([str(find_gin_file("lm_tiny.gin"))], [*BINDINGS, *more])
    return configured_training()


def samples(ended: Run) -> list[dict[str, object]]:
    """Without times, which no two runs share."""
    lines = read_metrics(ended.folder.samples)
    return [{name: value for name, value in line.items() if name != "time"} for line in lines]


def test_samples_change_nothing_that_is_trained(
    training: Training, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = DecodedSamples(["line 1", ""], Decoding("sample", max_new_tokens=3, seed=5))
    training = dataclasses.replace(training, callbacks=[drawn])
    with_samples = run(training, tmp_path / "with")
    without = run(dataclasses.replace(training, callbacks=[]), tmp_path / "without")
    assert digest_of(with_samples.trainer.variables) == digest_of(without.trainer.variables)
    assert with_samples.evaluation == without.evaluation
    assert [(line["step"], line["prompt"]) for line in samples(with_samples)] == [
        (step, prompt) for step in (1, 2) for prompt in ("line 1", "")
    ]
    assert "step 1: === prompt 1, rank 1, score " in capsys.readouterr().out
    before = samples(with_samples)
    assert samples(run(training, tmp_path / "with", trainer=with_samples.trainer)) == before  # finished already


def test_a_pipeline_is_refused(training: Training, tmp_path: Path) -> None:
    """The training's variables are divided into its stages, and those of the samples' programs are not."""
    schedule = PipelineSchedule(num_stages=1, num_microbatches=2)
    stack = dataclasses.replace(training.model.stack, pipeline=schedule)
    model = dataclasses.replace(training.model, stack=stack)
    training = dataclasses.replace(training, model=model, callbacks=[DecodedSamples(["line 1"])])
    with pytest.raises(ConfigurationError, match="decoding cannot share those of a pipeline"):
        run(training, tmp_path / "run")


@pytest.mark.long
def test_samples_of_a_resumed_run_are_those_of_the_undisturbed(training: Training, tmp_path: Path) -> None:
    drawn = DecodedSamples(["line 1"], Decoding("sample", max_new_tokens=8))
    training = dataclasses.replace(training, callbacks=[drawn], num_steps=3)
    whole = run(training, tmp_path / "whole")
    run(training, tmp_path / "parts", stop_after=1)
    assert samples(run(training, tmp_path / "parts")) == samples(whole)


def test_what_a_terminal_would_obey_is_not_shown() -> None:
    assert _printable("a\x1b[2Jb\tc\r\n\N{LATIN SMALL LETTER E WITH ACUTE}") == "a�[2Jb�c�\né"
