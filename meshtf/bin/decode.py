"""meshtf-decode: continues prompts with a trained model, or scores text, from a checkpoint of its run."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags

from meshtf.bin.shared.cluster import wants_cluster
from meshtf.bin.shared.configuration_flags import mesh_bindings
from meshtf.bin.shared.decoding_flags import decoding_of
from meshtf.bin.shared.mesh import check_rules_are_used, mesh_for
from meshtf.bin.shared.run_program import run_program
from meshtf.errors import counted
from meshtf.train.configuration import ConfigurationError, check_every_binding_is_read
from meshtf.train.decoding.output import Output, open_output
from meshtf.train.decoding.prompt_text import given_texts
from meshtf.train.decoding.results import TextScore
from meshtf.train.decoding.text_decoder import ContinuedTexts, ScoredTexts
from meshtf.train.runs.agreement import Agreement
from meshtf.train.runs.run_folder import RunFolder
from meshtf_programs.command_lines.decode import PROGRAM, command_line
from meshtf_programs.exit_status import ExitStatus

_ONE_HAS_THE_INPUT = """\
standard input reaches none of the processes of a cluster, which all work on the same texts: give --prompt or \
--prompt_file."""

__all__ = ["PROGRAM", "command_line", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Decodes, and returns the exit status."""
    return run_program(command_line(), prepare, arguments)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads configuration and texts, builds and checks the programs, and restores the checkpoint."""
    folder = RunFolder.existing(values.model_dir)
    training = folder.read_training([*values.gin_param, *mesh_bindings(values)], trust_config=values.trust_config)
    decoding = decoding_of(values, training, is_score=values.score)
    files = [Path(name) for name in values.prompt_file]
    if wants_cluster(values) and not (values.prompt or files):
        raise ConfigurationError(_ONE_HAS_THE_INPUT)
    texts = given_texts(values.prompt, files, sys.stdin.buffer)
    mesh_impl = mesh_for(values, training)
    make = ScoredTexts if values.score else ContinuedTexts
    work = make(training, mesh_impl, decoding, texts)
    if not values.allow_unread_bindings:
        check_every_binding_is_read(of_flags_alone=True)
    if values.layout is not None:
        check_rules_are_used(work.forward)
    step = work.restore(folder, values.step, values.weights)
    what = "scoring" if values.score else f"decoding ({decoding.method})"
    where = f"step {step} of {folder.shown} on mesh [{mesh_impl.shape}], layout [{training.layout_text}]"
    _say(f"{what} {counted(len(texts), 'text')} with {where}")
    path = values.output if Agreement.of_this_process().is_leader else os.devnull
    output = functools.partial(open_output, path, len(texts), is_json=values.format == "jsonl")
    return functools.partial(write_results, work, output)


def write_results(
    work: ContinuedTexts | ScoredTexts, open_one: Callable[[], contextlib.AbstractContextManager[Output]]
) -> int:
    """Runs the work, and writes its results."""
    start = time.perf_counter()
    with open_one() as output:
        if isinstance(work, ScoredTexts):
            _say(f"together: {score(work, output)}")
        else:
            count = continue_prompts(work, output)
            seconds = time.perf_counter() - start
            _say(f"{counted(count, 'token')} in {seconds:.1f} s, compiling included")
    return ExitStatus.DONE


def _say(line: str) -> None:
    """Prints a line beside the results. In a cluster only the first process prints it."""
    if Agreement.of_this_process().is_leader:
        print(line, file=sys.stderr, flush=True)


def continue_prompts(work: ContinuedTexts, output: Output) -> int:
    """Writes the continuations of every prompt. Returns how many tokens they have."""
    num_tokens = 0
    for number, continuations in enumerate(work, 1):
        for continuation in continuations:
            output.write(continuation.as_json(), continuation.as_text(number, shows_prompt=not work.has_encoder))
            num_tokens += len(continuation.ids)
        output.advance()
    return num_tokens


def score(work: ScoredTexts, output: Output) -> TextScore:
    """Writes the score of every text. Returns the score of all texts together."""
    scores = []
    for text_score in work:
        output.write(text_score.as_json(), f"=== {text_score}\n{text_score.text}")
        output.advance()
        scores.append(text_score)
    return TextScore.total(scores)


if __name__ == "__main__":
    run()
