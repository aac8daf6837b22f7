"""meshtf-sweep: trains with many values of some bindings, and ranks the results."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags
from rich.console import Console

from meshtf.bin.shared.output_file import check_is_no_device, check_overwrites_no_configuration
from meshtf.bin.shared.run_program import run_program
from meshtf.errors import counted
from meshtf.files.replaced_file import replace_file
from meshtf.train.configuration import ConfigurationError, find_gin_file, read_configuration
from meshtf.train.gin_files.bindings import Binding, Parameter, present_bindings
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.runs.signals import stop_request
from meshtf.train.sweeps.running import SweepRun
from meshtf.train.sweeps.sweep import configured_sweep
from meshtf.train.sweeps.sweep_folder import ENDED, FAILED, WAITING, SweepFolder
from meshtf.train.sweeps.sweep_picture import draw_sweep
from meshtf.train.sweeps.sweep_results import results_table, sweep_results, write_results
from meshtf.train.sweeps.trials import Trial, first_values, grid, numbered, samples
from meshtf_programs.command_lines.shared.command_line import FlagError
from meshtf_programs.command_lines.sweep import PROGRAM, command_line
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.launching.launched import MESHTF_LAUNCH
from meshtf_programs.user_paths import user_path

__all__ = ["PROGRAM", "command_line", "main", "run"]

_LAUNCHED = """\
meshtf-launch has started this process as one of several, and a sweep starts its trials itself. Start meshtf-sweep
alone, and give --launch='meshtf-launch --processes=N --', which starts each trial so."""

_NO_TRIAL_READS = """\
this binding would have no effect, because trials do not read the file of --sweep_file:
  {binding}  is from {origin}
Write it into a file of --gin_file, or give it as --gin_param."""

TRAIN = (sys.executable, "-m", "meshtf.bin.train")
"""The command of a trial on this machine."""


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Runs a sweep, and returns the exit status."""
    return run_program(command_line(), prepare, arguments)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads the choices, and checks the name and the kind of each."""
    if MESHTF_LAUNCH in os.environ:
        raise FlagError(_LAUNCHED)
    check_is_no_device(values.write_jobs, "--write_jobs")
    launch = launch_of(values)
    files, sweep_file = [find_gin_file(name) for name in values.gin_file], find_gin_file(values.sweep_file)
    read_configuration(files, values.gin_param)
    known = {binding.origin.text for binding in present_bindings()}
    read_configuration([*files, sweep_file], values.gin_param)
    check_binds_the_sweep_alone([binding for binding in present_bindings() if binding.origin.text not in known])
    check_overwrites_no_configuration(values.write_jobs, given="--write_jobs")
    sweep = configured_sweep()
    for combination in first_values(sweep):
        chosen = [Parameter(f"Sweep ({sweep_file.name}): {n}", f"{n} = {text}") for n, text in combination.items()]
        read_configuration(files, [*values.gin_param, *chosen])
    drawn = grid(sweep) if values.samples is None else samples(sweep, values.samples, values.seed)
    place = user_path(f"sweeps/{sweep_file.stem}" if values.sweep_dir is None else values.sweep_dir).absolute()
    place.mkdir(parents=True, exist_ok=True)
    folder = SweepFolder(place)
    base = _base(values)
    before, states = folder.read_plan(base)
    trials = numbered(drawn, before)
    for trial in trials:
        states[trial.number] = folder.state(trial, states.get(trial.number, WAITING))
    everything = [*before, *(trial for trial in trials if trial not in before)]
    save = functools.partial(folder.write_plan, base, everything, states)
    command = functools.partial(_command, launch, folder, base)
    if values.write_jobs is not None:
        return functools.partial(_write_jobs, user_path(values.write_jobs), trials, states, command, save)
    lock = RunFolder(place).lock("--sweep_dir")

    def run() -> int:
        with lock:
            save()
            sweep_run = SweepRun(sweep, folder, states=states, command=command, save=save)
            return _run(sweep_run, trials, values.jobs)

    return run


def check_binds_the_sweep_alone(bindings: Sequence[Binding]) -> None:
    """Raises ConfigurationError for a binding of the sweep's file that is not about the sweep, nor a macro of it."""
    macros = {reference.config_key[0] for binding in bindings for reference in binding.references}
    for binding in bindings:
        if binding.configurable != "Sweep" and not (binding.is_macro and binding.scope in macros):
            raise ConfigurationError(_NO_TRIAL_READS.format(origin=binding.origin, binding=binding))


def _base(values: flags.FlagValues) -> list[str]:
    """Returns the flags that all trials share."""
    files = [f"--gin_file={name}" for name in values.gin_file]
    return [*files, *(f"--gin_param={binding}" for binding in values.gin_param)]


def launch_of(values: flags.FlagValues) -> list[str]:
    """Returns the words of --launch.

    Raises:
      ConfigurationError: if it is no command, its program is not installed, or the folder of --write_jobs is missing.
    """
    if values.write_jobs is not None and not user_path(values.write_jobs).absolute().parent.is_dir():
        raise ConfigurationError(
            f"--write_jobs={values.write_jobs}: its folder does not exist; create it, or give another"
        )
    if values.launch is None:
        return []
    try:
        words = shlex.split(values.launch)
    except ValueError as error:
        raise ConfigurationError(f"--launch={values.launch} is no command: {error}") from None
    if not words or (values.write_jobs is None and shutil.which(words[0]) is None):
        raise ConfigurationError(f"--launch={values.launch} names a program that is not on this machine")
    return words


def _command(
    launch: Sequence[str], folder: SweepFolder, base: Sequence[str], trial: Trial, train: Sequence[str] | None = None
) -> list[str]:
    chosen = [f"--gin_param={binding}" for binding in trial.bindings]
    return [*launch, *(TRAIN if train is None else train), *base, *chosen, f"--model_dir={folder.trial(trial)}"]


def _write_jobs(
    path: Path,
    trials: Sequence[Trial],
    states: dict[int, str],
    command: Callable[..., list[str]],
    save: Callable[[], None],
) -> int:
    save()
    left = [trial for trial in trials if states[trial.number] not in ENDED]
    lines = [shlex.join(command(trial, train=["meshtf-train"])) for trial in left]
    replace_file(path, "".join(f"{line}\n" for line in lines).encode())
    print(f"{counted(len(left), 'command')} in {path}; {len(trials) - len(left)} of {len(trials)} trials have ended")
    return ExitStatus.DONE


def _run(sweep_run: SweepRun, trials: Sequence[Trial], jobs: int) -> int:
    sweep, folder, states = sweep_run.sweep, sweep_run.folder, sweep_run.states
    ended = sum(states[trial.number] in ENDED for trial in trials)
    print(f"{counted(len(trials), 'trial')} in {folder.path}; {ended} ended before", flush=True)
    with stop_request() as stop:
        sweep_run.run(trials, jobs, stop)
        if stop.signal is not None:
            print(f"{stop.signal.name}: the sweep is stopped. The same command continues it.")
            return ExitStatus.of_signal(stop.signal)
    results = sweep_results(sweep, folder, trials, states)
    Console().print(results_table(sweep, results))
    write_results(sweep, results, folder.path)
    problem = draw_sweep(sweep, results, folder.path / "results.png")
    written = "results.csv, results.json" if problem is not None else "results.csv, results.json, results.png"
    print(f"written to:    {folder.path} ({written})" + (f"\n{problem}" if problem else ""))
    return ExitStatus.FAILED if any(each.state == FAILED for each in results) else ExitStatus.DONE


if __name__ == "__main__":
    run()
