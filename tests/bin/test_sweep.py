"""meshtf-sweep, with a small program in the place of meshtf-train, and once with that itself."""

from __future__ import annotations

import csv
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from meshtf.bin import sweep
from meshtf.train.runs.signals import StopRequest
from meshtf.train.sweeps import running
from meshtf.train.sweeps.running import SweepRun
from meshtf.train.sweeps.sweep import Sweep
from meshtf.train.sweeps.sweep_folder import WAITING, SweepFolder
from meshtf.train.sweeps.trials import Trial
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.launching.launched import MESHTF_LAUNCH, Launched

FAKE = (sys.executable, "-S", str(Path(__file__).parents[1] / "train" / "sweeps" / "fake_train.py"))
RATE = "AdamWOptimizer.learning_rate"


@pytest.fixture(autouse=True)
def _fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(sweep, "TRAIN", FAKE)
    monkeypatch.setattr(running, "POLL_SECONDS", 0.02)


def status_of(rates: Sequence[object], *arguments: str, more: str = "") -> int:
    Path("rates.gin").write_text(f'Sweep.choices = {{"{RATE}": {list(rates)!r}}}\n{more}')
    return sweep.main(["meshtf-sweep", "--gin_file=digits_mlp.gin", "--sweep_file=rates.gin", *arguments])


def begun(number: int) -> int:
    return len(Path(f"sweeps/rates/trial_{number:03d}/begun").read_text())


def test_trials_are_ranked_kept_and_added_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of([3.0, 1.5, 8]) == ExitStatus.DONE
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  trial_")]
    assert rows == [
        ["trial_001", "0.5", "3", "0.5", "3", "done", "1.5"],
        ["trial_000", "1", "3", "1", "3", "done", "3.0"],
        ["trial_002", "-", "-", "-", "0", "not", "finite", "8"],
    ]
    assert status_of([1.5, 3.0, 0.75], "--jobs=2") == ExitStatus.DONE
    assert [begun(number) for number in range(4)] == [1, 1, 1, 1]
    results = json.loads(Path("sweeps/rates/results.json").read_text())
    assert [each["trial"] for each in results["trials"]] == ["trial_003", "trial_001", "trial_000"]
    table = list(csv.DictReader(Path("sweeps/rates/results.csv").read_text().splitlines()))
    assert [(row[RATE], float(row["best"])) for row in table] == [("0.75", 0.25), ("1.5", 0.5), ("3.0", 1.0)]
    assert Path("sweeps/rates/results.png").read_bytes().startswith(b"\x89PNG")


def test_a_hopeless_trial_ends_early_and_a_failed_one_runs_again(capsys: pytest.CaptureFixture[str]) -> None:
    more = 'Sweep.stop_early = "median"\nSweep.start_up_trials = 2\n'
    assert status_of([1, 2, 100, 7], more=more) == ExitStatus.FAILED
    out = capsys.readouterr().out
    assert "trial_002: stopped early\n" in out
    assert "trial_003: failed with status 1: meshtf-train: error: seven is wrong\n  all of it is in " in out
    assert status_of([1, 2, 100, 7], more=more) == ExitStatus.FAILED
    assert [begun(number) for number in range(4)] == [1, 1, 1, 2]


def test_commands_are_written_for_trials_that_have_not_ended() -> None:
    assert status_of([1]) == ExitStatus.DONE
    assert status_of([1, 2], "--write_jobs=jobs.sh", "--launch=meshtf-launch --processes=2 --") == ExitStatus.DONE
    (line,) = Path("jobs.sh").read_text().splitlines()
    given = [f"--gin_param={RATE} = 2", f"--model_dir={Path.cwd()}/sweeps/rates/trial_001"]
    launch = ["meshtf-launch", "--processes=2", "--", "meshtf-train", "--gin_file=digits_mlp.gin"]
    assert shlex.split(line) == [*launch, *given]
    os.mkfifo("pipe")
    assert status_of([1, 2], "--write_jobs=pipe") == ExitStatus.BAD_CONFIGURATION
    assert Path("pipe").is_fifo()


def test_a_signal_stops_the_trials_which_wait_for_the_next_command(tmp_path: Path) -> None:
    stop, states = StopRequest(), {0: WAITING, 1: WAITING}
    trials = [Trial(number, {RATE: "100"}) for number in (0, 1)]

    def command(trial: Trial) -> list[str]:
        stop.signal = signal.SIGTERM  # before the second trial starts
        return [*FAKE, f"--gin_param={trial.bindings[0]}", f"--model_dir={tmp_path / trial.name}"]

    sweep_run = SweepRun(
        Sweep(choices={RATE: [100]}), SweepFolder(tmp_path), states=states, command=command, save=lambda: None
    )
    sweep_run.run(trials, 2, stop)
    assert states == {0: WAITING, 1: WAITING}
    assert not (tmp_path / "trial_001").exists()


