"""LaMDA's recipe on generated dialogs: trains in two stages, and measures the answers at every stage.

    python -m benchmarks.dialog --folder build/dialog

It writes a table and a picture into the folder. A second run continues where the first was interrupted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS = ("quality", "sensible", "specific", "interesting", "safe", "grounded")
"""The shares of good answers. Quality is the mean of the three that follow (Thoppilan et al. 2022)."""

STAGES = {
    "sampled": "and fine-tuned",
    "ranked": "and ranked",
    "with tools": "and with tools",
}


def run(program: str, *arguments: str) -> str:
    """Runs one of meshtf's programs, and returns what it wrote to standard output."""
    command = [sys.executable, "-m", f"meshtf.bin.{program}", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def scores(folder: Path, questions: int) -> dict[str, dict[str, Any]]:
    """The shares of good answers in a run, by stage."""
    lines = run("dialog", f"--model_dir={folder}", f"--questions={questions}", "--format=jsonl").splitlines()
    found = {line["stage"]: line for line in map(json.loads, lines)}
    return {stage: line | {"quality": sum(line[name] for name in METRICS[1:4]) / 3} for stage, line in found.items()}


def measured(folder: Path, questions: int) -> dict[str, Mapping[str, float]]:
    """Runs the recipe in a folder. Returns the shares of good answers after each stage, by its name."""
    first, second = folder / "pretrained", folder / "finetuned"
    run("train", "--gin_file=lamda_tiny.gin", f"--model_dir={first}")
    run("train", "--gin_file=lamda_tiny_finetuned.gin", f"--gin_param=pretrained='{first}'", f"--model_dir={second}")
    after = scores(second, questions)
    return {"pre-trained": scores(first, questions)["sampled"]} | {STAGES[stage]: after[stage] for stage in STAGES}


def table(rows: Mapping[str, Mapping[str, float]]) -> str:
    """The rows as a Markdown table, in percent."""
    lines = [f"| | {' | '.join(METRICS)} |", f"|---|{'---|' * len(METRICS)}"]
    lines += [f"| {name} | {' | '.join(f'{100 * row[m]:.1f}' for m in METRICS)} |" for name, row in rows.items()]
    return "\n".join(lines) + "\n"


def drawn(rows: Mapping[str, Mapping[str, float]]) -> Figure:
    """Bars of each metric, one for each stage."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "meshtf"
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(rows)
    for number, (name, row) in enumerate(rows.items()):
        places = [place + (number - (len(rows) - 1) / 2) * width for place in range(len(METRICS))]
        axes.bar(places, [100 * row[metric] for metric in METRICS], width, label=name)
    axes.set_xticks(range(len(METRICS)), METRICS)
    axes.set_ylabel("% of answers")
    axes.legend(ncols=len(rows), loc="upper center", bbox_to_anchor=(0.5, 1.18), frameon=False)
    return figure


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("build/dialog"))
    parser.add_argument("--questions", type=int, default=64)
    given = parser.parse_args(arguments)
    rows = measured(given.folder, given.questions)
    (given.folder / "table.md").write_text(table(rows))
    drawn(rows).savefig(given.folder / "picture.svg", metadata={"Date": None})
    print(table(rows), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
