"""meshtf-decode: continues prompts with a trained model, or scores text, from a checkpoint of its run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from absl import flags

from meshtf.bin.shared.cluster import wants_cluster
from meshtf.bin.shared.configuration_flags import mesh_bindings
from meshtf.bin.shared.decoding_flags import decoding_bindings, decoding_of
from meshtf.bin.shared.mesh import check_rules_are_used, mesh_for
from meshtf.bin.shared.output_file import check_overwrites_no_configuration, check_overwrites_no_input
from meshtf.bin.shared.peak_memory import say_peak_memory
from meshtf.bin.shared.run_program import run_program
from meshtf.errors import SaveError, counted
from meshtf.train.configuration import ConfigurationError, check_every_binding_is_read
from meshtf.train.decoding.drafts.draft_model import Draft
from meshtf.train.decoding.earlier_scores import EarlierScores
from meshtf.train.decoding.output import Output, open_output
from meshtf.train.decoding.prompt_text import PromptText, TextsOfFiles, given_texts, no_text_in
from meshtf.train.decoding.results import TextScore
from meshtf.train.decoding.text_decoder import ContinuedTexts, ScoredTexts
from meshtf.train.runs.agreement import Agreement
from meshtf.train.runs.run_folder import RunFolder
from meshtf_programs.command_lines.decode import PROGRAM, command_line
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.user_paths import user_path

_ONE_HAS_THE_INPUT = """\
the processes of a cluster cannot read standard input, and all of them need the same texts: give --prompt or \
--prompt_file."""

_RESUMES_SCORES = """\
--resume continues a file of scores in JSON lines: give --score, --format=jsonl and the --output of the earlier run."""

_NO_DRAFT = """\
--draft_tokens has no effect without --draft, the run of the model that drafts."""

_DRAFTS_NO_SCORE = """\
--draft has no effect with --score; it is for decoding."""

T = TypeVar("T")

DRAFT_TOKENS = 4
"""The default of --draft_tokens."""

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
    draft = draft_of(values)  # comes first, so that gin holds the model's configuration when decoding is read
    bindings = [*values.gin_param, *mesh_bindings(values), *decoding_bindings(values)]
    training = folder.read_training(bindings, trust_config=values.trust_config)
    decoding = decoding_of(values, training, is_score=values.score)
    files = [Path(name) for name in values.prompt_file]
    if wants_cluster(values) and not (values.prompt or files):
        raise ConfigurationError(_ONE_HAS_THE_INPUT)
    check_resume(values)
    check_overwrites_no_configuration(values.output)
    check_overwrites_no_input(values.output, "--prompt_file", files)
    for form in ("json_schema", "grammar"):
        check_overwrites_no_input(values.output, f"--{form}", filter(None, [values[form].value]))
    texts = texts_of(values, files)
    mesh_impl = mesh_for(values, training)
    earlier = EarlierScores.none()
    if values.score:
        earlier = earlier_scores(values, texts)
        work = ScoredTexts(training, mesh_impl, decoding, texts, earlier.count)
    else:
        work = ContinuedTexts(training, mesh_impl, decoding, list(texts), draft=None if draft is None else draft[1])
    if not values.allow_unread_bindings:
        check_every_binding_is_read(of_flags_alone=True)
    if values.layout is not None:
        check_rules_are_used(work.forward)
    step = work.restore(folder, values.step, values.weights)
    if draft is not None and isinstance(work, ContinuedTexts):
        draft_step = work.restore_draft(draft[0])
        _say(f"drafting {counted(draft[1].num_tokens, 'token')} at a time with step {draft_step} of {draft[0].shown}")
    if values.resume:
        _agreed(lambda: earlier.check_step(step, user_path(values.output)))
    what = "scoring" if values.score else f"decoding ({decoding.method})"
    where = f"step {step} of {folder.shown} on mesh [{mesh_impl.shape}], layout [{training.layout_text}]"
    done = f", of which {earlier.count:,} are done" if earlier.count else ""
    _say(f"{what} {counted(work.count, 'text')}{done} with {where}")
    path = values.output if Agreement.of_this_process().is_leader else os.devnull
    is_json, kept = values.format == "jsonl", earlier.num_bytes
    output = functools.partial(open_output, path, work.count, is_json=is_json, num_kept=kept)
    return functools.partial(write_results, work, output, earlier, step)


def draft_of(values: flags.FlagValues) -> tuple[RunFolder, Draft] | None:
    """Returns the run of --draft and the draft, or None without one.

    Raises:
      ConfigurationError: if --draft is no run of a language model, or a flag has no effect.
    """
    if values.draft is None:
        if values.draft_tokens is not None:
            raise ConfigurationError(_NO_DRAFT)
        return None
    if values.score:
        raise ConfigurationError(_DRAFTS_NO_SCORE)
    folder = RunFolder.existing(values.draft)
    training = folder.read_training(trust_config=values.trust_config)
    return folder, Draft.of(training, values.draft_tokens or DRAFT_TOKENS)


def check_resume(values: flags.FlagValues) -> None:
    """Raises ConfigurationError for a --resume that finds no earlier scores to continue."""
    if values.resume and not (values.score and values.output and values.format == "jsonl"):
        raise ConfigurationError(_RESUMES_SCORES)


def texts_of(values: flags.FlagValues, files: Sequence[Path]) -> Iterable[PromptText]:
    """Returns the texts. Files to score are read line by line, so they need not fit in memory."""
    is_large = values.score and not values.prompt and files and all(user_path(path).is_file() for path in files)
    if not is_large:
        return given_texts(values.prompt, files, sys.stdin.buffer)
    texts = TextsOfFiles(files)
    if next(iter(texts), None) is None:
        raise ConfigurationError(no_text_in(files))
    return texts


def earlier_scores(values: flags.FlagValues, texts: Iterable[PromptText]) -> EarlierScores:
    """Returns the scores in --output that --resume continues. In a cluster the first process decides how many.

    Raises:
      SaveError: if the file has something else. In a cluster the other processes raise OthersRefuseError.
    """
    if not values.resume:
        return EarlierScores.none()
    found = _agreed(lambda: EarlierScores.read(user_path(values.output), texts)) or EarlierScores.none()
    agreement = Agreement.of_this_process()
    count = agreement.first_text(str(found.count) if agreement.is_leader else None)
    return dataclasses.replace(found, count=int(count or 0))


def _agreed(read: Callable[[], T]) -> T | None:
    """Returns the result of `read` in the first process of a cluster, and None in the others.

    Raises:
      SaveError: if it cannot be read. In a cluster the other processes raise OthersRefuseError.
    """
    found, refusal, agreement = None, None, Agreement.of_this_process()
    if agreement.is_leader:
        try:
            found = read()
        except SaveError as error:
            refusal = error
    agreement.check_none_refuses("" if refusal is None else str(refusal))
    if refusal is not None:
        raise refusal
    return found


def write_results(
    work: ContinuedTexts | ScoredTexts,
    open_one: Callable[[], contextlib.AbstractContextManager[Output]],
    earlier: EarlierScores,
    step: int,
) -> int:
    """Runs the work with the model of this step, and appends its results to the earlier ones."""
    start = time.perf_counter()
    with open_one() as output:
        if isinstance(work, ScoredTexts):
            _say(f"together: {score(work, output, earlier, step)}")
        else:
            count = continue_prompts(work, output)
            seconds = time.perf_counter() - start
            _say(f"{counted(count, 'token')} in {seconds:.1f} s, compiling included")
            if work.drafted is not None:
                _say(str(work.drafted))
    say_peak_memory(_say, work.programs)
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
        output.advance(1)
    return num_tokens


def score(work: ScoredTexts, output: Output, earlier: EarlierScores, step: int) -> TextScore:
    """Writes the score of every text that has none, with the model's step. Returns the score of all texts together."""
    output.advance(earlier.count)
    total = earlier.total
    for text_score in work:
        output.write({**text_score.as_json(), "step": step}, f"=== {text_score}\n{text_score.text}")
        output.advance(1)
        total = TextScore.total([total, text_score])
    return total


if __name__ == "__main__":
    run()
