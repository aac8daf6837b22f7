"""meshtf-benchmark: measures the time that a training takes to reach a quality, by MLPerf's rules."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from rich.console import Console

from meshtf.bin.shared.configuration_flags import mesh_bindings
from meshtf.bin.shared.mesh import mesh_for
from meshtf.bin.shared.output_file import check_folder_can_be_made
from meshtf.bin.shared.run_program import run_program
from meshtf.files.remote.failures import without_secrets
from meshtf.files.remote.remote_folder import is_remote
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.train.configuration import (
    ConfigurationError,
    check_every_binding_is_read,
    find_gin_file,
    read_configuration,
)
from meshtf.train.quality.log_check import NOT_INSTALLED, checker_name, log_problems
from meshtf.train.quality.quality_target import QualityTarget, configured_target
from meshtf.train.quality.results import draw_results, result_line, results_table
from meshtf.train.quality.timed_run import TimedRun, timed_run
from meshtf.train.runs.agreement import Agreement
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.runs.signals import stop_request
from meshtf.train.trainer import Trainer
from meshtf.train.training import configured_training
from meshtf_programs.command_lines.benchmark import PROGRAM, command_line
from meshtf_programs.command_lines.shared.command_line import FlagError
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.quality_tasks import task_file
from meshtf_programs.user_paths import user_path

_NOT_EMPTY = """\
the folder {folder} is not empty, and results of different commands must not be mixed. Give another --out."""

_SEEDS = 2**63
_LARGE_SEED = "--seed={seed} with --runs={runs}: each seed must be less than 2^63"

_WRONG_LOG = """\
{log} breaks the rules, by {checker}:
{problems}"""

__all__ = ["PROGRAM", "command_line", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Times the runs, and returns the exit status."""
    return run_program(command_line(), prepare, arguments)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads the task's configuration, plans its programs, and checks the target, the seeds and the folder."""
    try:
        file = task_file(values.task)
    except ValueError as error:
        raise FlagError(str(error)) from None
    out = _folder_of_results(values, Path(file).stem)
    seeds = range(values.seed, values.seed + values.runs)
    if seeds[-1] >= _SEEDS:
        raise FlagError(_LARGE_SEED.format(runs=values.runs, seed=values.seed))
    read_configuration([find_gin_file(file)], [*values.gin_param, *mesh_bindings(values)])
    target = configured_target()
    training = configured_training()
    mesh_impl = mesh_for(values, training)
    target.check(Trainer(training, mesh_impl))  # each run plans its own, and would find a mistake when it has begun
    if not values.allow_unread_bindings:
        check_every_binding_is_read(of_flags_alone=True)
    return functools.partial(time_runs, mesh_impl, target, seeds, out)


def _folder_of_results(values: flags.FlagValues, task: str) -> Path:
    """Returns the folder of --out.

    Raises:
      ConfigurationError: if it is not empty, or is remote storage.
      OSError: if it cannot be made.
    """
    if values.out is not None and is_remote(values.out):
        raise ConfigurationError(f"--out={without_secrets(values.out)} must be a folder of this machine")
    out = user_path(values.out or f"benchmarks/{task}")
    if out.exists():
        _check_is_empty(out)
    else:
        check_folder_can_be_made(out, "--out")
    return out


def _check_is_empty(out: Path) -> None:
    if any(path.name != RunFolder(out).lock_file.name for path in out.iterdir()):
        raise ConfigurationError(_NOT_EMPTY.format(folder=out))


def _locked(out: Path) -> contextlib.AbstractContextManager[Any]:
    """Makes the folder of the results in the first process, and keeps other commands out of it."""
    if not Agreement.of_this_process().is_leader:
        return contextlib.nullcontext()
    out.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(RunFolder(out).lock("--out"))
        _check_is_empty(out)
        return stack.pop_all()


def time_runs(mesh_impl: MeshImpl, target: QualityTarget, seeds: Sequence[int], out: Path) -> int:
    """Times a run for each seed. The first process checks their logs, and shows the results."""
    runs: list[TimedRun] = []
    agreement = Agreement.of_this_process()
    with agreement.leader_first(functools.partial(_locked, out)), stop_request() as request:
        stop = agreement.stop(request)
        for number, seed in enumerate(seeds):
            if agreement.is_leader:
                print(f"run {number} of {len(seeds)}: seed {seed}, until {target}", flush=True)
            found = timed_run(
                configured_training, mesh_impl, target, seed=seed, folder=out / f"run_{number}", stop=stop
            )
            if found is None:
                assert stop.signal is not None
                print(f"{stop.signal.name}: stopped in run {number}, which has no result")
                return ExitStatus.of_signal(stop.signal)
            runs.append(found)
            gc.collect()  # frees the programs and variables of this run before the next one
    if not agreement.is_leader:
        return ExitStatus.DONE
    console = Console()
    console.print(results_table(runs, target))
    problem = draw_results(runs, target, out / "quality.png")
    print(f"written to:    {out} (run_*/result.txt{', quality.png' if problem is None else ''})")
    if problem is not None:
        print(problem)
    status = _check_logs(runs, target, out)
    print(f"result:        {result_line(runs)}")
    return status


def _check_logs(runs: Sequence[TimedRun], target: QualityTarget, out: Path) -> ExitStatus:
    """Checks the logs of the runs that reached their target. MLPerf's rules cover no other runs."""
    checker = checker_name()
    if checker is None:
        print(NOT_INSTALLED)
        return ExitStatus.DONE
    logs = [out / f"run_{number}" / "result.txt" for number, run in enumerate(runs) if run.is_reached]
    for log in logs:
        if problems := log_problems(log, target):
            print(_WRONG_LOG.format(log=log, checker=checker, problems="\n".join(problems)), file=sys.stderr)
            return ExitStatus.FAILED
    print(f"logs:          {len(logs)} of {len(runs)} reached the target, all right by {checker}")
    return ExitStatus.DONE


if __name__ == "__main__":
    run()
