"""Compares speculative with ordinary decoding: for `lm_tiny`, a more expensive model, and a draft of one layer.

    python -m benchmarks.drafts.speculative_decoding --folder build/speculative

The first run trains `lm_tiny` and the draft into the folder, for some minutes each. The more expensive model is
`lm_tiny` with wider feed-forward layers whose new units are 0. So it writes the same text as `lm_tiny`, and accepts the
same drafted tokens, but its steps read many more weights. All programs run in one process on a mesh of one core, and
take turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import meshtf as mtf
from benchmarks.measuring.machine import machine
from meshtf.train import RunFolder
from meshtf.train.decoding import Decoding
from meshtf.train.decoding.drafts.draft_model import Draft
from meshtf.train.decoding.prompt_text import PromptText
from meshtf.train.decoding.text_decoder import ContinuedTexts

PROMPTS = ("def main(", "import ", "class Node:", "    return ", "for name in ", "# The ", "if not ", "raise ")
NEW = 128
DRAFT = (
    "d_model=64",
    "TransformerStack.num_layers=1",
    "FeedForward.d_ff=256",
    "AttentionConfig.num_heads=2",
    "Training.num_steps=600",
    "CosineSchedule.num_steps=600",
)
HEAD = (
    "| model | method | batch | drafted | ms | CPU, ms | ratio | ratio of CPU | tokens a step | accepted |\n"
    + "|---" * 10
    + "|"
)


@dataclasses.dataclass(frozen=True)
class Case:
    """A way to continue the prompts.

    Attributes:
      d_ff: the size of the model's feed-forward layers.
      method: greedy or sample.
      batch: how many prompts are continued together.
      num_drafted: how many tokens are drafted at a time; 0 for ordinary decoding.
    """

    d_ff: int
    method: str
    batch: int
    num_drafted: int

    def work(self, model: Path, draft: Path) -> ContinuedTexts:
        """The texts to be continued, with the weights of the two runs."""
        drafts = RunFolder.existing(draft)
        drafting = Draft.of(drafts.read_training(), self.num_drafted) if self.num_drafted else None
        folder = RunFolder.existing(model)
        wide = folder.read_training([f"FeedForward.d_ff={self.d_ff}"])
        prompts = [PromptText(text, text) for text in PROMPTS[: self.batch]]
        decoding = Decoding(self.method, max_new_tokens=NEW)
        mesh_impl = mtf.SpmdMeshImpl("all:1", "")
        work = ContinuedTexts(wide, mesh_impl, decoding, prompts, draft=drafting)
        if drafting is not None:
            work.restore_draft(drafts)
        narrow = ContinuedTexts(folder.read_training(), mesh_impl, decoding, prompts)
        narrow.restore(folder)
        work.forward.initialize()
        for name in narrow.forward.variables:
            own, given = work.forward.variables[name], narrow.forward.variables[name]
            work.forward.variables[name] = np.pad(
                given, [(0, n - m) for n, m in zip(own.shape, given.shape, strict=True)]
            )
        return work


@dataclasses.dataclass
class Measured:
    """The times of one case in seconds, and the ids that it added in its last run."""

    work: ContinuedTexts
    wall: list[float] = dataclasses.field(default_factory=list)
    cpu: list[float] = dataclasses.field(default_factory=list)
    ids: list[list[int]] = dataclasses.field(default_factory=list)

    def run(self) -> None:
        self.work.count_runs_from(0)
        wall, cpu = time.perf_counter(), time.process_time()
        self.ids = [list(best.ids) for best, *_ in self.work]
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)


def measured(cases: Sequence[Case], model: Path, draft: Path, rounds: int) -> list[str]:
    """The rows of the table. The other cases are compared with the first."""
    taken = [Measured(case.work(model, draft)) for case in cases]
    for number in range(rounds + 1):  # the first compiles
        for one in taken:
            one.run()
            if not number:
                one.wall, one.cpu = [], []
    if cases[0].method == "greedy" and any(one.ids != taken[0].ids for one in taken):
        raise AssertionError(f"a draft has changed a text of {cases[0]}")
    return [_row(case, one, taken[0]) for case, one in zip(cases, taken, strict=True)]


def _row(case: Case, one: Measured, plain: Measured) -> str:
    ratio = statistics.median(a / b for a, b in zip(one.wall, plain.wall, strict=True))
    of_cpu = min(one.cpu) / min(plain.cpu)
    helped = one.work.drafted
    steps, share = ("1", "-") if helped is None else (f"{helped.tokens_per_step:.2f}", f"{helped.share:.0%}")
    cells = [
        f"d_ff {case.d_ff:,}", case.method, case.batch, case.num_drafted or "-",
        f"{statistics.median(one.wall) * 1e3:.0f}", f"{min(one.cpu) * 1e3:.0f}", f"{ratio:.2f}", f"{of_cpu:.2f}",
        steps, share,
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def trained(folder: Path, *bindings: str) -> Path:
    """The folder of a run of lm_tiny.gin. If it is missing, trains it first."""
    if not (folder / "checkpoints").exists():
        options = [f"--gin_param={binding}" for binding in bindings]
        command = [sys.executable, "-m", "meshtf.bin.train", "--gin_file=lm_tiny.gin", f"--model_dir={folder}"]
        subprocess.run([*command, *options], check=True)
    return folder


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/speculative"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--d_ff", type=int, nargs="+", default=[512, 8192])
    parser.add_argument("--methods", nargs="+", default=["greedy", "sample"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--drafted", type=int, nargs="+", default=[2, 4, 7])
    given = parser.parse_args(arguments)
    model, draft = trained(given.folder / "lm_tiny"), trained(given.folder / "draft", *DRAFT)
    mtf.virtual_cpus(1)
    print(machine(), HEAD, sep="\n")
    for d_ff in given.d_ff:
        for method in given.methods:
            for batch in given.batches:
                cases = [Case(d_ff, method, batch, number) for number in (0, *given.drafted)]
                print(*measured(cases, model, draft, given.rounds), sep="\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
