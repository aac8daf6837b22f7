"""The command line of meshtf-serve."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.command_lines.shared.flag_groups import (
    define_allow_unread_bindings,
    define_checkpoint_flags,
    define_gin_param,
    define_mesh_flags,
)
from meshtf_programs.command_lines.shared.path_flags import define_path

PROGRAM = "meshtf-serve"


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    line = command_line()
    return line.answer(with_run(arguments))


def with_run(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments. A run that is given without a flag becomes the value of --model_dir."""
    if len(arguments) > 1 and not arguments[1].startswith("-"):
        return [arguments[0], f"--model_dir={arguments[1]}", *arguments[2:]]
    return list(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="serves a trained model over HTTP, in the OpenAI-style schema, with a page to chat with it at /.\n"
        "It listens on this machine alone unless --host says otherwise. SIGTERM lets the requests that run end.",
        usage=f"{PROGRAM} RUN [--port=PORT] [--token_file=FILE] [--num_rows=N] [--chat_template=FILE]",
        examples=[
            f"{PROGRAM} runs/lm_tiny --port=8000",
            f"{PROGRAM} runs/imported --num_rows=32 --host=0.0.0.0 --token_file=token.txt",
            f"{PROGRAM} runs/lm_tiny --mesh_shape='rows:2;cols:2' --layout='batch:rows;vocab:cols'",
        ],
        required=["model_dir"],
    )
    define_checkpoint_flags(line.flags)
    define_address_flags(line.flags)
    define_bound_flags(line.flags)
    define_engine_flags(line.flags)
    define_gin_param(line.flags)
    define_allow_unread_bindings(line.flags)
    define_mesh_flags(line.flags)
    return line


def define_address_flags(values: flags.FlagValues) -> None:
    """Defines the flags for where the server listens, and who may use it."""
    flags.DEFINE_string(
        "host", "127.0.0.1", "The address to listen on; by default this machine's own.", flag_values=values
    )
    flags.DEFINE_integer(
        "port", 8000, "The port to listen on; 0 stands for any free one.", 0, 65535, flag_values=values
    )
    flags.DEFINE_string(
        "token",
        None,
        "A token that requests must bring, as Authorization: Bearer TOKEN. Other users of this machine see it in the "
        "list of processes: --token_file keeps it from them.",
        flag_values=values,
    )
    define_path(values, "token_file", None, "A file whose only line is the token that requests must bring.")
    flags.DEFINE_string(
        "name", None, "The model's name in requests; by default the name of the run's folder.", flag_values=values
    )
    define_path(
        values,
        "chat_template",
        None,
        "A file with a chat template in Jinja2, as Hugging Face's tokenizers have it; by default the one that "
        "came with the checkpoint. Without one there are completions, but no chats.",
    )


def define_bound_flags(values: flags.FlagValues) -> None:
    """Defines the flags for the limits on the sizes and times of requests."""
    flags.DEFINE_integer("max_body_bytes", 1 << 20, "The most bytes of a request's body.", 1024, flag_values=values)
    flags.DEFINE_integer("max_connections", 1024, "The most connections at once.", 1, flag_values=values)
    flags.DEFINE_float(
        "request_seconds", 600.0, "The seconds after which a generation is cut off.", 0.001, flag_values=values
    )
    flags.DEFINE_float(
        "form_seconds",
        10.0,
        "The seconds for which a request may wait until its form (response_format) is compiled.",
        0.001,
        flag_values=values,
    )
    flags.DEFINE_float(
        "drain_seconds",
        30.0,
        "The seconds that generations have to end after SIGTERM. A second signal ends them at once.",
        0.0,
        flag_values=values,
    )


def define_engine_flags(values: flags.FlagValues) -> None:
    """Defines the flags for how much the engine runs at once."""
    flags.DEFINE_integer(
        "num_rows", None, "The number of generations that run at once; 8 by default.", 1, flag_values=values
    )
    flags.DEFINE_integer(
        "num_prompt_tokens",
        None,
        "The number of prompt tokens that a step reads in addition to the generations; 32 by default.",
        1,
        flag_values=values,
    )
    flags.DEFINE_integer("page_size", None, "The number of tokens of a page; 16 by default.", 1, flag_values=values)
    flags.DEFINE_integer(
        "num_pages",
        None,
        "The number of pages of the cache; by default enough for --num_rows of the greatest length.",
        1,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "num_lengths",
        None,
        "For how many lengths of texts steps are compiled, at most: the greatest, a quarter of it and so on; 2 by "
        "default. With more, short texts take shorter steps, but the start takes longer.",
        1,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "queue_length",
        None,
        "The places for generations that wait, and for scores; 512 by default. One client alone gets half of them.",
        1,
        flag_values=values,
    )
