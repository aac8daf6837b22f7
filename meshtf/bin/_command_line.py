"""The flags of a program: absl's, each program with its own set, with help that has examples and exit statuses."""

from __future__ import annotations

import dataclasses
import math
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from meshtf.bin._exit_status import STATUSES
from meshtf.train.configuration import find_gin_file
from meshtf.train.gin_files.bindings import Parameter
from meshtf.train.gin_files.packaged import packaged_folder, recipe_file, recipes
from meshtf.train.saved_weights import Weights

_HELP = """\
{program} {summary}

Usage:
  {usage}

Examples:
{examples}

Flags:
{flags}

Exit status:
{statuses}
Configurations that meshtf brings along:
{configurations}

Recipes of layouts, for --recipe:
{recipes}
"""

_WIDTH, _INDENT = 100, " " * 6
_MAY_BE_EMPTY = frozenset({"layout", "prompt"})
_HELP_FLAGS = frozenset({"-h", "-help", "--help", "--helpshort", "--helpfull"})


class HelpWanted(Exception):  # noqa: N818  # nothing is wrong
    """The help was asked for; it is the exception's text."""


class FlagError(Exception):
    """A flag that there is not, or a wrong value."""


@dataclasses.dataclass(frozen=True)
class CommandLine:
    """A program's name, what it does, and its flags, in `flags`.

    Attributes:
      program: its name.
      summary: what it does, after its name, as a sentence.
      usage: its form.
      examples: commands.
      required: names of flags that must be given.
      flags: defined by the functions below.
    """

    program: str
    summary: str
    usage: str
    examples: Sequence[str]
    required: Sequence[str] = ()
    flags: flags.FlagValues = dataclasses.field(default_factory=flags.FlagValues)

    def __post_init__(self) -> None:
        define_tensorflow_logs(self.flags)

    def parse(self, arguments: Sequence[str]) -> flags.FlagValues:
        """The values of the flags; `arguments` begin with the program's name.

        Raises:
          HelpWanted: with the help as its text.
          FlagError: an unknown flag, with the nearest; a wrong value; an argument that is no flag.
        """
        if _HELP_FLAGS & set(arguments[1:]):
            raise HelpWanted(self.help_text())
        try:
            rest = self.flags(arguments)
        except (flags.Error, OSError, UnicodeDecodeError) as error:  # of --flagfile, too
            raise FlagError(f"{error}\nSee {self.program} --help.") from None
        if wrong := self._what_is_wrong(rest[1:]):
            raise FlagError(f"{wrong}\nSee {self.program} --help.")
        return self.flags

    def _what_is_wrong(self, rest: Sequence[str]) -> str:
        """With flags that have values of the right types, and what is no flag."""
        given = [self.flags[name] for name in self.flags if self.flags[name].present]
        for flag in given:
            if flag.present > 1 and not isinstance(flag, flags.MultiFlag):
                return f"--{flag.name} is given {flag.present} times, and has one value"
            if flag.name not in _MAY_BE_EMPTY and "" in (flag.value if isinstance(flag.value, list) else [flag.value]):
                return f"--{flag.name} is empty"
            if isinstance(flag.value, float) and not math.isfinite(flag.value):
                return f"--{flag.name} must be a finite number, and is {flag.value}"
        if rest:
            return f"unexpected argument {rest[0]!r}: {self.usage}"
        for name in self.required:
            if not self.flags[name].value:
                return f"--{name} is needed, for example: {self.examples[0]}"
        return ""

    def help_text(self) -> str:
        described = (f"  --{name}\n{_indented(self.flags[name].help or '')}" for name in self.flags)
        configurations = sorted(path.name for path in packaged_folder().glob("*.gin"))
        return _HELP.format(
            program=self.program,
            summary=self.summary,
            usage=self.usage,
            examples="\n".join(f"  {example}" for example in self.examples),
            flags="\n".join(described),
            statuses=STATUSES,
            configurations=_indented(", ".join(configurations)),
            recipes="\n".join(_indented(f"{name}: {about}") for name, about in recipes().items()),
        )

    def complain(self, message: str) -> None:
        print(f"{self.program}: error: {message}", file=sys.stderr)


def _indented(text: str) -> str:
    """Lines of at most 100 characters, without what absl adds to the help of a flag that may be repeated."""
    own = text.partition(";\n    repeat this option")[0]
    return textwrap.fill(own, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)


def define_tensorflow_logs(values: flags.FlagValues) -> None:
    """--tensorflow_logs, which `meshtf_programs.start` reads before TensorFlow is imported."""
    flags.DEFINE_bool(
        "tensorflow_logs",
        False,
        "Whether TensorFlow's own lines are shown: on its build, on devices, on what it compiles.",
        flag_values=values,
    )


