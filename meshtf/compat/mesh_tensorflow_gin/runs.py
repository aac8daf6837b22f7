"""Rules for the gin parameters of training: optimizer, batches, mesh, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

from meshtf.checkpoint.conversion.operative_config import Binding
from meshtf.compat.mesh_tensorflow_gin.layers import EXPERTS
from meshtf.compat.mesh_tensorflow_gin.source import (
    CARRIED,
    Outcome,
    Rule,
    Source,
    is_adafactor,
    literal,
    lost,
    number,
    same,
    truth,
    without_effect,
    without_scope,
)
from meshtf.dimension import convert_to_shape
from meshtf.errors import LayoutError, ShapeError
from meshtf.layout import convert_to_layout_rules

_DIMENSIONS = frozenset({"batch", "length", "d_model", "d_ff", "heads", "d_kv", "vocab"})
_OF_OTHER_MODELS = frozenset({"ensemble", "experts"})
"""Dimensions of layout rules that only models with ensembles or experts have. Other rules report those models."""

_DATA = "data: a task reads them, as meshtf.train.data.TextTask"
_EVALUATION = "evaluation: Training.evaluate_every, and flags of meshtf-eval"
_SET_BATCH = "set Training.batch_size, in sequences"


def _of_adafactor(rule: Rule) -> Rule:
    def checked(binding: Binding, source: Source) -> Outcome:
        return rule(binding, source) if is_adafactor(source) else lost("run.optimizer is another optimizer")

    return checked


def _optimizer(binding: Binding, source: Source) -> Outcome:
    return CARRIED if is_adafactor(source) else lost("another optimizer: choose one of meshtf.optimize")


def _batch_size(binding: Binding, source: Source) -> Outcome:
    match literal(binding):
        case int(sequences) if not isinstance(sequences, bool):
            return Outcome({"Training.batch_size": str(sequences)})
        case (str(kind), int(count)):
            pass
        case _:
            return lost(f"no number of sequences or of tokens: {_SET_BATCH}")
    if kind == "sequences_per_batch":
        return Outcome({"Training.batch_size": str(count)})
    if kind != "tokens_per_batch":
        return lost(f"{kind} depends on the number of cores: {_SET_BATCH}")
    lengths = source.value("run.sequence_length")
    known = [n for n in lengths.values() if isinstance(n, int)] if isinstance(lengths, Mapping) else []
    if max(known, default=0) < 1:
        return lost(f"the sequences have no length: {_SET_BATCH}")
    return Outcome({"Training.batch_size": str(max(1, count // max(known)))})


def _layout(binding: Binding, source: Source) -> Outcome:
    try:
        rules = dict(convert_to_layout_rules(str(literal(binding)).replace(",", ";")).rules)
        axes = _axes(source)
    except (LayoutError, ShapeError) as error:
        return lost(f"not a layout here: {error}")
    # A rule whose axis the mesh lacks does nothing in Mesh TensorFlow either.
    used = {d: a for d, a in rules.items() if axes is None or set(a) <= set(axes)}
    kept = {d: a for d, a in used.items() if d in _DIMENSIONS}
    unknown = sorted(set(used) - _DIMENSIONS - _OF_OTHER_MODELS)
    lines = {"Training.layout": '"' + ";".join(f"{d}:{'+'.join(a)}" for d, a in kept.items()) + '"'}
    return Outcome(lines, f"the model has no dimension {', '.join(unknown)} here" if unknown else "")


def _axes(source: Source) -> list[str] | None:
    given = source.value("run.mesh_shape", default="")
    if given in ([], ()):
        return []
    return convert_to_shape(given.replace(",", ";")).dimension_names if given and isinstance(given, str) else None


def _mesh_shape(binding: Binding, source: Source) -> Outcome:
    if literal(binding) in ([], ()):
        return Outcome({"Training.mesh_shape": '"one:1"'})
    if not isinstance(literal(binding), str):
        return lost('the mesh depends on the machine: set Training.mesh_shape, such as "data:4;model:2"')
    return Outcome({"Training.mesh_shape": '"' + str(literal(binding)).replace(",", ";") + '"'})


def _checkpoint_steps(binding: Binding, source: Source) -> Outcome:
    return Outcome({"Training.checkpoint_every_steps": number(binding), "Training.checkpoint_every_minutes": "None"})


def _kept_checkpoints(binding: Binding, source: Source) -> Outcome:
    if literal(binding) is None:
        return lost("all are kept there: set Training.keep_checkpoints, which is 3 by default")
    return Outcome({"Training.keep_checkpoints": number(binding)})


def _activation_dtype(binding: Binding, source: Source) -> Outcome:
    found = literal(binding)
    if found not in ("float32", "bfloat16"):
        return lost("activations are float32 or bfloat16 here: Training.activation_dtype")
    return Outcome({"Training.activation_dtype": f'"{found}"'})


def _number_or_lost(target: str, why: str) -> Rule:
    def rule(binding: Binding, source: Source) -> Outcome:
        return lost(why) if literal(binding) is None else without_scope(target)(binding, source)

    return rule


_ADAFACTOR: Mapping[str, Rule] = {
    "AdafactorOptimizer.beta1": without_scope("AdafactorOptimizer.beta_1"),
    "AdafactorOptimizer.clipping_threshold": _number_or_lost(
        "AdafactorOptimizer.clipping_threshold", "updates are clipped here: set AdafactorOptimizer.clipping_threshold"
    ),
    "AdafactorOptimizer.decay_rate": same(None, otherwise="the decay follows the steps: decay_exponent"),
    "AdafactorOptimizer.epsilon1": without_scope("AdafactorOptimizer.epsilon_1"),
    "AdafactorOptimizer.epsilon2": without_scope("AdafactorOptimizer.epsilon_2"),
    "AdafactorOptimizer.factored": without_scope("AdafactorOptimizer.factored", read=truth),
    "AdafactorOptimizer.min_dim_size_to_factor": same(128, otherwise="it is 128 here"),
    "AdafactorOptimizer.multiply_by_parameter_scale": without_scope(
        "AdafactorOptimizer.multiply_by_parameter_scale", read=truth
    ),
    "AdafactorOptimizer.stacked_dim_names": same(None, [], otherwise="a stack's layers are told apart anyway"),
    "AdafactorOptimizer.exclude_from_parameter_scale": same(None, [], otherwise="all parameters are treated the same"),
    "adafactor_decay_rate_pow.exponent": without_scope("AdafactorOptimizer.decay_exponent"),
    "adafactor_decay_rate_pow.offset": same(0, otherwise="the decay counts from the first step"),
}

_RUN: Mapping[str, Rule] = {
    "autostack": without_effect,
    "batch_size": _batch_size,
    "checkpoint_input_pipeline": same(False, otherwise="a resumed run goes on in its data anyway"),
    "dataset_split": same("train", otherwise=_DATA),
    "ensemble_inputs": same(None, otherwise="there are no ensembles here"),
    "eval_checkpoint_step": same(None, otherwise="which checkpoint: --step of meshtf-eval and meshtf-decode"),
    "eval_dataset_fn": same(None, otherwise=_EVALUATION),
    "eval_summary_dir": same(None, otherwise="meshtf-eval writes its results to the run's folder"),
    "export_checkpoint_step": same(None, otherwise="which checkpoint: --step of meshtf-export"),
    "export_path": same("", otherwise="--output of meshtf-export"),
    "init_checkpoint": same(
        None, otherwise="import it, meshtf-checkpoint import --format=mesh_tensorflow: Training.initial_checkpoint"
    ),
    "iterations_per_loop": without_effect,
    "keep_checkpoint_max": _kept_checkpoints,
    "layout_rules": _layout,
    "mesh_devices": same(None, otherwise="which devices: flags of meshtf-train"),
    "mesh_shape": _mesh_shape,
    "mode": same("train", otherwise="evaluation and decoding are programs of their own: meshtf-eval, meshtf-decode"),
    "model_type": without_effect,
    "optimizer": _optimizer,
    "output_eval_examples": lambda binding, source: lost(_EVALUATION),
    "perplexity_eval_steps": lambda binding, source: lost(_EVALUATION),
    "predict_fn": same(None, otherwise="decoding: meshtf-decode"),
    "save_checkpoints_steps": _checkpoint_steps,
    "seen_data_init_step": same(0, otherwise="a resumed run goes on in its data anyway"),
    "sequence_length": lambda binding, source: lost(
        "the task has it: TextTask.length, and the lengths of its objective"
    ),
    "skip_seen_data": same(False, otherwise="a resumed run goes on in its data anyway"),
    "total_run_steps": lambda binding, source: (
        CARRIED
        if literal(binding) is None or source.find("run.learning_rate_schedule")
        else lost("no schedule uses it")
    ),
    "train_dataset_fn": lambda binding, source: lost(_DATA),
    "train_steps": without_scope("Training.num_steps"),
    "vocabulary": lambda binding, source: lost(_DATA),
    "variable_filter": same(None, otherwise="all variables are trained here"),
}

_TYPES = "weights are kept in float32 here, and so are checkpoints"

RUN_RULES: Mapping[str, Rule] = {
    **{f"run.{name}": rule for name, rule in _RUN.items()},
    **{name: _of_adafactor(rule) for name, rule in _ADAFACTOR.items()},
    "get_variable_dtype.activation_dtype": _activation_dtype,
    "get_variable_dtype.master_dtype": same("float32", otherwise=_TYPES),
    "get_variable_dtype.slice_dtype": same("float32", otherwise=_TYPES),
    "rewrite_stack_variables.max_combined_variable_size": without_effect,
    "tpu_estimator_model_fn.hierarchical_tiling_spec": same(None, otherwise="the mesh: Training.mesh_shape"),
    "tpu_estimator_model_fn.init_variable_filter": same("", otherwise="InitialCheckpoint.rules choose what to restore"),
    "tpu_estimator_model_fn.outer_batch_size": same(1, otherwise="the batch has one dimension here"),
    "tpu_estimator_model_fn.tpu_summaries": same(False, otherwise="summaries: mtf.scalar_summary"),
    "pack_dataset.use_custom_ops": without_effect,
}

MODULES = {
    "serialize_num_microbatches": "memory: set Training.num_microbatches, which results do not depend on",
    "mesh_train_dataset_fn": _DATA,
    "mesh_eval_dataset_fn": _DATA,
    "MixtureOrTask": _DATA,
    "get_vocabulary": _DATA,
    "get_t2t_vocabulary": _DATA,
    "get_default_vocabulary": _DATA,
    "pretokenized_t2t_dataset": _DATA,
    "pretokenized_tfds_dataset": _DATA,
    "pack_dataset": _DATA,
    "pack_or_pad": _DATA,
    "unsupervised": _DATA,
    "denoise": _DATA,
    "tpu_mesh_shape": 'the mesh: set Training.mesh_shape, such as "data:4;model:2"',
    "get_variable_dtype": _TYPES,
    "LayerStack": "the stack: that of T5 is taken",
    "make_layer_stack": "the stack: that of T5 is taken",
    "run": "how a run goes: flags of meshtf-train, or another parameter of Training",
    "decode": "decoding: flags of meshtf-decode",
    "beam_search": "decoding: flags of meshtf-decode",
    **dict.fromkeys(("MoE1D", "MoE2D"), EXPERTS),
}
"""The meaning of a parameter without a counterpart, by the function or class that it belongs to."""
