"""meshtf-quantize: writes a run's checkpoint with quantized kernels, as a run that the other programs read."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import gin
import numpy as np
from absl import flags

import meshtf as mtf
from meshtf.bin.shared.configuration_flags import mesh_bindings
from meshtf.bin.shared.mesh import mesh_for
from meshtf.bin.shared.output_file import check_folder_can_be_made
from meshtf.bin.shared.run_program import run_program
from meshtf.errors import counted
from meshtf.files.remote.failures import without_secrets
from meshtf.files.remote.remote_folder import is_remote
from meshtf.files.replaced_file import replace_file
from meshtf.ops.variables.variable import VariableSpec
from meshtf.quantization import Quantization, quantize_store
from meshtf.quantization.kernels import is_kernel
from meshtf.quantization.quantization import STATIC
from meshtf.quantization.quantization_aware import INPUT_RANGE
from meshtf.train.calibration import calibrated_ranges
from meshtf.train.configuration import ConfigurationError, check_every_binding_is_read
from meshtf.train.decoding.options import keep_decoding
from meshtf.train.evaluation import Evaluation, Evaluator
from meshtf.train.gin_files.bindings import Parameter
from meshtf.train.runs.agreement import Agreement
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.training import LOSS, Training
from meshtf_programs.command_lines.quantize import PROGRAM, command_line
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.user_paths import user_path

MOST_CHANGE = 0.005
"""The relative change of the perplexity above which the program prints a notice."""

_QUANTIZED = """\
{folder} is quantized already: its Training.quantization keeps the kernels in {weights}. Give the run that it was made
from."""

_MOVED = """\
the perplexity changed by {change:+.2%}, more than {most:.1%}: smaller groups (--group_size), or more bits
(--format=int8), change it less."""

__all__ = ["PROGRAM", "command_line", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Quantizes, and returns the exit status."""
    return run_program(command_line(), prepare, arguments)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads the configuration before and after quantization, and builds and checks the programs of both."""
    folder, output = RunFolder.existing(values.model_dir), output_of(values)
    given = [*values.gin_param, *mesh_bindings(values)]
    training = folder.read_training(given, trust_config=values.trust_config)
    if training.quantization is not None:
        raise ConfigurationError(_QUANTIZED.format(folder=folder.shown, weights=training.quantization.weights))
    mesh_impl = mesh_for(values, training)
    before = Evaluator(training, mesh_impl)
    before.check()
    quantized = folder.read_training([*given, *quantization_bindings(values)], trust_config=values.trust_config)
    assert quantized.quantization is not None
    keep_decoding()
    if not values.allow_unread_bindings:
        check_every_binding_is_read(of_flags_alone=True)
    after = Evaluator(quantized, mesh_impl)
    check_has_kernels(before.step, after.step)
    kernels = kernels_of(before.step)
    quantized.quantization.check_scopes([spec.full_name for spec in kernels])
    tell_groups(kernels, quantized.quantization)
    if values.dry_run:
        return functools.partial(tell_bytes, before.step, after.step)
    step = folder.restore(before.step, step=values.step, weights=values.weights)
    print(f"quantizing:    step {step} of {folder.shown}, kernels in {quantized.quantization.weights}", flush=True)
    store = functools.partial(quantized_store, before.step, training, quantized, values.calibration_batches)
    made = Comparison(before, lambda store: Evaluator(quantized, mesh_impl, store), store)
    return functools.partial(write_quantized, made, output, step, gin.operative_config_str())


def quantized_store(
    before: mtf.Function, training: Training, quantized: Training, calibration_batches: int
) -> mtf.VariableStore:
    """Returns the store with quantized kernels."""
    assert quantized.quantization is not None
    if quantized.quantization.activations != STATIC:
        return quantize_store(before, quantized.quantization)
    ranges = static_ranges(before, training, calibration_batches, quantized.quantization.takes)
    return quantize_store(before, quantized.quantization, ranges)


def static_ranges(
    before: mtf.Function, training: Training, calibration_batches: int, takes: Callable[[str], bool]
) -> dict[str, np.ndarray]:
    """Returns the ranges of activations. Where quantization-aware training has found none, they are observed.

    `takes`: tells whether the kernel of this name is quantized.
    """
    trained = {name: x for name, x in trained_ranges(before).items() if takes(name)}
    if trained and all((found > 0).all() for found in trained.values()):
        print(f"activations:   the ranges of {counted(len(trained), 'kernel')} are those of training", flush=True)
        return trained
    observed = calibrated_ranges(training, before.lowering.mesh_impl, before.variables, calibration_batches)
    observed = {name: x for name, x in observed.items() if takes(name)}
    found = {name: trained.get(name, np.zeros_like(x)) for name, x in observed.items()}
    count = sum(not (x > 0).all() for x in found.values())
    over = counted(calibration_batches, "training batch", "training batches")
    why = ", since its training has found none" if trained else ""
    print(f"activations:   the ranges of {counted(count, 'kernel')} are observed over {over}{why}", flush=True)
    return trained | {name: np.where(x > 0, x, observed[name]) for name, x in found.items()}


def trained_ranges(program: mtf.Function) -> dict[str, np.ndarray]:
    """Returns the moving ranges of quantization-aware training, by the names of the kernels."""
    end = f"/{INPUT_RANGE}"
    names = [name for name in program.graph.variables if name.endswith(end)]
    return {name.removesuffix(end): program.variables[name] for name in names}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A comparison of a run with its quantized form.

    Attributes:
      before: the evaluator of the run.
      after: makes the evaluator of the quantized run from its store.
      store: makes the store with quantized kernels.
    """

    before: Evaluator
    after: Callable[[mtf.VariableStore], Evaluator]
    store: Callable[[], mtf.VariableStore]