def test_a_choice_may_be_a_reference_or_a_macro() -> None:
    Path("made.gin").write_text(
        'rates = [0.1, (0.2,)]\nSweep.choices = {"Training.optimizer": [@SgdOptimizer(), @fast/SgdOptimizer()], '
        '"SgdOptimizer.learning_rate": %rates}\n'
    )
    arguments = ["--gin_file=digits_mlp.gin", "--sweep_file=made.gin", "--write_jobs=jobs.sh"]
    assert sweep.main(["meshtf-sweep", *arguments]) == ExitStatus.DONE
    first, *_, last = (shlex.split(line)[2:4] for line in Path("jobs.sh").read_text().splitlines())
    assert first == ["--gin_param=Training.optimizer = @SgdOptimizer()", "--gin_param=SgdOptimizer.learning_rate = 0.1"]
    assert last[0] == "--gin_param=Training.optimizer = @fast/SgdOptimizer()"


MISTAKES: list[tuple[list[object], list[str], str, str]] = [
    ([1], [], 'Sweep.metric = "held_out_los"', 'has the metric "held_out_los", which Sweep.metric names; did you'),
    ([1], [], "Sweep.mode = 3", "Sweep.mode must be"),
    ([1], [], "Training.num_steps = 3", "--sweep_file:\n  Training.num_steps = 3  is from rates.gin:2\nWrite it into"),
    ([], [], "", "must be a list of one value or more"),
    ([1], ["--gin_param=Training.seed=3"], "", "holds a sweep of another training"),
    ([1], ["--launch=a 'b"], "", "--launch=a 'b is no command: No closing quotation"),
    (
        [1],
        ["--launch=no-such-program --"],
        "",
        "--launch=no-such-program -- names a program that is not on this machine",
    ),
    ([1], ["--write_jobs=no/such/jobs.sh"], "", "--write_jobs=no/such/jobs.sh: its folder does not exist; create it"),
    ([1], ["--write_jobs=rates.gin"], "", "--write_jobs=rates.gin would overwrite rates.gin, which this command reads"),
]


@pytest.mark.parametrize(("rates", "arguments", "more", "message"), MISTAKES, ids=[each[-1] for each in MISTAKES])
def test_a_mistake_is_a_message_and_status_2(
    rates: list[object], arguments: list[str], more: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments:
        assert status_of([1]) == ExitStatus.DONE
    assert status_of(rates, *arguments, more=more) in (ExitStatus.BAD_CONFIGURATION, ExitStatus.FAILED)
    assert message in capsys.readouterr().err


def test_a_sweep_is_not_started_as_several_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its trials would wait for one another."""
    monkeypatch.setenv(MESHTF_LAUNCH, Launched(0, ("127.0.0.1:1", "127.0.0.1:2"), "").to_text())
    assert status_of([1]) == ExitStatus.BAD_CONFIGURATION
    assert "give --launch='meshtf-launch --processes=N --', which starts each trial so" in capsys.readouterr().err
    assert not Path("sweeps").exists()


def test_an_unknown_binding_has_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rates.gin").write_text('Sweep.choices = {"AdamWOptimizer.learning_rat": [1]}\n')
    arguments = ["meshtf-sweep", "--gin_file=digits_mlp.gin", "--sweep_file=rates.gin"]
    assert sweep.main(arguments) == ExitStatus.BAD_CONFIGURATION
    assert 'did you mean "learning_rate"?' in capsys.readouterr().err
    assert not Path("sweeps").exists()


@pytest.mark.long
def test_real_trainings_are_swept_and_resumed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sweep, "TRAIN", (sys.executable, "-m", "meshtf.bin.train"))
    flags = ["--gin_param=Training.num_steps = 40", "--gin_param=Training.evaluate_every = 20"]
    assert status_of([1e-6, 3e-3], *flags) == ExitStatus.DONE
    out = capsys.readouterr().out
    results = json.loads(Path("sweeps/rates/results.json").read_text())
    assert [each["values"][RATE] for each in results["trials"]] == ["0.003", "1e-06"], out
    assert status_of([1e-6, 3e-3], *flags) == ExitStatus.DONE
    assert "2 trials in " in capsys.readouterr().out
