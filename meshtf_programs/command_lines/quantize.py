"""The command line of meshtf-quantize."""

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

PROGRAM = "meshtf-quantize"
FORMATS = ("int8", "int4", "float8_e4m3")


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    return command_line().answer(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="writes a run's checkpoint with quantized kernels, as a run of its own.\n"
        "meshtf-eval, meshtf-decode and meshtf-export work on it without further flags. It prints the bytes of all\n"
        "weights, the held-out loss and the time of an evaluation, before and after.",
        usage=f"{PROGRAM} --model_dir=FOLDER --output_dir=FOLDER [--format=FORMAT] [--group_size=N] "
        "[--activations=static|dynamic] [--dry_run]",
        examples=[
            f"{PROGRAM} --model_dir=runs/lm_tiny --output_dir=runs/lm_tiny_int8",
            f"{PROGRAM} --model_dir=runs/lm_tiny --output_dir=runs/lm_tiny_int4 --format=int4 --group_size=32",
            f"{PROGRAM} --model_dir=runs/lm_tiny --output_dir=runs/lm_tiny_w8a8 --activations=static",
            f"{PROGRAM} --model_dir=runs/lm_tiny --output_dir=runs/lm_tiny_int8 --dry_run",
        ],
        required=["model_dir", "output_dir"],
    )
    define_checkpoint_flags(line.flags)
    define_path(line.flags, "output_dir", None, "The folder of the quantized run, which is not there yet.")
    flags.DEFINE_enum(
        "format",
        None,
        FORMATS,
        "The numbers of the kernels: int8 (the default), int4 (two in a byte), or float8_e4m3. After "
        "quantization-aware training, this and the flags below are by default as the model was trained.",
        flag_values=line.flags,
    )
    flags.DEFINE_integer(
        "group_size",
        None,
        "How many neighbours along the summed dimension share a scale; by default each output has one scale.",
        lower_bound=1,
        flag_values=line.flags,
    )
    flags.DEFINE_enum(
        "activations",
        None,
        ["static", "dynamic"],
        "Quantizes the inputs of kernels, to float8_e4m3 if the kernels are, else to int8: with a scale for each row "
        "(dynamic), or for each kernel (static), which calibration or quantization-aware training finds.",
        flag_values=line.flags,
    )
    flags.DEFINE_integer(
        "calibration_batches",
        8,
        "The number of training batches whose largest activations are the ranges of static scales.",
        lower_bound=1,
        flag_values=line.flags,
    )
    flags.DEFINE_enum(
        "cache",
        None,
        ["int8"],
        "The numbers of the keys and values that decoding keeps; by default the same as for the activations.",
        flag_values=line.flags,
    )
    flags.DEFINE_bool(
        "dry_run", False, "Only print the bytes of the weights, and write nothing.", flag_values=line.flags
    )
    define_gin_param(line.flags)
    define_allow_unread_bindings(line.flags)
    define_mesh_flags(line.flags)
    return line
