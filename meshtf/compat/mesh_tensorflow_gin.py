"""Gin of Mesh TensorFlow and T5 as gin of meshtf: an encoder and a decoder, how they are trained, and what is lost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshtf.checkpoint.conversion.operative_config import Binding, values_of
from meshtf.dimension import convert_to_shape
from meshtf.errors import CheckpointError, LayoutError, ShapeError
from meshtf.layout import convert_to_layout_rules

_MODELS = ("bitransformer", None)
_DIMENSIONS = frozenset({"batch", "length", "d_model", "d_ff", "heads", "d_kv", "vocab"})
_HEADER = """\
# From {source}, of Mesh TensorFlow.
include "t5_1_0.gin"
import meshtf.train.data

Training.model = @EncoderDecoder()"""

_TASK = """\
# The task is to be chosen: docs/data.md.
# Training.task = @TextTask()"""

_NOT_AN_ENCODER_DECODER = """\
{source} is of a model of type {found!r}, and an encoder and a decoder, "bitransformer", is what can be translated; \
docs/transformers.md shows how to write others"""


@dataclasses.dataclass(frozen=True)
class Loss:
    """A line that has no counterpart, and what that means."""

    line: int
    text: str
    meaning: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}\n    {self.meaning}"


@dataclasses.dataclass(frozen=True)
class Translation:
    """A gin file of meshtf's, and what of the source is not in it."""

    text: str
    losses: tuple[Loss, ...]


def translated(bindings: Sequence[Binding], source: str) -> Translation:
    """The translation of a file's bindings.

    Args:
      bindings: of `read_bindings`.
      source: what the file is called in the result and in messages.

    Raises:
      CheckpointError: the model is no encoder and decoder.
    """
    values = values_of(bindings)
    if (found := values.get("run.model_type", values.get("model_type"))) not in _MODELS:
        raise CheckpointError(_NOT_AN_ENCODER_DECODER.format(source=source, found=found))
    lines: dict[str, str] = {}
    losses = []
    for binding in bindings:
        rule = _RULES.get(binding.name) or _RULES.get(binding.plain_name)
        try:
            made = rule(binding, values) if rule else None
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            made = f"its value is not what Mesh TensorFlow has there: {error}"
        if isinstance(made, Mapping):
            lines |= made
        elif made != "":
            losses.append(Loss(binding.line, f"{binding.name} = {binding.text}", made or _meaning(binding)))
    body = [f"{name} = {value}" for name, value in lines.items()]
    text = "\n\n".join([_HEADER.format(source=source), "\n".join(body), _TASK])
    return Translation(f"{text}\n", tuple(losses))


Rule = Callable[[Binding, Mapping[str, Any]], "Mapping[str, str] | str | None"]
"""Lines by parameter; "" where the line says what is so anyway; what its loss means; None for that of its module."""

_MODULES = {
    "serialize_num_microbatches": "memory: set Training.num_microbatches, which results do not depend on",
    "mesh_train_dataset_fn": "data: a task of meshtf reads them, docs/data.md",
    "MixtureOrTask": "data: a task of meshtf reads them, docs/data.md",
    "get_variable_dtype": "types: Training.activation_dtype is that of activations; weights are float32",
    "tpu_mesh_shape": 'the mesh: set Training.mesh_shape, such as "data:4;model:2"',
    "LayerStack": "the order inside a layer: that of T5 is taken",
    "make_layer_stack": "the layers: those of T5 are taken",
    "MoE1D": "experts: meshtf.layers.moe, docs/mixture_of_experts.md",
    "run": "how a run goes: flags of meshtf-train, or another parameter of Training",
    "decode": "decoding: flags of meshtf-decode",
    "beam_search": "decoding: flags of meshtf-decode",
}


def _meaning(binding: Binding) -> str:
    owner, _, parameter = binding.plain_name.rpartition(".")
    if not owner:
        return f"a macro: {parameter} counts only where a line of this file uses it"
    return _MODULES.get(owner.rpartition(".")[2], "no counterpart: the program does without it")


