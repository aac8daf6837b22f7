"""meshtf-dialog: talks with a model that rates its own responses and calls tools, from a checkpoint of its run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags

from meshtf.bin.shared.cluster import wants_cluster
from meshtf.bin.shared.configuration_flags import mesh_bindings
from meshtf.bin.shared.mesh import check_rules_are_used, mesh_for
from meshtf.bin.shared.output_file import check_overwrites_no_configuration, check_overwrites_no_input
from meshtf.bin.shared.peak_memory import say_peak_memory
from meshtf.bin.shared.run_program import run_program
from meshtf.errors import counted
from meshtf.train.configuration import ConfigurationError, check_every_binding_is_read, configuration_errors
from meshtf.train.decoding.output import Output, open_output
from meshtf.train.decoding.prompt_text import given_texts
from meshtf.train.dialog.calculator import Calculator
from meshtf.train.dialog.dialog_model import DialogModel
from meshtf.train.dialog.evaluation import evaluated_stages, held_out_questions, known_toolset
from meshtf.train.dialog.ranking import SampleAndRank
from meshtf.train.dialog.retrieval import Retrieval
from meshtf.train.dialog.roles import RESPONSE, USER, turn
from meshtf.train.dialog.tool_loop import Answer, answered
from meshtf.train.dialog.tools import Toolset
from meshtf.train.runs.agreement import Agreement
from meshtf.train.runs.run_folder import RunFolder
from meshtf_programs.command_lines.dialog import PROGRAM, command_line
from meshtf_programs.exit_status import ExitStatus

_ONE_HAS_THE_INPUT = """\
the processes of a cluster cannot read standard input: give --prompt or --questions."""

_OWN_TOOLS = """\
--questions asks generated questions with the tools that know their answers: leave out {flag}."""

__all__ = ["PROGRAM", "command_line", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Talks, and returns the exit status."""
    return run_program(command_line(), prepare, arguments)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads configuration and texts, builds and checks the programs, and restores the checkpoint."""
    folder = RunFolder.existing(values.model_dir)
    training = folder.read_training([*values.gin_param, *mesh_bindings(values)], trust_config=values.trust_config)
    with configuration_errors():
        options = SampleAndRank()
    check_flags(values)
    check_overwrites_no_configuration(values.output)
    check_overwrites_no_input(values.output, "--passages", values.passages)
    toolset = toolset_of(values)
    texts = [] if values.questions else [text.text for text in given_texts(values.prompt, [], sys.stdin.buffer)]
    mesh_impl = mesh_for(values, training)
    model = DialogModel(training, mesh_impl, options, values.batch_size)
    if not values.allow_unread_bindings:
        check_every_binding_is_read(of_flags_alone=True)
    if values.layout is not None:
        check_rules_are_used(model.forward)
    model.check([f"{turn(USER, text)}{RESPONSE}" for text in texts])
    step = model.restore(folder, values.step, values.weights)
    count = values.questions or len(texts)
    _say(f"answering {counted(count, 'turn')} with step {step} of {folder.shown} on mesh [{mesh_impl.shape}]")
    path = values.output if Agreement.of_this_process().is_leader else os.devnull
    output = functools.partial(open_output, path, count, is_json=values.format == "jsonl", num_kept=0)
    work = (
        functools.partial(evaluate, model, count)
        if values.questions
        else functools.partial(talk, model, texts, toolset)
    )
    return functools.partial(write_results, work, output, model)


def check_flags(values: flags.FlagValues) -> None:
    """Raises ConfigurationError for flags that contradict each other."""
    if wants_cluster(values) and not (values.prompt or values.questions):
        raise ConfigurationError(_ONE_HAS_THE_INPUT)
    given = {"--prompt": values.prompt, "--passages": values.passages, "--notools": not values.tools}
    for flag, is_given in given.items():
        if values.questions and is_given:
            raise ConfigurationError(_OWN_TOOLS.format(flag=flag))


def toolset_of(values: flags.FlagValues) -> Toolset | None:
    """The tools that the flags ask for: a calculator, and retrieval if there are passages."""
    if not values.tools:
        return None
    paths = [Path(path) for path in values.passages]
    return Toolset([Calculator(), *([Retrieval.of_files(paths)] if paths else [])])


def write_results(
    work: Callable[[Output], None],
    open_one: Callable[[], contextlib.AbstractContextManager[Output]],
    model: DialogModel,
) -> int:
    """Runs the work, which is the model's, with an open output."""
    with open_one() as output:
        work(output)
    say_peak_memory(_say, model.programs)
    return ExitStatus.DONE


def talk(model: DialogModel, texts: Sequence[str], toolset: Toolset | None, output: Output) -> None:
    """Writes the answer to each text, a batch at a time."""
    for start in range(0, len(texts), model.batch_size):
        batch = texts[start : start + model.batch_size]
        answers = answered(model, [turn(USER, text) for text in batch], toolset)
        for text, answer in zip(batch, answers, strict=True):
            output.write(as_json(text, answer), answer.text)
        output.advance(len(batch))


def evaluate(model: DialogModel, count: int, output: Output) -> None:
    """Writes the shares of good answers at each stage."""
    for scores in evaluated_stages(model, held_out_questions(count), known_toolset()):
        output.write(scores.as_json(), str(scores))
    output.advance(count)


def as_json(text: str, answer: Answer) -> dict[str, object]:
    """The fields of a line of JSON."""
    return {"prompt": text, **dataclasses.asdict(answer)}


def _say(line: str) -> None:
    """Prints a line beside the results. In a cluster only the first process prints it."""
    if Agreement.of_this_process().is_leader:
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    run()
