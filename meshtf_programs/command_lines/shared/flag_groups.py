"""Flags that several programs share."""

from __future__ import annotations

from absl import flags

from meshtf_programs.command_lines.shared.path_flags import define_path, define_paths
from meshtf_programs.packaged_configurations import recipes

WEIGHTS = ("trained", "average")
METHODS = ("greedy", "sample", "beam", "rank")


def define_tensorflow_logs(values: flags.FlagValues) -> None:
    """Defines --tensorflow_logs, which `meshtf_programs.start` reads before TensorFlow is imported."""
    flags.DEFINE_bool(
        "tensorflow_logs",
        False,
        "Whether TensorFlow's own log is shown: its build, its devices, the programs that it compiles.",
        flag_values=values,
    )


def define_gin_flags(values: flags.FlagValues) -> None:
    """Defines --gin_file, --gin_param and --allow_unread_bindings."""
    define_gin_file(values)
    define_gin_param(values)
    define_allow_unread_bindings(values)


def define_gin_file(values: flags.FlagValues) -> None:
    """Defines --gin_file."""
    define_paths(
        values,
        "gin_file",
        "A gin configuration: the name of one of meshtf's own, or a path. May be given several times; later ones win.",
    )


def define_recipe_flag(values: flags.FlagValues) -> None:
    """Defines --recipe."""
    flags.DEFINE_enum(
        "recipe",
        None,
        list(recipes()),
        "The name of a layout for a mesh with axes rows and cols. It overrides the layout of the gin files, and "
        "--layout overrides it.",
        flag_values=values,
    )


def define_gin_param(values: flags.FlagValues) -> None:
    """Defines --gin_param."""
    flags.DEFINE_multi_string(
        "gin_param",
        [],
        "A gin binding that overrides the files, as 'Training.num_steps=100'. May be given several times.",
        flag_values=values,
    )


def define_allow_unread_bindings(values: flags.FlagValues) -> None:
    """Defines --allow_unread_bindings."""
    flags.DEFINE_bool(
        "allow_unread_bindings",
        False,
        "Whether gin bindings that nothing reads are allowed. By default they are an error, since nobody would notice "
        "that a misspelt one changes nothing. A file may name the ones that may go unread, by optional_bindings.names.",
        flag_values=values,
    )


