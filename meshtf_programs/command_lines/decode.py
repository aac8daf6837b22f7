"""The command line of meshtf-decode."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.command_lines.shared.flag_groups import (
    define_allow_unread_bindings,
    define_checkpoint_flags,
    define_decoding_flags,
    define_gin_param,
    define_mesh_flags,
)
from meshtf_programs.command_lines.shared.path_flags import define_path, define_paths

PROGRAM = "meshtf-decode"


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    return command_line().answer(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="continues prompts with a trained model, or scores text, on any mesh and layout.\n"
        "Results go to standard output, and all else to standard error.",
        usage=f"{PROGRAM} --model_dir=FOLDER [--prompt=TEXT ...] [--method=METHOD] [--format=jsonl] [--output=FILE]",
        examples=[
            f"{PROGRAM} --model_dir=runs/lm_tiny --prompt='def main(' --max_new_tokens=200",
            f"{PROGRAM} --model_dir=runs/lm_tiny --prompt_file=prompts.txt --method=sample --top_p=0.9 --seed=1",
            f"{PROGRAM} --model_dir=runs/translation --method=beam --format=jsonl < sentences.txt > translated.jsonl",
            f"{PROGRAM} --model_dir=runs/large --draft=runs/small --draft_tokens=4 --prompt='def main('",
            f"{PROGRAM} --model_dir=runs/lm_tiny --score --prompt_file=lines.txt",
            f"{PROGRAM} --model_dir=runs/lm_tiny --score --prompt_file=big.gz --format=jsonl --output=scores --resume",
        ],
        required=["model_dir"],
    )
    define_checkpoint_flags(line.flags)
    define_text_flags(line.flags)
    define_decoding_flags(line.flags)
    define_draft_flags(line.flags)
    define_gin_param(line.flags)
    define_allow_unread_bindings(line.flags)
    define_mesh_flags(line.flags)
    return line


def define_text_flags(values: flags.FlagValues) -> None:
    """Defines the flags for the texts and for the output."""
    flags.DEFINE_multi_string("prompt", [], "A prompt. May be given several times.", flag_values=values)
    define_paths(
        values,
        "prompt_file",
        "A file with one prompt per line, in UTF-8. May be given several times. Without --prompt and --prompt_file "
        "the lines of standard input are the prompts.",
    )
    flags.DEFINE_bool(
        "score",
        False,
        "Whether to score the texts, rather than to continue them: log-likelihood, perplexity, bits per byte. For a "
        "model with an encoder each text is an input, a tab, and an output.",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "resume",
        False,
        "Whether to continue after the scores that --output already has, as when a run was interrupted.",
        flag_values=values,
    )
    define_path(values, "output", None, "The file to write results to; by default standard output.")
    flags.DEFINE_enum(
        "format",
        "text",
        ["text", "jsonl"],
        "The format of the results: text, or one JSON object per line.",
        flag_values=values,
    )


def define_draft_flags(values: flags.FlagValues) -> None:
    """Defines --draft and --draft_tokens."""
    define_path(
        values,
        "draft",
        None,
        "The folder of the run of a smaller model with the same vocabulary, which drafts tokens. The model checks "
        "several of them in one step. With --method=greedy the text is the same as without it, and with "
        "--method=sample it has the same distribution.",
    )
    flags.DEFINE_integer(
        "draft_tokens",
        None,
        "With --draft: how many tokens are drafted before each step of the model; 4 by default.",
        lower_bound=1,
        upper_bound=64,
        flag_values=values,
    )
