"""Runs whole programs on a GPU, as users start them. They train, are killed, resume, evaluate, decode and export."""

from __future__ import annotations

import dataclasses
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from meshtf.train.monitoring.metrics import read_metrics

_LONGEST_SECONDS = 300
_DIGITS_LEAST = 0.93
"""An accuracy on the held-out digits that `digits_mlp` exceeds by far."""

_TINY = (
    "d_model=16",
    "AttentionConfig.num_heads=2",
    "AttentionConfig.d_kv=8",
    "FeedForward.d_ff=32",
    "TransformerStack.num_layers=2",
    "TextTask.length=32",
    "TextTask.num_evaluation_examples=8",
    "Training.batch_size=8",
)


@dataclasses.dataclass(frozen=True)
class Programs:
    """The programs, with folders for their runs. `virtual`: the number of virtual GPUs, or None for real ones."""

    folder: Path
    virtual: int | None

    def check_digits(self) -> str:
        """Trains `digits_mlp`, and checks its accuracy."""
        self.trained("digits_mlp", "digits", ["Training.num_steps=300"])
        accuracy = self.last("digits", "held_out_accuracy")
        assert accuracy > _DIGITS_LEAST, f"the accuracy is {accuracy}"
        return f"trained to an accuracy of {accuracy:.3f}"

    def check_lm_tiny(self) -> str:
        """Trains `lm_tiny`, kills it after a checkpoint, resumes, evaluates, decodes and exports it."""
        began, run = time.perf_counter(), self.folder / "lm_tiny"
        step = self._killed("lm_tiny", "lm_tiny", self._lm_tiny)
        self.trained("lm_tiny", "lm_tiny", self._lm_tiny)
        seconds = time.perf_counter() - began
        first, last = self._losses("lm_tiny")
        assert last < first, f"the loss went from {first} to {last}"
        evaluated = self._loss_of(self._run("eval", f"--model_dir={run}", *self._mesh))
        told = self.last("lm_tiny", "held_out_loss")
        assert abs(evaluated - told) < 1e-3 * evaluated, f"evaluated to {evaluated}, and to {told} in training"
        decoded = self._run("decode", f"--model_dir={run}", "--prompt=def ", "--max_new_tokens=4", *self._mesh)
        assert "def " in decoded, decoded
        self._run("export", f"--model_dir={run}", f"--output={self.folder / 'exported'}", "--max_new_tokens=4")
        assert list((self.folder / "exported").rglob("saved_model.pb"))
        return (
            f"killed at step {step} and resumed, {seconds:.0f} s; loss {first:.3f} to {last:.3f}; evaluated, decoded, "
            "exported"
        )

    def check_checkpoints(self) -> str:
        """Trains on two virtual CPUs, continues on the GPU, and evaluates there and on two virtual CPUs again."""
        on_cpus = ("--mesh_shape=all:2", "--layout=batch:all")
        self.trained("digits_mlp", "carried", ["Training.num_steps=20"], mesh=on_cpus)
        self.trained("digits_mlp", "carried", ["Training.num_steps=40"])
        run = f"--model_dir={self.folder / 'carried'}"
        losses = [self._loss_of(self._run("eval", run, *mesh)) for mesh in (self._mesh, on_cpus)]
        assert abs(losses[0] - losses[1]) < 1e-2 * losses[1], f"the losses are {losses}"
        return f"20 steps on CPUs and 20 on the GPU; evaluated to {losses[0]:.4f} there and {losses[1]:.4f} on CPUs"

    @property
    def _lm_tiny(self) -> list[str]:
        steps = 400 if self.virtual is None else 200
        own = [] if self.virtual is None else _TINY
        return [f"Training.num_steps={steps}", "Training.checkpoint_every_steps=8", "Training.log_every=4", *own]

    @property
    def _mesh(self) -> tuple[str, ...]:
        virtual = () if self.virtual is None else (f"--virtual={self.virtual}",)
        return ("--backend=gpu", *virtual, "--mesh_shape=all:1", "--layout=")

    def trained(self, gin_file: str, run: str, bindings: list[str], mesh: tuple[str, ...] = ()) -> None:
        """Trains to the end."""
        self._run("train", *self._training(gin_file, run, bindings), *(mesh or self._mesh))

    def last(self, run: str, name: str) -> float:
        """The last value of a metric."""
        return float([row[name] for row in read_metrics(self.folder / run / "metrics.jsonl") if name in row][-1])

    def _losses(self, run: str) -> tuple[float, float]:
        losses = [float(row["loss"]) for row in read_metrics(self.folder / run / "metrics.jsonl") if "loss" in row]
        return losses[0], losses[-1]

    def _training(self, gin_file: str, run: str, bindings: list[str]) -> list[str]:
        return [
            f"--gin_file={gin_file}.gin",
            f"--model_dir={self.folder / run}",
            *(f"--gin_param={binding}" for binding in bindings),
        ]

    def _run(self, program: str, *arguments: str) -> str:
        """Runs a program, checks that it succeeds, and returns its output."""
        command = [sys.executable, "-m", f"meshtf.bin.{program}", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_SECONDS, check=False)
        assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def _killed(self, gin_file: str, run: str, bindings: list[str]) -> int:
        """Starts a training, kills it as soon as it has a checkpoint, and returns the step of its last checkpoint."""
        command = [sys.executable, "-m", "meshtf.bin.train", *self._training(gin_file, run, bindings), *self._mesh]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as started:
            until = time.monotonic() + _LONGEST_SECONDS
            while not (steps := self._checkpoints(run)) and started.poll() is None:
                assert time.monotonic() < until, "no checkpoint was written"
                time.sleep(0.05)
            started.send_signal(signal.SIGKILL)
            output = started.communicate()[0]
        assert steps, output
        return max(self._checkpoints(run))

    def _checkpoints(self, run: str) -> list[int]:
        written = (self.folder / run / "checkpoints").glob("step_*/manifest.json")
        return [int(path.parent.name.removeprefix("step_")) for path in written]

    @staticmethod
    def _loss_of(output: str) -> float:
        found = re.search(r"loss[\"' :=]+([0-9.]+)", output)
        assert found is not None, output
        return float(found.group(1))