def define_checkpoint_flags(values: flags.FlagValues) -> None:
    """Defines --model_dir, --step, --weights and --trust_config, which say what to restore."""
    define_path(values, "model_dir", None, "The folder of the run, or of an import.")
    flags.DEFINE_integer(
        "step",
        None,
        "The step of the checkpoint; by default the newest that is whole.",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_enum(
        "weights",
        WEIGHTS[0],
        WEIGHTS,
        "The weights of the checkpoint: as they were trained (the default), or their averages over the steps, which a "
        "training with MovingAverageOptimizer keeps.",
        flag_values=values,
    )
    define_trust_config(values)


def define_trust_config(values: flags.FlagValues) -> None:
    """Defines --trust_config."""
    flags.DEFINE_bool(
        "trust_config",
        False,
        "Whether the run's configuration may execute code that came with it: modules in the run's own folder or of "
        "Python's library, gin's dynamic registration, other files. Reading a configuration imports the modules that "
        "it names. Without this flag only meshtf's own modules are allowed, and the ones that you have outside of the "
        "run's folder.",
        flag_values=values,
    )


def define_mesh_flags(values: flags.FlagValues, *, searches: bool = False) -> None:
    """Defines --backend, --cluster, --mesh_shape and --layout; `searches` as in `define_layout_flags`."""
    define_backend_flag(values)
    flags.DEFINE_bool(
        "cluster",
        False,
        "Whether this is one of several processes that share the mesh, as TF_CONFIG or the variables of torchrun, "
        "Open MPI or Slurm say. Each process has an equal part of the cores. A process that meshtf-launch starts "
        "needs no such flag.",
        flag_values=values,
    )
    define_layout_flags(values, searches=searches, has_cores=True)


def define_backend_flag(values: flags.FlagValues) -> None:
    flags.DEFINE_enum(
        "backend",
        "cpu",
        ["cpu", "gpu", "tpu"],
        "The cores of the mesh: cpu (virtual CPUs, one for each core; the default), gpu (NVIDIA's GPUs, with the "
        "extra cuda12 or cuda13), or tpu (never tried on a real TPU, but with the TPU's own compiler and on virtual "
        "cores).",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "virtual",
        None,
        "With --backend=gpu or tpu: the number of virtual GPUs, or of cores of a virtual TPU, in each process. They "
        "run the programs on this machine's processors, through XLA and PJRT as real ones do.",
        flag_values=values,
    )


def define_layout_flags(values: flags.FlagValues, *, searches: bool = False, has_cores: bool = False) -> None:
    """Defines --mesh_shape and --layout.

    Args:
      values: the flags.
      searches: whether the program takes --layout=auto. It then also has `define_machine_flag`.
      has_cores: whether the program uses cores, so that * may stand for their number.
    """
    mesh_shape = "The mesh, as 'rows:2;cols:4'; overrides Training.mesh_shape."
    layout = (
        "The mesh axis over which each dimension is split, as 'batch:rows;d_ff:cols'; overrides Training.layout. A "
        "layout changes no result, and checkpoints do not depend on it."
    )
    if has_cores:
        mesh_shape += " One size may be *, as in 'rows:*;cols:4': as many as there are cores for."
    if searches:
        mesh_shape += " auto:512, with --layout=auto, chooses the axes of a mesh of 512 cores, too."
        layout += " auto: the layout of least predicted time on --machine."
    flags.DEFINE_string("mesh_shape", None, mesh_shape, flag_values=values)
    flags.DEFINE_string("layout", None, layout, flag_values=values)


def define_machine_flag(values: flags.FlagValues) -> None:
    """Defines --machine."""
    define_path(
        values,
        "machine",
        None,
        "The machine on which to predict the time of a step, and for which --layout=auto chooses: v2, v3, v4, v5e, "
        "v5p, a100, h100, h200, or the path of a file that describes one.",
    )


def define_search_flags(values: flags.FlagValues) -> None:
    """Defines --search_operations and --search_seconds."""
    flags.DEFINE_integer(
        "search_operations",
        None,
        "With --layout=auto: how many operations are planned at most, in all layouts of a program together; by "
        "default 250,000. The search says when it stopped here. A greater number gives it more time.",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_float(
        "search_seconds",
        None,
        "With --layout=auto: the search also ends after this many seconds, with the best layout so far.",
        lower_bound=0.001,
        flag_values=values,
    )


def define_decoding_flags(values: flags.FlagValues) -> None:
    """Defines flags that override the fields of gin's `Decoding` with the same names."""
    _define_draws(values)
    _define_penalties(values)
    _define_beams_and_ranks(values)
    _define_ends(values)
    _define_forms(values)


def _define_draws(values: flags.FlagValues) -> None:
    flags.DEFINE_enum(
        "method",
        None,
        METHODS,
        "greedy (the default), sample, beam, or rank: several samples, ordered by log-likelihood over length.",
        flag_values=values,
    )
    flags.DEFINE_float(
        "temperature", None, "The temperature at which tokens are drawn; 1 by default.", flag_values=values
    )
    flags.DEFINE_integer(
        "top_k", None, "Draw from this many of the most likely tokens only; by default from all.", flag_values=values
    )
    flags.DEFINE_float(
        "top_p",
        None,
        "Draw from the fewest of the most likely tokens that together have this probability.",
        flag_values=values,
    )
    flags.DEFINE_float(
        "min_p",
        None,
        "Leave out tokens that have less than this share of the largest probability.",
        flag_values=values,
    )


def _define_penalties(values: flags.FlagValues) -> None:
    flags.DEFINE_float(
        "repetition_penalty",
        None,
        "For tokens that the text already has, divide logits above 0 by this number, and multiply others by it.",
        flag_values=values,
    )
    flags.DEFINE_float(
        "presence_penalty", None, "Take this from the logits of tokens that were added already.", flag_values=values
    )
    flags.DEFINE_float(
        "frequency_penalty",
        None,
        "Take this from a token's logit for each time that it was added already.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "no_repeat_ngram_size",
        None,
        "Never repeat a sequence of this many tokens, prompt included.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "min_new_tokens", None, "Let no token end a text before this many tokens are added.", flag_values=values
    )
    flags.DEFINE_integer(
        "logprobs",
        None,
        "Return the log-likelihood of each added token, and this many of the most likely tokens at its place. They "
        "are in the results of --format=jsonl.",
        flag_values=values,
    )


def _define_beams_and_ranks(values: flags.FlagValues) -> None:
    flags.DEFINE_integer(
        "beam_size",
        None,
        "The number of sequences that beam search keeps and returns; 4 by default.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "beam_rules",
        None,
        ["gnmt", "transformers"],
        "How beam search scores sequences, and when it ends: with the length penalty of GNMT (the default), or by the "
        "rules of Hugging Face's Transformers.",
        flag_values=values,
    )
    flags.DEFINE_float(
        "alpha", None, "The exponent of the length penalty, by GNMT's rules; 0.6 by default.", flag_values=values
    )
    flags.DEFINE_float(
        "length_penalty",
        None,
        "The exponent of the length penalty, by Transformers' rules; 1 by default.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "early_stopping",
        None,
        ["true", "false", "never"],
        "When a beam search ends, by Transformers' rules; false by default.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "num_samples", None, "The number of samples that are ranked; 4 by default.", flag_values=values
    )
    flags.DEFINE_integer(
        "num_results",
        None,
        "The number of continuations of each prompt that beam search and ranking return, the best; by default all.",
        flag_values=values,
    )


def _define_ends(values: flags.FlagValues) -> None:
    flags.DEFINE_integer(
        "max_length",
        None,
        "The most tokens of a sequence, prompt included; by default the model's length.",
        flag_values=values,
    )
    flags.DEFINE_integer("max_new_tokens", None, "The most tokens that are added.", flag_values=values)
    flags.DEFINE_integer("batch_size", None, "The number of texts that are computed at a time.", flag_values=values)
    flags.DEFINE_integer("seed", None, "The seed of the drawn tokens; 0 by default.", flag_values=values)
    flags.DEFINE_multi_string(
        "stop",
        [],
        "A text that ends a sequence, and is no part of what is added. The vocabulary's end always ends it, too. May "
        "be given several times.",
        flag_values=values,
    )


def _define_forms(values: flags.FlagValues) -> None:
    define_path(values, "json_schema", None, "The file of a JSON schema that each added text must have.")
    define_path(values, "grammar", None, "The file of a grammar, in Lark's form, that each added text must have.")
    flags.DEFINE_string(
        "regex", None, "A regular expression that each added text must match as a whole.", flag_values=values
    )
