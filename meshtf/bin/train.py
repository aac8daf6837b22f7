"""meshtf-train: trains the model of a gin configuration, and evaluates it on held-out examples."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import gin
from absl import flags
from rich.console import Console

from meshtf.bin.layouts.chosen_layout import check_no_search_flags, read_with_layout
from meshtf.bin.shared.cluster import is_left_to_process_0, wants_cluster
from meshtf.bin.shared.configuration_flags import gin_files, mesh_bindings
from meshtf.bin.shared.mesh import mesh_for
from meshtf.bin.shared.peak_memory import say_peak_memory
from meshtf.bin.shared.run_program import run_program
from meshtf.errors import counted
from meshtf.files.remote.remote_folder import RemoteFolder
from meshtf.files.replaced_file import replace_file
from meshtf.train.configuration import ConfigurationError, check_every_binding_is_read
from meshtf.train.decoding.options import keep_decoding
from meshtf.train.dry_run import dry_run
from meshtf.train.loop import TrainingRun
from meshtf.train.monitoring.description import described, one_line
from meshtf.train.monitoring.summary import summary_table
from meshtf.train.runs.agreement import Agreement
from meshtf.train.runs.resuming import Start, changed_bindings, resumed_start
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.runs.run_path import run_path
from meshtf.train.runs.signals import stop_request
from meshtf.train.trainer import Trainer
from meshtf.train.training import configured_training
from meshtf_programs.command_lines.shared.command_line import FlagError
from meshtf_programs.command_lines.train import PROGRAM, command_line
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.packaged_configurations import shown

_NO_DRY_RUN = """\
--dry_run is for one process, and this is one of several. Give the command once, without meshtf-launch and --cluster,
and with --gin_param=Training.num_processes=N, which plans as for N processes."""

_NO_SECONDS = """\
--search_seconds is for one process, and this is one of several, whose searches would end at different places. Give \
--search_operations, which ends them all at the same place."""

__all__ = ["PROGRAM", "command_line", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Trains, and returns the exit status."""
    return run_program(command_line(), prepare, arguments)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads the configuration, builds and checks everything that will run, and restores the newest checkpoint."""
    _check_is_for_cluster(values)
    files = gin_files(values)
    path = run_path(f"runs/{Path(values.gin_file[-1]).stem}" if values.model_dir is None else values.model_dir)
    before = functools.partial(_configuration_before, values, path)
    given = [*values.gin_param, *mesh_bindings(values)]
    chosen = read_with_layout(values, files, given, before, is_told=not is_left_to_process_0())
    if chosen is None:
        check_no_search_flags(values, "machine", "search_operations", "search_seconds")
    training = configured_training()
    keep_decoding()
    trainer = Trainer(training, mesh_for(values, training))
    if not values.allow_unread_bindings:
        check_every_binding_is_read()
    trainer.check()
    if chosen is not None:
        print(chosen)
    if values.dry_run:
        return functools.partial(rehearse, trainer, files)
    folder = RunFolder.made(path, Path(values.working_dir))
    agreement = Agreement.of_this_process()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(agreement.own_folder(folder))
        stack.enter_context(folder.lock())
        folder.fetch()
        resumed = functools.partial(
            resumed_start,
            trainer,
            folder,
            from_scratch=values.from_scratch,
            allow_changed_data=values.allow_changed_data,
        )
        start = agreement.leader_first(resumed)
        agreement.check_same_step(start.step, folder)
        print("configuration:", *map(shown, files))
        print(one_line(training, trainer.train_step), flush=True)
        if values.report:
            print(trainer.train_step.report())
        explain(trainer, folder, start)
        held = stack.pop_all()

    def run() -> int:
        with held, folder.writing() if agreement.is_leader else contextlib.nullcontext():
            return train(trainer, folder, start)

    return run


def _check_is_for_cluster(values: flags.FlagValues) -> None:
    """Raises FlagError for a flag that cannot be used with several processes."""
    if not wants_cluster(values):
        return
    if values.dry_run:
        raise FlagError(_NO_DRY_RUN)
    if values.search_seconds is not None:
        raise FlagError(_NO_SECONDS)


def _configuration_before(values: flags.FlagValues, place: Path | RemoteFolder) -> str | None:
    """Returns the operative configuration of the run that is resumed, or None."""
    if values.from_scratch:
        return None
    try:
        return RunFolder.existing(place).operative_config.read_text(errors="replace")
    except ConfigurationError:  # there is no run, or it cannot be read; opening it reports that
        return None


def rehearse(trainer: Trainer, files: Sequence[Path]) -> int:
    """Does a dry run, and prints its result."""
    print("configuration:", *map(shown, files))
    print(one_line(trainer.training, trainer.train_step), flush=True)
    with stop_request() as stop:
        found = dry_run(trainer, stop)
    if found is None:
        assert stop.signal is not None
        print(f"{stop.signal.name}: the dry run was stopped; it has left nothing behind")
        return ExitStatus.of_signal(stop.signal)
    print(f"dry run: everything works; nothing is left behind\n{found}")
    return ExitStatus.DONE


def explain(trainer: Trainer, folder: RunFolder, start: Start) -> None:
    """Writes the description of the run into its folder, and prints what has changed since it began."""
    configuration, report = (
        gin.operative_config_str(),
        f"{described(trainer.training, trainer.train_step)}\n\n{trainer.train_step.report()}\n",
    )
    if start.step:
        print(f"resumed:       from step {start.step}, {_place(folder, start.step)}")
        before = folder.operative_config.read_bytes() if folder.operative_config.exists() else configuration.encode()
        for change in changed_bindings(before.decode(errors="replace"), configuration):
            print(f"  changed:     {change}")
    folder.write_versions()
    replace_file(folder.report, report.encode())
    replace_file(folder.operative_config, configuration.encode())


def train(trainer: Trainer, folder: RunFolder, start: Start) -> int:
    """Trains to the end or until a signal, and prints the result."""
    num_steps = trainer.training.num_steps
    if start.step >= num_steps:
        print(f"finished already, after {counted(start.step, 'step')}; to continue, give a larger Training.num_steps")
    with stop_request() as request:
        stop = Agreement.of_this_process().stop(request)
        training_run = TrainingRun(trainer, folder, start, stop)
        evaluation = training_run.run()
        if stop.signal is not None and evaluation is None:
            print(f"{stop.signal.name}: stopped after step {training_run.step}. {training_run.how_to_resume()}")
            return ExitStatus.of_signal(stop.signal)
    console, title = Console(), f"{folder.shown}: step {training_run.step}"
    console.print(summary_table(training_run.metrics, title, console.width))
    print(f"variables:     sha256 {training_run.digest}")
    print(f"written to:    {folder.shown} ({', '.join(_written(folder.path))})")
    say_peak_memory(print, trainer.programs)
    if training_run.evaluation_times.seconds:
        print(f"evaluation:    {training_run.evaluation_times}")
    print(f"held out:      {evaluation}")
    if evaluation is not None:
        evaluation.check()
    return ExitStatus.DONE


def _place(folder: RunFolder, step: int) -> str:
    place = folder.checkpoints().place(step)
    return shown(place.absolute()) if isinstance(place, Path) else str(place)


def _written(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


if __name__ == "__main__":
    run()