def output_of(values: flags.FlagValues) -> Path:
    """Returns the folder to write.

    Raises:
      ConfigurationError: if it exists, or is on remote storage.
      OSError: if it cannot be made.
    """
    if is_remote(values.output_dir):
        raise ConfigurationError(f"--output_dir={without_secrets(values.output_dir)} must be a folder of this machine")
    output = user_path(values.output_dir)
    if output.exists():
        raise ConfigurationError(f"--output_dir={output} is there already; give another, or remove it")
    check_folder_can_be_made(output, "--output_dir")
    return output


def quantization_bindings(values: flags.FlagValues) -> list[Parameter]:
    """Returns the gin bindings for --format, --group_size, --activations and --cache, if they are given."""
    names = {"format": "weights", "group_size": "group_size", "activations": "activations", "cache": "cache"}
    given = {flag: name for flag, name in names.items() if values[flag].value is not None}
    return [
        Parameter("--format", "Training.quantization = @Quantization()"),
        Parameter("--format", "Training.quantization_aware = None"),
        *(Parameter(f"--{flag}", f"Quantization.{name} = {values[flag].value!r}") for flag, name in given.items()),
    ]


def check_has_kernels(before: mtf.Function, after: mtf.Function) -> None:
    """Raises ConfigurationError for a model without variables to quantize."""
    if set(before.graph.variables) == set(after.graph.variables):
        raise ConfigurationError(
            "the model has no kernel to quantize: none of its floating variables was made with a `matrix`"
        )


def kernels_of(program: mtf.Function) -> list[VariableSpec]:
    """Returns the kernels of a program."""
    return [v.spec for v in program.graph.variables.values() if isinstance(v, mtf.Variable) and is_kernel(v.spec)]


def tell_groups(kernels: Sequence[VariableSpec], quantization: Quantization) -> None:
    """Prints the sizes of groups where the wanted size does not divide a kernel's dimension."""
    if quantization.group_size is None:
        return
    taken = [(s.shape, s.matrix[0]) for s in kernels if s.matrix and s.matrix[0] and quantization.takes(s.full_name)]
    sizes = [quantization.size_of_groups(shape, summed) for shape, summed in taken]
    for size, count in Counter(sizes).items():
        if size != quantization.group_size:
            why = f"since {quantization.group_size} does not divide the summed dimension"
            print(f"groups:        of {size} in {counted(count, 'kernel')}, {why}")


def write_quantized(made: Comparison, output: Path, step: int, configuration: str) -> int:
    """Evaluates, quantizes, evaluates again, and writes the run's folder."""
    first = evaluated(made.before)
    store = made.store()
    after = made.after(store)
    second = evaluated(after)
    if Agreement.of_this_process().is_leader:
        folder = RunFolder.made(output)
        folder.write_versions()
        replace_file(folder.operative_config, configuration.encode())
    RunFolder(output).checkpoints().save(step, store, {})
    tell_bytes(made.before.step, after.step)
    for name, evaluation in {"before": first, "after": second}.items():
        print(f"{name + ':':<14} {evaluation}, in {evaluation.seconds:.2f} s")
    tell_perplexity(first, second)
    print(f"written to:    {RunFolder(output).shown}")
    return ExitStatus.DONE


def evaluated(evaluator: Evaluator) -> Evaluation:
    """Returns the evaluation. Its time is without compiling. Raises its problem, if it has one."""
    evaluator.warm_up()
    evaluation = evaluator.evaluate()
    assert evaluation is not None
    evaluation.check()
    return evaluation


def tell_bytes(before: mtf.Function, after: mtf.Function) -> int:
    """Prints the bytes of the weights before and after."""
    first, second = map(bytes_of, (before, after))
    print(f"bytes:         {first:,} before, {second:,} after ({second / first:.1%})")
    return ExitStatus.DONE


def bytes_of(program: mtf.Function) -> int:
    """Returns the bytes of all variables of a program, each counted once."""
    variables = [v for v in program.graph.variables.values() if isinstance(v, mtf.Variable)]
    return sum(v.unpadded_shape.size * v.slice_dtype.size for v in variables)


def tell_perplexity(before: Evaluation, after: Evaluation) -> None:
    """Prints exp(loss) before and after, and a line if it has changed by more than `MOST_CHANGE`."""
    losses = [evaluation.means[LOSS] for evaluation in (before, after)]
    first, second = (math.exp(min(loss, 700.0)) for loss in losses)
    change = math.expm1(losses[1] - losses[0])
    print(f"perplexity:    {first:.4f} before, {second:.4f} after ({change:+.3%}), which is exp(loss)")
    if abs(change) > MOST_CHANGE:
        print(_MOVED.format(change=change, most=MOST_CHANGE))


if __name__ == "__main__":
    run()
