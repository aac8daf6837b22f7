"""meshtf-train: trains what a gin configuration describes, and says how well it did on held-out examples."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

import meshtf as mtf
from meshtf.errors import LayoutWarning, MeshtfError
from meshtf.train.configuration import (
    configuration_errors,
    find_gin_file,
    make_model_folder,
    packaged_folder,
    read_configuration,
    write_operative_configuration,
)
from meshtf.train.loop import Trainer, Training
from meshtf.train.metrics import METRICS_FILE, digest_of, metrics_log

PROGRAM = "meshtf-train"
BAD_CONFIGURATION, FAILED, INTERRUPTED = 2, 1, 130

GIN_FILE = flags.DEFINE_multi_string(
    "gin_file",
    [],
    "A gin configuration: the name of one of meshtf's own, or a path. May be given several times; later ones win.",
)
GIN_PARAM = flags.DEFINE_multi_string(
    "gin_param",
    [],
    "A gin binding that overrides the files, as 'Training.num_steps=100'. May be given several times.",
)
MODEL_DIR = flags.DEFINE_string(
    "model_dir",
    None,
    "Where the operative configuration and the metrics are written; by default runs/<name of the last gin file>.",
)

HELP = """\
{program} trains a model on a mesh of processors, as a gin configuration describes.

Usage:
  {program} --gin_file=NAME [--gin_file=NAME ...] [--gin_param=BINDING ...] [--model_dir=FOLDER]

Examples:
  {program} --gin_file=digits_mlp.gin
  {program} --gin_file=digits_mlp.gin --gin_param='Training.layout="batch:rows+cols"'

Flags:
{flags}

Configurations that meshtf brings along: {configurations}
"""


def run() -> None:
    """The console script."""
    app.run(main, flags_parser=parse_flags)


def parse_flags(arguments: Sequence[str]) -> list[str]:
    """Sets the flags. Exits with the help where it is asked for, or with an error that names the nearest flag."""
    if {"-h", "--help", "-help", "--helpshort"} & set(arguments[1:]):
        print(help_text(), end="")
        sys.exit(0)
    try:
        rest = flags.FLAGS(arguments)
        if len(rest) > 1:
            raise flags.Error(f"unexpected argument {rest[1]!r}; a configuration is given with --gin_file={rest[1]}")
        if not GIN_FILE.value:
            raise flags.Error("--gin_file is needed, for example --gin_file=digits_mlp.gin")
    except flags.Error as error:
        complain(f"{error}\nSee {PROGRAM} --help.")
        sys.exit(BAD_CONFIGURATION)
    return rest


def help_text() -> str:
    holders = (GIN_FILE, GIN_PARAM, MODEL_DIR)
    described = "\n".join(f"  --{holder.name}\n      {flags.FLAGS[holder.name].help}" for holder in holders)
    configurations = ", ".join(sorted(path.name for path in packaged_folder().glob("*.gin")))
    return HELP.format(program=PROGRAM, flags=described, configurations=configurations)


def main(_: Sequence[str]) -> int:
    """Trains; returns the exit status. What the user can mend is a message, and never a traceback."""
    status = BAD_CONFIGURATION
    try:
        trainer, model_folder = prepare()
        status = FAILED
        train_and_evaluate(trainer, model_folder)
    except BrokenPipeError:  # what reads the output has read enough, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        complain(f"a file cannot be read or written: {error}")
        return status
    except (MeshtfError, LayoutWarning) as error:
        complain(str(error))
        return status
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    return 0


def prepare() -> tuple[Trainer, Path]:
    """Reads the configuration, and builds and checks everything that will run."""
    files = [find_gin_file(name) for name in GIN_FILE.value]
    read_configuration(files, GIN_PARAM.value)
    with configuration_errors():
        training = Training()  # type: ignore[call-arg]  # gin fills in the arguments
    mtf.virtual_cpus(mtf.convert_to_shape(training.mesh_shape).size)
    trainer = Trainer(training)
    model_folder = make_model_folder(MODEL_DIR.value or f"runs/{files[-1].stem}")
    write_operative_configuration(model_folder)
    print("configuration:", *(_shown(path) for path in files))
    print(describe(trainer))
    print(trainer.train_step.report())
    return trainer, model_folder


def _shown(path: Path) -> str:
    """Relative to the current folder where it is inside."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def describe(trainer: Trainer) -> str:
    """What will run: model, task, optimizer, mesh, layout and parameters."""
    training, mesh_shape = trainer.training, mtf.convert_to_shape(trainer.training.mesh_shape)
    parameters = trainer.train_step.graph.trainable_variables
    width = max(len(variable.full_name) for variable in parameters)
    return "\n".join(
        [
            f"model:         {training.model}",
            f"task:          {training.task}",
            f"optimizer:     {training.optimizer}",
            f"steps:         {training.num_steps} of {training.batch_size} examples, seed {training.seed}",
            f"mesh:          {mesh_shape} ({mesh_shape.size} cores)",
            f"layout:        {training.layout}",
            f"parameters:    {sum(variable.shape.size for variable in parameters):,}",
            *(
                f"  {variable.full_name:<{width}}  [{variable.shape}] {variable.slice_dtype.name}"
                for variable in parameters
            ),
        ]
    )


def train_and_evaluate(trainer: Trainer, model_folder: Path) -> None:
    with metrics_log(model_folder) as log:
        trainer.train(log)
        evaluation = trainer.evaluate()
        digest = digest_of(trainer.variables)
        held_out = {f"held_out_{name}": value for name, value in evaluation.means.items()}
        log.write(trainer.training.num_steps, {**held_out, "variables_sha256": digest})
    print(f"variables:     sha256 {digest}")
    print(f"written to:    {model_folder} ({METRICS_FILE}, operative_config.gin)")
    print(f"held out:      {evaluation}")


def complain(message: str) -> None:
    print(f"{PROGRAM}: error: {message}", file=sys.stderr)


if __name__ == "__main__":
    run()
