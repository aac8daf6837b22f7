"""Compares measured peak memory with the plan's, for small versions of published trainings.

    python -m benchmarks.published.scaled_down_trainings
    python -m benchmarks.published.scaled_down_trainings --only=gpipe --page=

There are six trainings with the layouts, schedules, optimizers and dtypes of `benchmarks.published.trainings` (and
Llama), on two virtual CPUs. Each has a separate process that returns freed memory (see `benchmarks.memory`). The
measurement is how far the process's memory rises above its memory between steps, plus the variables, as the plan counts
them. The plan's number is the sum of both cores' peaks, since on two or more processors both work at once. The table is
written into docs/control_flow.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import meshtf as mtf
from benchmarks.cost_model.predicted_times import written
from benchmarks.measuring.machine import machine
from benchmarks.memory import GIVES_BACK, MEBIBYTE, rise
from benchmarks.published.trainings import GPIPE, GSHARD, LINGVO, MESH_TENSORFLOW, RESNET, Training
from meshtf.train.configuration import find_gin_file, read_configuration
from meshtf.train.step_programs import training_step
from meshtf.train.training import configured_training

CORES = 2
PAGE = Path(__file__).parents[2] / "docs/control_flow.md"
BEGIN, END = "<!-- scaled_down_trainings -->", "<!-- end of scaled_down_trainings -->"


def _smaller(training: Training, name: str, mesh_shape: str, batch_size: int, length: int, *bindings: str) -> Training:
    return dataclasses.replace(
        training,
        name=name,
        mesh_shape=mesh_shape,
        batch_size=batch_size,
        length=length,
        bindings=(*training.bindings, *bindings),
    )


_LLAMA = Training(
    "Llama",
    "rows:2;cols:1",
    "batch:rows;heads:cols;d_ff:cols;vocab:cols",
    8,
    512,
    ("lm_tiny.gin", "llama.gin"),
    (
        *("d_model = 256", "d_ff = 704", "num_heads = 8", "num_kv_heads = 8", "d_kv = 32", "num_layers = 8"),
        *("vocab_size = 4096", "TransformerStack.recompute = 'nothing'"),
        "Training.parameter_layout = 'd_model:rows;heads:cols;d_ff:cols;vocab:cols'",
    ),
)
_SMALL_MODEL = (
    *("TransformerLM.d_model = 256", "VocabularyEmbedding.vocab_size = 4096", "FeedForward.d_ff = 1024"),
    *("AttentionConfig.num_heads = 8", "AttentionConfig.d_kv = 32", "TransformerStack.num_layers = 8"),
)
_SMALL_MACROS = ("d_model = 256", "d_ff = 1024", "num_heads = 8", "d_kv = 32")
TRAININGS = {
    training.name: training
    for training in (
        _smaller(
            *(GPIPE[1], "GPipe", "stages:2", 16, 256, *_SMALL_MODEL),
            *("PipelineSchedule.num_stages = 2", "PipelineSchedule.num_microbatches = 8"),
        ),
        _smaller(
            *(GSHARD[-1], "GShard", "all:2", 8, 512, *_SMALL_MACROS, "num_experts = 8", "num_layers = 2"),
            *("vocab_size = 4096", "targets_vocab_size = 4096", "group_size = 512"),
        ),
        _smaller(LINGVO[0].two_dimensional(), "Lingvo 2-D", "x:2;y:1", 4, 512, *_SMALL_MODEL),
        _smaller(RESNET[0], "ResNet-50", "rows:2", 8, 0, "images_on_paper.size = 96"),
        _smaller(
            *(MESH_TENSORFLOW[0], "Mesh-TensorFlow LM", "batch:2", 8, 256, *_SMALL_MACROS),
            *("vocab_size = 4096", "num_layers = 4"),
        ),
        _LLAMA,
    )
}


@dataclasses.dataclass(frozen=True)
class Row:
    """The planned and measured bytes of all cores together."""

    name: str
    mesh_shape: str
    planned: int
    measured: int

    def cells(self) -> list[str]:
        planned, measured = (f"{b / MEBIBYTE:,.0f}" for b in (self.planned, self.measured))
        return [self.name, f"`{self.mesh_shape}`", planned, measured, f"{self.planned / self.measured:.2f}"]


HEADS = ["training", "mesh", "planned, MiB", "measured, MiB", "ratio"]


def measured(name: str) -> Row:
    """Measures a training in this process."""
    own = TRAININGS[name]
    read_configuration([find_gin_file(file) for file in own.files], [*own.all_bindings()])
    training = configured_training()
    mesh_impl = mtf.SpmdMeshImpl(training.mesh_shape, training.layout, options=training.mesh_options)
    step = training_step(training, mesh_impl)
    specs = training.task.inputs(training.batch)
    features = {
        key: np.ones(spec.shape.to_integer_list, spec.dtype.as_numpy_dtype) for key, spec in sorted(specs.items())
    }
    call = functools.partial(step, **features)
    call()
    report = step.report()
    variables = CORES * report.memory.variables
    return Row(name, own.mesh_shape, CORES * report.memory.peak, rise(call) + variables)


def in_a_process(name: str) -> Row:
    command = [sys.executable, "-m", "benchmarks.published.scaled_down_trainings", f"--measure={name}"]
    output = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **GIVES_BACK}
    ).stdout
    return Row(**json.loads(output.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="trainings whose names have this text")
    parser.add_argument("--page", default=str(PAGE), help="where the table goes; nowhere if empty")
    parser.add_argument("--measure", default="", help="one training, in this process")
    arguments = parser.parse_args()
    mtf.virtual_cpus(CORES)
    if arguments.measure:
        print(json.dumps(dataclasses.asdict(measured(arguments.measure))))
        return
    lines = [" | ".join(HEADS), " | ".join("---" for _ in HEADS)]
    for name in TRAININGS:
        if arguments.only.lower() in name.lower():
            lines.append(" | ".join(in_a_process(name).cells()))
            print(lines[-1], flush=True)
    text = "\n".join([f"{machine()}.", "", *(f"| {line} |" for line in lines)])
    print(text)
    if arguments.page:
        written(Path(arguments.page), text, BEGIN, END)


if __name__ == "__main__":
    main()