def _macro(name: str) -> Rule:
    return lambda binding, values: {name: repr(_number(binding))}


def _number(binding: Binding) -> Any:
    if not isinstance(binding.value, int | float) or isinstance(binding.value, bool):
        raise ValueError(f"{binding.text} is no number")
    return binding.value


def _parameter(name: str) -> Rule:
    return lambda binding, values: {name: repr(_number(binding))}


def _same(value: Any, otherwise: str) -> Rule:
    """Nothing, where the source has what is so here."""
    return lambda binding, values: "" if binding.value == value else otherwise


def _dropout(binding: Binding, values: Mapping[str, Any]) -> str:
    return "" if binding.value == values.get("dropout_rate", 0.0) else "every dropout has one rate here, dropout_rate"


def _activation(binding: Binding, values: Mapping[str, Any]) -> Mapping[str, str] | str:
    given = binding.value
    if given == "relu":
        return ""
    if isinstance(given, str):
        return {"FeedForward.activation": f'"{given}"'}
    return {"FeedForward.activation": "(" + ", ".join(f'"{name}"' for name in given) + ")"}


def _own_logits(binding: Binding, values: Mapping[str, Any]) -> Mapping[str, str] | str:
    if binding.value:
        return ""
    return {
        "VocabularyEmbedding.scale_logits": "False",
        "EncoderDecoder.output": "@output/VocabularyEmbedding()",
        "output/VocabularyEmbedding.name": '"output"',
        "output/VocabularyEmbedding.initializer": "@VarianceScalingInitializer()",
    }


