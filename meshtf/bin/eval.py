"""meshtf-eval: computes the metrics of a trained model on held-out examples, from a checkpoint of its run."""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from meshtf.bin.shared.configuration_flags import mesh_bindings
from meshtf.bin.shared.mesh import check_rules_are_used, mesh_for
from meshtf.bin.shared.peak_memory import say_peak_memory
from meshtf.bin.shared.run_program import run_program
from meshtf.files.unlinked_file import append_to_file
from meshtf.train.configuration import check_every_binding_is_read
from meshtf.train.evaluation import Evaluator
from meshtf.train.monitoring.metrics import TIME, as_lists, time_now
from meshtf.train.runs.agreement import Agreement
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.training import Training
from meshtf_programs.command_lines.eval import PROGRAM, command_line
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.strict_json import json_text

_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Errors of a folder that only others may write. The program ignores them, but a full disk is a failure."""

__all__ = ["PROGRAM", "command_line", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Evaluates, and returns the exit status."""
    return run_program(command_line(), prepare, arguments)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads the run's configuration, builds and checks the program, and restores the checkpoint."""
    folder = RunFolder.existing(values.model_dir)
    training = folder.read_training([*values.gin_param, *mesh_bindings(values)], trust_config=values.trust_config)
    evaluator = Evaluator(training, mesh_for(values, training))
    if not values.allow_unread_bindings:
        check_every_binding_is_read(of_flags_alone=True)
    if values.layout is not None:
        check_rules_are_used(evaluator.step)
    evaluator.check()
    restored = folder.restore(evaluator.step, step=values.step, weights=values.weights)
    print(f"evaluating step {restored} of {folder.shown}: {training.task.name}", flush=True)
    source = {"step": restored, "weights": values.weights}
    return functools.partial(write_evaluation, training, folder, evaluator, source)


def write_evaluation(
    training: Training, folder: RunFolder, evaluator: Evaluator, source: Mapping[str, int | str]
) -> int:
    """Evaluates, prints the means, and appends them to the run's evaluations with the step and the weights."""
    evaluation = evaluator.evaluate()
    assert evaluation is not None
    print(f"held out:      {evaluation}", flush=True)
    line = {
        **source,
        TIME: time_now(),
        **evaluation.means,
        **as_lists(evaluation.vectors),
        "num_examples": evaluation.num_examples,
        "mesh_shape": ";".join(map(str, evaluator.step.lowering.mesh_impl.shape)),
        "layout": training.layout_text,
    }
    if Agreement.of_this_process().is_leader:
        append_evaluation(folder, line)
    say_peak_memory(print, [evaluator.step])
    evaluation.check()
    return ExitStatus.DONE


def append_evaluation(folder: RunFolder, line: Mapping[str, Any]) -> None:
    """Appends a line to the run's evaluations, if they can be written."""
    try:
        append_to_file(folder.evaluations, (json_text(line) + "\n").encode())
        folder.send()
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        print(
            f"the result is only shown, and could not be written to {folder.shown}/{folder.evaluations.name}: "
            f"{error.strerror}"
        )


if __name__ == "__main__":
    run()
