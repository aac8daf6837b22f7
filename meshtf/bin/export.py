"""meshtf-export: writes a trained model as a SavedModel, which plain TensorFlow loads and runs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags

import meshtf as mtf
from meshtf.bin.shared.decoding_flags import decoding_bindings, decoding_of, given_options
from meshtf.bin.shared.output_file import check_folder_can_be_made
from meshtf.bin.shared.run_program import run_program
from meshtf.files.remote.failures import without_secrets
from meshtf.files.remote.remote_folder import is_remote
from meshtf.train.configuration import ConfigurationError, check_every_binding_is_read
from meshtf.train.decoding.options import configured_decoding
from meshtf.train.decoding.step_decoder import TextModel
from meshtf.train.export import ExportedModel, check_output, exported_model
from meshtf.train.runs.run_folder import RunFolder
from meshtf_programs.command_lines.export import PROGRAM, command_line
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.native_output import NATIVE_OUTPUT
from meshtf_programs.packaged_configurations import shown
from meshtf_programs.user_paths import user_path

__all__ = ["PROGRAM", "command_line", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Exports, and returns the exit status."""
    return run_program(command_line(), prepare, arguments, has_mesh=False)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads the configuration, plans the model for one core, and restores the checkpoint if it fits."""
    if is_remote(values.output):
        raise ConfigurationError(f"--output={without_secrets(values.output)} must be a folder of this machine")
    folder, output = RunFolder.existing(values.model_dir), user_path(values.output)
    if output.exists():
        raise ConfigurationError(f"--output={output} is there already; give another, or remove it")
    check_output(output)
    check_folder_can_be_made(output, "--output")
    bindings = [*values.gin_param, *decoding_bindings(values)]
    training = folder.read_training(bindings, trust_config=values.trust_config)
    if isinstance(training.model, TextModel):
        decoding = decoding_of(values, training)
    else:
        decoding = configured_decoding()
        if useless := [name for name in given_options(values) if name != "batch_size"]:
            model = type(training.model).__name__
            raise ConfigurationError(f"--{useless[0]} has no effect on {model}, which does not generate text")
    with NATIVE_OUTPUT.kept_back():
        mtf.virtual_cpus(1)
    exported = exported_model(training, decoding, values.batch_size or 1)
    if not values.allow_unread_bindings:
        check_every_binding_is_read(of_flags_alone=True)
    exported.check_fits(values.max_gib)
    step = folder.restore(exported.restorable, step=values.step, weights=values.weights)
    run = folder.path.absolute() if folder.storage is None else folder.place
    source = {"run": str(run), "step": step, "weights": values.weights}
    return functools.partial(write, exported, output, source, folder.shown)


def write(exported: ExportedModel, output: Path, source: Mapping[str, Any], run: str) -> int:
    signatures = exported.write(output, source)
    print(f"written to:    {shown(output.absolute())}, from step {source['step']} of {run}")
    print(f"signatures:    {', '.join(signatures)}")
    return ExitStatus.DONE


if __name__ == "__main__":
    run()