def define_gin_flags(values: flags.FlagValues) -> None:
    """--gin_file and --gin_param."""
    flags.DEFINE_multi_string(
        "gin_file",
        [],
        "A gin configuration: the name of one of meshtf's own, or a path. May be given several times; later ones win.",
        flag_values=values,
    )
    define_gin_param(values)


def gin_files(values: flags.FlagValues) -> list[Path]:
    """Those that --gin_file names, and the recipe's, whose bindings win."""
    recipe = [] if values.recipe is None else [str(recipe_file(values.recipe))]
    return [find_gin_file(name) for name in [*values.gin_file, *recipe]]


def define_recipe_flag(values: flags.FlagValues) -> None:
    """--recipe."""
    flags.DEFINE_enum(
        "recipe",
        None,
        list(recipes()),
        "A layout by its name, for a mesh with axes rows and cols; overrides the files'. --layout overrides it.",
        flag_values=values,
    )


def define_gin_param(values: flags.FlagValues) -> None:
    """--gin_param and --allow_unread_bindings."""
    flags.DEFINE_multi_string(
        "gin_param",
        [],
        "A gin binding that overrides the files, as 'Training.num_steps=100'. May be given several times.",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "allow_unread_bindings",
        False,
        "Whether gin bindings that nothing reads are allowed. They are an error by default, since one that is misspelt "
        "would change nothing, unseen. In a file optional_bindings.names says which may go unread.",
        flag_values=values,
    )


def define_checkpoint_flags(values: flags.FlagValues) -> None:
    """--model_dir, --step, --weights and --trust_config: what is restored."""
    flags.DEFINE_string("model_dir", None, "The folder of the run.", flag_values=values)
    flags.DEFINE_integer(
        "step", None, "Which checkpoint; by default the newest that is whole.", lower_bound=0, flag_values=values
    )
    flags.DEFINE_enum(
        "weights",
        Weights.TRAINED.value,
        [weights.value for weights in Weights],
        "Which weights of it: as they were trained (the default), or their averages over the steps, which a training "
        "with MovingAverageOptimizer keeps.",
        flag_values=values,
    )
    define_trust_config(values)


def define_trust_config(values: flags.FlagValues) -> None:
    """--trust_config."""
    flags.DEFINE_bool(
        "trust_config",
        False,
        "Whether the run's configuration may execute what came with it: modules in the run's own folder or of Python's "
        "library, gin's dynamic registration, other files. Reading a configuration imports what it names; without this "
        "flag that is meshtf's own modules, and those that you have outside of the run's folder.",
        flag_values=values,
    )


def define_mesh_flags(values: flags.FlagValues) -> None:
    """--backend, --cluster, --mesh_shape and --layout."""
    define_backend_flag(values)
    flags.DEFINE_bool(
        "cluster",
        False,
        "Whether this is one of several processes over which the mesh is laid, as TF_CONFIG, torchrun's, Open MPI's or "
        "Slurm's variables say; each has an equal part of the cores. What meshtf-launch starts joins without it.",
        flag_values=values,
    )
    define_layout_flags(values)


def define_backend_flag(values: flags.FlagValues) -> None:
    flags.DEFINE_enum(
        "backend",
        "cpu",
        ["cpu", "gpu", "tpu"],
        "What the cores of the mesh are: cpu (virtual CPUs, as many as it has; the default), gpu (GPUs of this "
        "machine), or tpu (never tried on one: docs/tpu.md says what was verified without).",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "virtual",
        None,
        "With --backend=tpu: how many cores a virtual TPU has, which runs the programs on this machine's processors as "
        "a TPU would, through XLA and PJRT.",
        flag_values=values,
    )


def define_layout_flags(values: flags.FlagValues) -> None:
    """--mesh_shape and --layout."""
    flags.DEFINE_string(
        "mesh_shape",
        None,
        "The mesh, as 'rows:2;cols:4'; overrides Training.mesh_shape. One size may be *, as in 'rows:*;cols:4': as "
        "many as there are cores for.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "layout",
        None,
        "Which dimension is split over which mesh axis, as 'batch:rows;d_ff:cols'; overrides Training.layout. A layout "
        "changes no result, and checkpoints do not depend on it.",
        flag_values=values,
    )


def mesh_bindings(values: flags.FlagValues) -> list[Parameter]:
    """The gin bindings for which --mesh_shape and --layout stand."""
    names = [name for name in ("mesh_shape", "layout") if values[name].value is not None]
    return [Parameter(f"--{name}", f"Training.{name} = {values[name].value!r}") for name in names]
