"""meshtf-dialog: LaMDA's recipe from end to end, and mistakes in its flags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshtf.bin import dialog
from meshtf.train.configuration import ConfigurationError
from tests.fresh_process import run_fresh


def run(program: str, *arguments: str) -> str:
    done = run_fresh(["-m", f"meshtf.bin.{program}", *arguments], timeout_seconds=1500)  # minutes, if it is alone
    assert done.status == 0, done.stderr
    return done.stdout


def stages(folder: Path) -> dict[str, dict[str, Any]]:
    lines = run("dialog", f"--model_dir={folder}", "--questions=64", "--format=jsonl").splitlines()
    return {line["stage"]: line for line in map(json.loads, lines)}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_each_stage_of_the_recipe_raises_its_metrics(tmp_path: Path) -> None:
    """The margins are wide: docs/dialog.md has measured figures. SSI is the mean of the three ratings that it names."""
    first, second = tmp_path / "pretrained", tmp_path / "finetuned"
    run("train", "--gin_file=lamda_tiny.gin", f"--model_dir={first}")
    run("train", "--gin_file=lamda_tiny_finetuned.gin", f"--gin_param=pretrained='{first}'", f"--model_dir={second}")
    before, after = stages(first)["sampled"], stages(second)
    sampled, ranked, informed = (after[name] for name in ("sampled", "ranked", "with tools"))

    def ssi(scores: dict[str, Any]) -> float:
        return sum(scores[name] for name in ("sensible", "specific", "interesting")) / 3

    assert ssi(before) + 0.1 < ssi(sampled)
    assert before["sensible"] + 0.1 < sampled["sensible"]
    assert before["safe"] + 0.05 < sampled["safe"]
    assert ssi(sampled) + 0.05 < ssi(ranked)
    assert sampled["safe"] < ranked["safe"]
    assert ranked["grounded"] + 0.2 < informed["grounded"]
    assert ssi(ranked) < ssi(informed)
    passages = tmp_path / "facts.txt"
    passages.write_text("vera ford grows tea .\nomar bell keeps goats .\n")
    arguments = [f"--model_dir={second}", "--prompt=what does vera ford grow ?", f"--passages={passages}"]
    answer = json.loads(run("dialog", *arguments, "--format=jsonl"))
    assert answer["turns"] == [{"query": "vera ford grows", "answer": "vera ford grows tea ."}]
    assert len(answer["candidates"]) == 16


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--prompt=a"], "leave out --prompt"),
        (["--passages=a.txt"], "leave out --passages"),
        (["--notools"], "leave out --notools"),
    ],
)
def test_questions_bring_their_own_tools(flags: list[str], message: str) -> None:
    values = dialog.command_line().flags
    values(["meshtf-dialog", "--model_dir=runs/x", "--questions=3", *flags])
    with pytest.raises(ConfigurationError, match=message):
        dialog.check_flags(values)
