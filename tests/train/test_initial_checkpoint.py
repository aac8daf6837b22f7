"""A training that begins with weights of another: which it takes, which begin anew, and what is refused."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import CheckpointError
from meshtf.quantization import Quantization, QuantizationAware
from meshtf.train import InitialCheckpoint, RunFolder, Trainer, Training, TrainingRun
from meshtf.train.configuration import ConfigurationError
from meshtf.train.runs.resuming import resumed_start
from meshtf.train.runs.signals import StopRequest
from tests.train.conftest import TinyModel

Make = Callable[..., Training]


@pytest.fixture(scope="module")
def tiny_training(tiny_training: Make) -> Make:
    """On one core, which costs least."""
    return functools.partial(tiny_training, mesh_shape="cores:1", layout="")


@dataclasses.dataclass(frozen=True)
class Before:
    """A run of two steps, in whose folder the others find their weights."""

    path: str
    values: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def before(tiny_training: Make, tmp_path_factory: pytest.TempPathFactory) -> Before:
    path = tmp_path_factory.mktemp("before")
    return Before(str(path), values(trained(tiny_training(num_steps=2), path)))


def trained(training: Training, path: Path) -> Trainer:
    """A run, taken to its end."""
    trainer, folder = Trainer(training), RunFolder.made(path)
    TrainingRun(trainer, folder, resumed_start(trainer, folder), StopRequest(), []).run()
    return trainer


def values(trainer: Trainer) -> dict[str, np.ndarray]:
    return {name: trainer.variables[name] for name in trainer.variables}


def test_weights_are_taken_over_and_the_rest_begins_anew(
    tiny_training: Make, before: Before, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen = mtf.optimize.ParameterGroups(
        [("^hidden/", mtf.optimize.FrozenOptimizer())], default=mtf.optimize.AdamWOptimizer(0.05)
    )
    fine_tuning = tiny_training(num_steps=2, optimizer=frozen, initial_checkpoint=before.path)
    capsys.readouterr()
    after = values(trained(fine_tuning, tmp_path / "after"))
    assert capsys.readouterr().out.startswith(f"begins with:   4 tensors of {before.path}\n")
    for name in ("hidden/kernel", "hidden/bias"):
        np.testing.assert_array_equal(after[name], before.values[name])
    assert not np.array_equal(after["out/kernel"], before.values["out/kernel"])
    assert after["adam/step"] == 2

    trainer = Trainer(fine_tuning)
    assert resumed_start(trainer, RunFolder(tmp_path / "after")).step == 2
    np.testing.assert_array_equal(values(trainer)["out/kernel"], after["out/kernel"], "the run's own goes first")


def test_with_the_optimizers_state_training_goes_on(tiny_training: Make, before: Before, tmp_path: Path) -> None:
    """Quantization-aware training is the one thing that may begin then: with ranges and a count of steps of 0."""
    given = InitialCheckpoint(before.path, with_optimizer_state=True)
    static = QuantizationAware(Quantization(activations="static"))
    trainer = Trainer(tiny_training(initial_checkpoint=given, quantization_aware=static))
    assert resumed_start(trainer, RunFolder.made(tmp_path / "after")).step == 0
    new = {"hidden/kernel/input_range", "out/kernel/input_range", "quantization_aware/step"}
    for name, value in values(trainer).items():
        np.testing.assert_array_equal(value, 0 if name in new else before.values[name])
    assert new <= values(trainer).keys()


def test_a_new_head_begins_anew_and_is_named(
    tiny_training: Make, before: Before, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = [("out/(.*)", None), ("hidden/kernel", "hidden/kernel")]
    given = InitialCheckpoint(before.path, rules)
    trainer = Trainer(tiny_training(initial_checkpoint=given))
    capsys.readouterr()
    resumed_start(trainer, RunFolder.made(tmp_path / "after"))
    assert "; anew: out/kernel, out/bias" in capsys.readouterr().out
    np.testing.assert_array_equal(trainer.variables["hidden/kernel"], before.values["hidden/kernel"])
    assert not np.array_equal(trainer.variables["out/kernel"], before.values["out/kernel"])


def test_adapters_go_before_the_weights_beside_them(tiny_training: Make, before: Before, tmp_path: Path) -> None:
    np.savez(tmp_path / "adapters.npz", **{"out/bias": np.array([7.0], np.float32)})
    given = InitialCheckpoint(before.path, adapters=str(tmp_path / "adapters.npz"))
    trainer = Trainer(tiny_training(initial_checkpoint=given))
    resumed_start(trainer, RunFolder.made(tmp_path / "after"))
    assert trainer.variables["out/bias"] == [7.0]
    np.testing.assert_array_equal(trainer.variables["out/kernel"], before.values["out/kernel"])


def test_adapters_without_a_place_are_named(tiny_training: Make, before: Before, tmp_path: Path) -> None:
    np.savez(tmp_path / "adapters.npz", **{"hidden/kernel_lora_a": np.zeros([4, 1], np.float32)})
    given = InitialCheckpoint(before.path, adapters=str(tmp_path / "adapters.npz"))
    trainer = Trainer(tiny_training(initial_checkpoint=given))
    with pytest.raises(CheckpointError, match=r"have 1 tensor that the model has no place for, .*kernel_lora_a"):
        resumed_start(trainer, RunFolder.made(tmp_path / "after"))
    assert list((tmp_path / "after").iterdir()) == []


def test_what_does_not_fit_is_named_and_nothing_begins(tiny_training: Make, before: Before, tmp_path: Path) -> None:
    refusals: list[tuple[Any, str]] = [
        (before.path, r"(?s)hidden/kernel is \[4, 8\] float32 there and \[4, 6\].*InitialCheckpoint\.rules = "),
        (InitialCheckpoint(before.path, [("nothing", None)]), "nothing"),
        (str(tmp_path / "absent"), "is not the folder of a checkpoint"),
    ]
    for initial, message in refusals:
        trainer = Trainer(tiny_training(model=TinyModel(hidden=6), initial_checkpoint=initial))
        with pytest.raises(CheckpointError, match=message):
            resumed_start(trainer, RunFolder.made(tmp_path / "after"))
        assert list((tmp_path / "after").iterdir()) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InitialCheckpoint(""), "path must be the path of a checkpoint, and is ''"),
        (lambda: InitialCheckpoint("a", [("b",)]), r"rules must be .* is \[\('b',\)\]"),  # type: ignore[list-item]
        (
            lambda: InitialCheckpoint("a", [("(b", None)]),
            r'rules: name rule "\(b" is not a regular expression: missing \)',
        ),
    ],
)
def test_settings_that_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_neither_a_path_nor_a_checkpoint(tiny_training: Make) -> None:
    with pytest.raises(ConfigurationError, match=r"must be the path of a checkpoint, or @Init.* 3"):
        tiny_training(initial_checkpoint=3)
