"""Rules for the gin parameters of layers, their stacks and the model around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from meshtf.checkpoint.conversion.operative_config import Binding
from meshtf.compat.mesh_tensorflow_gin.source import (
    CARRIED,
    SIDES,
    Outcome,
    Rule,
    Source,
    by_side,
    literal,
    lost,
    number,
    of_both,
    of_decoder,
    reference,
    same,
    truth,
    without_effect,
    without_scope,
)
from meshtf.errors import GraphError
from meshtf.layers.activations import activation_function

EXPERTS = "experts: MixtureOfExperts of meshtf.layers.moe"

_SUBLAYERS = {"SelfAttention": "SelfAttention", "EncDecAttention": "CrossAttention", "DenseReluDense": "FeedForward"}
_USUAL = {
    "encoder": ["SelfAttention", "DenseReluDense"],
    "decoder": ["SelfAttention", "EncDecAttention", "DenseReluDense"],
}
_LIST_OF_LAYERS = re.compile(r"""[\[(]\s*(?:[\[(]\s*['"]\w+['"]\s*,\s*@[\w./]+\s*,?\s*[\])]|@[\w./]+|[,\s])*[\])]""")
_REFERENCE = re.compile(r"@[\w./]+")

_AROUND = {
    "sublayers_initial": ["sublayer_dropout"],
    "sublayers_per_layer": ["sublayer_rms_norm", "sublayer_call_layer", "sublayer_dropout", "sublayer_residual"],
    "sublayers_final": ["sublayer_rms_norm", "sublayer_dropout"],
}
_LEGACY = {
    "sublayer_legacy_rms_norm": "sublayer_rms_norm",
    "sublayer_legacy_final_rms_norm": "sublayer_rms_norm",
    "sublayer_legacy_dropout": "sublayer_dropout",
}
"""Older names of the same sublayers. They differ in the names of variables, or in where the dropout rate is set."""


def _layers(binding: Binding, source: Source) -> Outcome:
    sides = [binding.scope] if binding.scope in SIDES else list(SIDES)
    sides = [side for side in sides if source.find(binding.plain_name, side) is binding]
    names = [reference(text) for text in _REFERENCE.findall(binding.resolved)]
    if not _LIST_OF_LAYERS.fullmatch(binding.resolved):
        return lost(
            "layers with parameters of their own; give TransformerStack.sublayers scopes, as @local/SelfAttention()"
        )
    if unknown := [name for name in names if name not in _SUBLAYERS]:
        what = EXPERTS if unknown[0].startswith("MoE") else f"there is no {unknown[0]} here"
        return lost(f"{what}; the layers of T5 are taken")
    if "encoder" in sides and "EncDecAttention" in names:
        return lost("an encoder has nothing to attend to but its inputs; the layers of T5 are taken")
    made = ", ".join(f"@{_SUBLAYERS[name]}()" for name in names)
    return Outcome({f"{side}/TransformerStack.sublayers": f"[{made}]" for side in sides if names != _USUAL[side]})


def _around(binding: Binding, source: Source) -> Outcome:
    names = [reference(text) for text in _REFERENCE.findall(binding.resolved)]
    wanted = _AROUND[binding.plain_name.rpartition(".")[2]]
    is_usual = [_LEGACY.get(name, name) for name in names] == wanted
    return CARRIED if is_usual else lost(f"the order of T5 is taken, {', '.join(wanted)}")


def _activation(binding: Binding) -> str:
    given = literal(binding)
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        try:
            activation_function(name)
        except GraphError as error:
            raise ValueError(str(error).partition("\n")[0]) from None
    quoted = ", ".join(f'"{name}"' for name in names)
    return quoted if isinstance(given, str) else f"({quoted})"


def _own_logits(binding: Binding, source: Source) -> Outcome:
    if binding.scope == "encoder" or source.value(binding.plain_name, "decoder") is True:
        return CARRIED
    if source.value(binding.plain_name, "decoder") is not False:
        raise ValueError("it is neither True nor False")
    return Outcome(
        {
            "VocabularyEmbedding.scale_logits": "False",
            "EncoderDecoder.output": "@output/VocabularyEmbedding()",
            "output/VocabularyEmbedding.name": '"output"',
            "output/VocabularyEmbedding.initializer": "@VarianceScalingInitializer()",
        }
    )


def _shared_embedding(binding: Binding, source: Source) -> Outcome:
    if literal(binding) is True:
        return CARRIED
    return Outcome(
        {
            "EncoderDecoder.targets_embedding": "@targets/TokenEmbedding()",
            "targets/VocabularyEmbedding.name": '"targets_embedding"',
        }
    )


def _vocabulary(binding: Binding, source: Source) -> Outcome:
    sizes = {
        source.value(f"make_bitransformer.{name}", default=None) for name in ("input_vocab_size", "output_vocab_size")
    }
    if len(sizes - {None}) > 1:
        return lost("inputs and targets have one vocabulary here, and its size is vocab_size")
    return Outcome({"vocab_size": number(binding)})


def _relative(binding: Binding, source: Source) -> Outcome:
    if literal(binding) == "bias_shared":
        return CARRIED
    if literal(binding) is None:
        return by_side("TransformerStack.bias", read=lambda _: "None")(binding, source)
    return lost('positions are relative here by a bias that layers share, "bias_shared", or not at all')


def _max_length(binding: Binding, source: Source) -> Outcome:
    sides = [binding.scope] if binding.scope in SIDES else list(SIDES)
    is_used = any(source.value("Unitransformer.positional_embedding", side, True) is not False for side in sides)
    return lost("a table of positions has it: meshtf.layers.LearnedPositions") if is_used else CARRIED


def _memory_heads(binding: Binding, source: Source) -> Outcome:
    if literal(binding) == 0:
        return CARRIED
    return by_side("AttentionConfig.num_kv_heads")(binding, source)


def _scaling(binding: Binding, source: Source) -> Outcome:
    if literal(binding) is True:
        return CARRIED
    made = by_side("AttentionConfig.query_scale", read=lambda _: "None")(binding, source)
    initializers = by_side("AttentionConfig.initializers", read=lambda _: "@AttentionInitializers()")(binding, source)
    return Outcome({**made.lines, **initializers.lines}, made.lost)


def _old_dropout(binding: Binding, source: Source) -> Outcome:
    """Translates the dropout rate of older stacks, which had no sublayers.

    They also dropped elements of their input.
    """
    if literal(binding) is None:
        return CARRIED
    made = by_side("Residual.dropout_rate", macro="dropout_rate")(binding, source)
    first = of_both("TokenEmbedding.dropout_rate", macro="dropout_rate")(binding, source)
    return Outcome({**made.lines, **first.lines}, made.lost or first.lost)


def _old_epsilon(binding: Binding, source: Source) -> Outcome:
    return CARRIED if literal(binding) is None else by_side("RmsNorm.epsilon")(binding, source)


def _divisor(binding: Binding, source: Source) -> Outcome:
    return CARRIED if literal(binding) == 128 else of_both("VocabularyEmbedding.multiple")(binding, source)


_SELF_ATTENTION: Mapping[str, Rule] = {
    "num_heads": by_side("AttentionConfig.num_heads", macro="num_heads"),
    "key_value_size": by_side("AttentionConfig.d_kv", "t5_attention_initializers.d_kv", macro="d_kv"),
    "dropout_rate": by_side("AttentionOptions.dropout_rate", macro="dropout_rate"),
    "num_memory_heads": _memory_heads,
    "relative_attention_type": _relative,
    "relative_attention_num_buckets": by_side("RelativeBias.num_buckets"),
    "fold_scaling_into_initializer": _scaling,
    "shared_kv": same(False, otherwise="keys and values have a kernel each here"),
    "attention_kwargs": same(None, {}, otherwise="other attention: meshtf.layers.AttentionOptions"),
    "attention_func": same(None, otherwise="other attention: meshtf.layers.attention"),
    "keep_query_heads_dims": same(False, otherwise="outputs sum over heads here"),
    "combine_dims": without_effect,
}
_UNITRANSFORMER: Mapping[str, Rule] = {
    "d_model": of_both("EncoderDecoder.d_model", macro="d_model"),
    "label_smoothing": of_decoder("TokenLoss.label_smoothing"),
    "z_loss": of_decoder("TokenLoss.z_loss"),
    "shared_embedding_and_softmax_weights": _own_logits,
    "positional_embedding": same(False, otherwise="positions are relative here; TokenEmbedding.positions adds others"),
    "sinusoid_positional_embedding": same(False, otherwise="add them: TokenEmbedding.positions, SinusoidalPositions"),
    "max_length": _max_length,
    "vocab_divisor": _divisor,
    "ensemble": same(None, otherwise="there are no ensembles here"),
    "input_full_attention": same(False, otherwise="it is for models of one stack"),
    "loss_on_targets_only": same(False, otherwise="it is for models of one stack"),
    "loss_denominator": same(None, otherwise="the loss is the mean over the targets that count"),
    "loss_fn": same(None, otherwise="another loss: write a model that has it"),
    "token_dropout_rate": same(0.0, 0, otherwise="there is no dropout of whole tokens"),
}


def is_of_unused_layer(owner: str, source: Source) -> bool:
    """Whether a parameter belongs to a kind of layer that is in no stack of the source. Files of defaults have such
    parameters.
    """
    stacks = [b.resolved for b in source.bindings if b.plain_name == "make_layer_stack.layers"]
    is_layer = owner.endswith("Attention") or owner.startswith("MoE")
    return is_layer and bool(stacks) and not any(re.search(rf"\b{owner}\b", text) for text in stacks)


def absent(source: Source) -> Iterator[tuple[str, str]]:
    """Yields the parameters of a model that the source leaves out and whose default in Mesh TensorFlow differs from
    meshtf's.
    """
    is_model = source.find("d_model") is not None or source.find("Unitransformer.d_model") is not None
    for name, meaning in _OTHER_DEFAULTS.items() if is_model else ():
        if any(source.find(name, side) is None for side in SIDES):
            yield name, meaning


_OTHER_DEFAULTS = {
    "Unitransformer.positional_embedding": "Mesh TensorFlow then has a table of positions, and here there is none",
    "SelfAttention.relative_attention_type": "Mesh TensorFlow then has no relative positions, and here there are",
}

LAYER_RULES: Mapping[str, Rule] = {
    **{f"SelfAttention.{name}": rule for name, rule in _SELF_ATTENTION.items()},
    **{f"Unitransformer.{name}": rule for name, rule in _UNITRANSFORMER.items()},
    "EncDecAttention.relative_attention_type": same(None, otherwise="attention to the encoder has no positions here"),
    "DenseReluDense.hidden_size": by_side("FeedForward.d_ff", macro="d_ff"),
    "DenseReluDense.dropout_rate": by_side("FeedForward.dropout_rate", macro="dropout_rate"),
    "DenseReluDense.activation": by_side("FeedForward.activation", read=_activation),
    "DenseReluDense.use_bias": by_side("FeedForward.use_bias", read=truth),
    "make_layer_stack.num_layers": by_side("TransformerStack.num_layers", macro="num_layers"),
    "make_layer_stack.layers": _layers,
    "make_layer_stack.block_scope": without_effect,
    **{f"LayerStack.{name}": _around for name in _AROUND},
    "LayerStack.dropout_rate": _old_dropout,
    "LayerStack.norm_epsilon": _old_epsilon,
    "LayerStack.recompute_grads": same(False, otherwise="memory: TransformerStack.recompute, which changes no result"),
    "sublayer_dropout.dropout_rate": without_scope(
        "Residual.dropout_rate", "TokenEmbedding.dropout_rate", macro="dropout_rate"
    ),
    "sublayer_rms_norm.epsilon": without_scope("RmsNorm.epsilon"),
    "sublayer_rms_norm.name": without_effect,
    "make_bitransformer.input_vocab_size": _vocabulary,
    "make_bitransformer.output_vocab_size": _vocabulary,
    "make_bitransformer.encoder_name": same("encoder", otherwise="encoder and decoder share no variables here"),
    "make_bitransformer.decoder_name": same("decoder", otherwise="encoder and decoder share no variables here"),
    "Bitransformer.shared_embedding": _shared_embedding,
    "VarianceScalingInitializer.distribution": same("normal", otherwise="initial weights are normal here"),
    "VarianceScalingInitializer.mode": same("fan_in", otherwise="initial weights count inputs here"),
    "VarianceScalingInitializer.scale": same(1.0, 1, otherwise="initial weights have variance 1 / inputs here"),
    "VocabEmbedding.scale_variable_like_classifier_weights": same(
        False, otherwise="the table of tokens has deviation 1 at first: embedding/NormalInitializer.stddev"
    ),
    "unit_scaling_convention.value": same(False, otherwise="initial weights are scaled, and products are not"),
}