def _batch_size(binding: Binding, values: Mapping[str, Any]) -> Mapping[str, str] | str:
    if isinstance(binding.value, int):
        return {"Training.batch_size": str(binding.value)}
    match binding.value:
        case (str(kind), int(number)):
            pass
        case _:
            return "no number of sequences or of tokens: set Training.batch_size, in sequences"
    if kind == "sequences_per_batch":
        return {"Training.batch_size": str(number)}
    lengths = values.get("run.sequence_length", values.get("sequence_length"))
    if kind != "tokens_per_batch" or not isinstance(lengths, Mapping):
        return f"{kind} depends on the number of cores: set Training.batch_size, in sequences"
    longest = max((n for n in lengths.values() if isinstance(n, int)), default=0)
    if longest < 1:
        return "the sequences have no length: set Training.batch_size, in sequences"
    return {"Training.batch_size": str(max(1, number // longest))}


def _layout(binding: Binding, values: Mapping[str, Any]) -> Mapping[str, str] | str:
    try:
        rules = dict(convert_to_layout_rules(str(binding.value).replace(",", ";")).rules)
        shape = _mesh(values)
    except (LayoutError, ShapeError) as error:
        return f"not a layout here: {error}"
    kept = {d: a for d, a in rules.items() if d in _DIMENSIONS and (shape is None or set(a) <= set(shape))}
    return {"Training.layout": '"' + ";".join(f"{d}:{'+'.join(a)}" for d, a in kept.items()) + '"'}


def _mesh(values: Mapping[str, Any]) -> list[str] | None:
    given = values.get("run.mesh_shape", values.get("mesh_shape"))
    return None if not isinstance(given, str) else convert_to_shape(given.replace(",", ";")).dimension_names


def _mesh_shape(binding: Binding, values: Mapping[str, Any]) -> Mapping[str, str] | None:
    if not isinstance(binding.value, str):
        return None
    return {"Training.mesh_shape": '"' + str(binding.value).replace(",", ";") + '"'}


def _schedule(binding: Binding, values: Mapping[str, Any]) -> Mapping[str, str] | str:
    made = _SCHEDULES.get(binding.text.lstrip("@").rpartition(".")[2].removesuffix("()"))
    if made is None:
        return "another schedule: docs/optimizers.md has those that there are"
    return {
        "Training.optimizer": "@AdafactorOptimizer()",
        "AdafactorOptimizer.is_mesh_tensorflow_variant": "True",
        "AdafactorOptimizer.learning_rate": f"@{made}()",
        **({"NoamSchedule.total_steps": str(_steps(values))} if made == "NoamSchedule" else {}),
    }


def _steps(values: Mapping[str, Any]) -> Any:
    return values.get("run.train_steps", values.get("train_steps", 1_000_000))


def _optimizer(binding: Binding, values: Mapping[str, Any]) -> Mapping[str, str] | str:
    if binding.text.lstrip("@").rpartition(".")[2].removesuffix("()") != "AdafactorOptimizer":
        return "another optimizer: docs/optimizers.md has those that there are"
    return {"Training.optimizer": "@AdafactorOptimizer()", "AdafactorOptimizer.is_mesh_tensorflow_variant": "True"}


def _checkpoint_steps(binding: Binding, values: Mapping[str, Any]) -> Mapping[str, str]:
    return {"Training.checkpoint_every_steps": repr(_number(binding)), "Training.checkpoint_every_minutes": "None"}


_SCHEDULES = {"learning_rate_schedule_noam": "NoamSchedule", "constant_learning_rate": "ConstantSchedule"}

_RULES: Mapping[str, Rule] = {
    **{name: _macro(name) for name in ("d_model", "d_ff", "num_layers", "num_heads", "d_kv", "dropout_rate")},
    "num_decoder_layers": _parameter("decoder/TransformerStack.num_layers"),
    "Bitransformer.shared_embedding": _same(True, "encoder and decoder share a table of tokens here"),
    "DenseReluDense.activation": _activation,
    "DenseReluDense.dropout_rate": _dropout,
    "DenseReluDense.hidden_size": _parameter("d_ff"),
    "LayerStack.dropout_rate": _dropout,
    "SelfAttention.dropout_rate": _dropout,
    "EncDecAttention.dropout_rate": _dropout,
    "SelfAttention.key_value_size": _parameter("d_kv"),
    "SelfAttention.num_heads": _parameter("num_heads"),
    "SelfAttention.relative_attention_type": _same("bias_shared", "positions are relative here, and layers share them"),
    "SelfAttention.relative_attention_num_buckets": _parameter("RelativeBias.num_buckets"),
    "Unitransformer.d_model": _parameter("d_model"),
    "Unitransformer.label_smoothing": _parameter("TokenLoss.label_smoothing"),
    "Unitransformer.z_loss": _parameter("TokenLoss.z_loss"),
    "decoder/Unitransformer.shared_embedding_and_softmax_weights": _own_logits,
    "encoder/Unitransformer.shared_embedding_and_softmax_weights": _same(False, "an encoder has no logits"),
    "Unitransformer.positional_embedding": _same(False, "positions are relative here"),
    "make_bitransformer.input_vocab_size": _parameter("vocab_size"),
    "make_bitransformer.output_vocab_size": _parameter("vocab_size"),
    "learning_rate_schedule_noam.warmup_steps": _parameter("NoamSchedule.warmup_steps"),
    "learning_rate_schedule_noam.linear_decay_fraction": _parameter("NoamSchedule.linear_decay_fraction"),
    "learning_rate_schedule_noam.multiplier": _parameter("NoamSchedule.multiplier"),
    "learning_rate_schedule_noam.offset": _parameter("NoamSchedule.offset"),
    "constant_learning_rate.learning_rate": _parameter("ConstantSchedule.value"),
    "run.batch_size": _batch_size,
    "run.layout_rules": _layout,
    "run.learning_rate_schedule": _schedule,
    "run.mesh_shape": _mesh_shape,
    "run.model_type": lambda binding, values: "",
    "run.optimizer": _optimizer,
    "run.save_checkpoints_steps": _checkpoint_steps,
    "run.train_steps": _parameter("Training.num_steps"),
    "run.sequence_length": lambda binding, values: "of the task: TextTask.length, and those of its objective",
}
