"""Draws odd but legal configurations of each family, and lets Transformers say what logits they mean.

It runs in an environment with PyTorch and Transformers, which are large, and needs nothing of meshtf:

    pip install torch transformers
    python tests/checkpoint/conversion/draw_configurations.py --seed=0 --count=40 > drawn_models.json

Each case is a configuration, the tensors of its file, ids, logits as float64 gives them, and by how much Transformers'
own float32 differs from these. Logits are null where Transformers refuses it.
Weights are not stored: `drawn_tensors.values_of` makes them from the name that a tensor's numbers are drawn by.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import decoder_configurations
import numpy as np
import torch
import transformers
from drawn_tensors import values_of
from families import encoder_configurations
from in_float64 import in_both_precisions
from safetensors.numpy import load_file, save_file

MODELS = Path(__file__).parent / "models"
ABSENT = "absent"

NUMBERS = {"layer_norm_eps": [1e-3, 1e-5], "rms_norm_eps": [1e-3, ABSENT], "layer_norm_epsilon": [1e-3, ABSENT]}
IDS = {
    "bos_token_id": [None, ABSENT, 5],
    "eos_token_id": [None, ABSENT, 3, [3, 4]],
    "pad_token_id": [None, ABSENT, 19],
}
COMMON = {**IDS, "is_causal": [False, True, None], "tie_word_embeddings": [True, False, ABSENT, None]}
ACTIVATIONS = ["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh", None, ABSENT]
LLAMA_3 = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
ROPE = [
    {"rope_type": "default", "rope_theta": 50.0},
    {"type": "linear", "factor": 2.0},
    {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0},
    {"rope_type": "llama3", **LLAMA_3},
    {"rope_type": "llama3", **LLAMA_3, "original_max_position_embeddings": 4},
    {"type": "llama3", **LLAMA_3, "rope_theta": 30.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 2.0},
    *(table for table in decoder_configurations.ROPE if isinstance(table, dict)),
    {"full_attention": {"rope_type": "default", "rope_theta": 20.0}},
    {"sliding_attention": {"rope_theta": 20.0}, "full_attention": {"rope_theta": 90.0}},
    {"factor": 2.0},
    {"rope_theta": 20.0},
    {},
    None,
    ABSENT,
]
ROTARY = {
    "rope_parameters": ROPE,
    "rope_scaling": ROPE,
    "rope_theta": [30.0, 200, ABSENT],
    "original_max_position_embeddings": [4, 16],
    "max_position_embeddings": [8, 64, ABSENT],
    "partial_rotary_factor": [1.0, 0.5],
    "layer_types": [["full_attention", "full_attention"], ["full_attention", "sliding_attention"], None],
}
LLAMA = {
    **COMMON,
    **ROTARY,
    "rms_norm_eps": NUMBERS["rms_norm_eps"],
    "hidden_act": ACTIVATIONS,
    "hidden_activation": [None, "relu"],
    "num_key_value_heads": [None, ABSENT, 1, 2, 4],
    "head_dim": [None, ABSENT, 2, 4, 6],
    "attention_bias": [True, False, None],
    "mlp_bias": [True, False],
    "sliding_window": [2, None, ABSENT],
    "use_sliding_window": [True, False],
    "max_window_layers": [1],
    "pretraining_tp": [2],
    "use_bidirectional_attention": [True, False, None],
    "attention_dropout": [0.3],
    "unheard_of": [1],
    "hidden_size": [12, ABSENT],
}
_KINDS = {"s": "sliding_attention", "f": "full_attention"}
_PATTERNS = [[_KINDS[kind] for kind in text] for text in ("sfsf", "sfff", "sfss", "ssss", "fsfs", "sffs", "sf")]
ENCODER_DECODER = {
    **{key: values for key, values in COMMON.items() if key != "is_causal"},
    "decoder_start_token_id": [3, None, ABSENT],
    "feed_forward_proj": ["relu", "gelu", "gated-gelu", "gated-silu", "gated-relu", "silu", ABSENT],
    "dense_act_fn": ["relu", "gelu", "gelu_new", "silu", None, ABSENT],
    "is_gated_act": [True, False, None, ABSENT],
    "scale_decoder_outputs": [True, False, None, ABSENT],
    "num_decoder_layers": [None, ABSENT, 1, 2],
    "layer_norm_epsilon": NUMBERS["layer_norm_epsilon"],
    "relative_attention_max_distance": [4, ABSENT],
    "hidden_size": [8, 12],
    "head_dim": [2],
}
KEYS: dict[str, dict[str, list[Any]]] = {
    **dict.fromkeys(("llama", "llama_3_1", "mistral", "qwen2", "gemma"), LLAMA),
    "gemma2": {
        **LLAMA,
        "hidden_activation": ACTIVATIONS,
        "hidden_act": ["relu", None],
        "layer_types": [*_PATTERNS, ABSENT, None],
        "attn_logit_softcapping": [None, ABSENT, 0.4],
        "final_logit_softcapping": [None, ABSENT, 0.4],
        "query_pre_attn_scalar": [3, ABSENT],
        "sliding_window": [2, None, ABSENT],
    },
    "gpt2": {
        **COMMON,
        "activation_function": ACTIVATIONS,
        "layer_norm_epsilon": NUMBERS["layer_norm_epsilon"],
        "n_inner": [None, ABSENT, 12],
        "scale_attn_weights": [False, True, None],
        "scale_attn_by_inverse_layer_idx": [True, False],
        "reorder_and_upcast_attn": [True],
        "hidden_size": [8, 12],
        "num_attention_heads": [4],
        "num_hidden_layers": [1],
        "add_cross_attention": [True, False],
    },
    "gpt_neo": {
        **COMMON,
        "activation_function": ACTIVATIONS,
        "layer_norm_epsilon": NUMBERS["layer_norm_epsilon"],
        "intermediate_size": [None, ABSENT, 12],
        "window_size": [2, ABSENT],
        "attention_types": [
            [[["global", "local"], 1]],
            [[["global"], 1], [["local"], 1]],
            [[["local", "global"], 1]],
            [[["global"], 2]],
            None,
            ABSENT,
        ],
        "attention_layers": [["global", "local"], ["local", "global"], ["local", "local"]],
        "num_attention_heads": [4],
    },
    "gpt_neox": {
        **COMMON,
        "hidden_act": ACTIVATIONS,
        "layer_norm_eps": NUMBERS["layer_norm_eps"],
        "rope_parameters": [*ROPE, {"rope_theta": 40.0, "partial_rotary_factor": 0.5, "rope_type": "default"}],
        "rope_scaling": ROPE,
        "rotary_pct": [0.25, 0.5, 1.0, ABSENT],
        "rotary_emb_base": [40, ABSENT],
        "rope_theta": [40.0],
        "use_parallel_residual": [True, False, ABSENT, None],
        "attention_bias": [True, False],
        "head_dim": [4],
        "hidden_size": [8, 28],
    },
    "gptj": {
        **COMMON,
        "activation_function": ACTIVATIONS,
        "layer_norm_epsilon": NUMBERS["layer_norm_epsilon"],
        "n_inner": [None, ABSENT, 12],
        "rotary_dim": [2, 4, None, ABSENT],
        "hidden_size": [16],
    },
    "bloom": {
        **COMMON,
        "layer_norm_epsilon": NUMBERS["layer_norm_epsilon"],
        "apply_residual_connection_post_layernorm": [True, False, None],
        "slow_but_exact": [True, False],
        "pretraining_tp": [1, 2],
        "n_embed": [6, 12, None],
        "num_attention_heads": [1, 2],
        "num_hidden_layers": [1, 2],
        "hidden_dropout": [0.3],
    },
    "t5": ENCODER_DECODER,
    "t5_1_1": ENCODER_DECODER,
    "mt5": ENCODER_DECODER,
    "switch_transformers": {
        **ENCODER_DECODER,
        "router_dtype": ["float16", "float32"],
        "router_bias": [True, False],
        "expert_capacity": [64],
        "num_sparse_encoder_layers": [1, 2, 0],
        "encoder_sparse_step": [1, 2, ABSENT],
        "decoder_sparse_step": [1, 2, ABSENT],
    },
    "bert": {
        **COMMON,
        "hidden_act": ACTIVATIONS,
        "layer_norm_eps": NUMBERS["layer_norm_eps"],
        "is_decoder": [True, False],
        "add_cross_attention": [False],
        "position_embedding_type": ["absolute", "relative_key"],
        "type_vocab_size": [2, 3],
    },
    "bert_classifier": {
        "hidden_act": ACTIVATIONS,
        "id2label": [{"0": "a"}, {"0": "a", "1": "b", "2": "c"}, None, ABSENT],
        "num_labels": [1, 3],
        "problem_type": [None, "regression", "single_label_classification", "multi_label_classification"],
    },
    **decoder_configurations.KEYS,
}


KEYS |= encoder_configurations.KEYS


def stored(name: str) -> dict[str, Any]:
    """The configuration of a stored model, of mT5, which is made of T5's, or of a decoder that is not stored."""
    if name in decoder_configurations.CONFIGURATIONS:
        return dict(decoder_configurations.CONFIGURATIONS[name])
    folder = MODELS / {"mt5": "t5_1_1"}.get(name, name)
    if name in encoder_configurations.BASES:  # which is no file
        return dict(encoder_configurations.BASES[name])
    configuration = json.loads((folder / "config.json").read_text())
    if name == "mt5":
        configuration |= {"model_type": "mt5", "architectures": ["MT5ForConditionalGeneration"]}
    return configuration


def changed(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration with other values under some keys."""
    configuration = {key: value for key, value in stored(name).items() if key not in changes}
    return configuration | {key: value for key, value in changes.items() if value != ABSENT}


def drawn(dice: random.Random, name: str) -> tuple[dict[str, Any], str]:
    """A configuration with some keys changed, and which table for logits its file has."""
    configuration = stored(name)
    for _ in range(dice.choice([1, 1, 2, 2, 3])):
        key = dice.choice(sorted(KEYS[name]))
        value = copy.deepcopy(dice.choice(KEYS[name][key]))
        configuration.pop(key, None)
        if value != ABSENT:
            configuration[key] = value
    return configuration, dice.choice(["as saved", "as saved", "same", "other"])


# name: (stored model, changed keys, which table for logits its file has)
NAMED: dict[str, tuple[str, dict[str, Any], str]] = {
    "gemma, gelu means the tanh form": ("gemma", {"hidden_act": "gelu"}, "as saved"),
    "gemma, hidden_activation says nothing": ("gemma", {"hidden_activation": "relu"}, "as saved"),
    "gemma 2, hidden_act says nothing": ("gemma2", {"hidden_act": "relu"}, "as saved"),
    "gemma 2, sfff": ("gemma2", {"layer_types": _PATTERNS[1]}, "as saved"),
    "gemma 2, sffs": ("gemma2", {"layer_types": _PATTERNS[5]}, "as saved"),
    "gemma 2, no soft caps said": (
        "gemma2",
        {"attn_logit_softcapping": ABSENT, "final_logit_softcapping": ABSENT, "layer_types": ABSENT},
        "as saved",
    ),
    "gemma 2, null soft caps": (
        "gemma2",
        {"attn_logit_softcapping": None, "final_logit_softcapping": None},
        "as saved",
    ),
    "gemma 2, a head of its own": ("gemma2", {}, "other"),
    "t5 1.1, tied and not scaled": ("t5_1_1", {}, "as saved"),
    "t5 1.1, a head of its own": ("t5_1_1", {"tie_word_embeddings": False}, "other"),
    "t5, scaled, a head of its own": ("t5", {}, "other"),
    "mt5, tied": ("mt5", {}, "as saved"),
    "mt5, said to be untied": ("mt5", {"tie_word_embeddings": False, "scale_decoder_outputs": ABSENT}, "as saved"),
    "t5, dense_act_fn counts": ("t5", {"dense_act_fn": "gelu_new"}, "as saved"),
    "t5, is_gated_act counts": ("t5_1_1", {"is_gated_act": False}, "as saved"),
    "t5, null scale": ("t5", {"scale_decoder_outputs": None}, "as saved"),
    "t5, an embedding of the encoder": ("t5", {}, "encoder.embed_tokens.weight"),
    "gpt-2, a head of its own": ("gpt2", {}, "other"),
    "gpt-2, the same head": ("gpt2", {"hidden_size": 8, "n_embd": ABSENT}, "same"),
    "gpt-2, not causal": ("gpt2", {"is_causal": False}, "as saved"),
    "bert, a decoder of its own": ("bert", {}, "other"),
    "bert, one class": ("bert_classifier", {"id2label": {"0": "a"}, "problem_type": ABSENT}, "as saved"),
    "llama, not causal": ("llama", {"is_causal": False}, "as saved"),
    "llama, null heads of keys": ("llama", {"num_key_value_heads": None}, "as saved"),
    "llama, no heads of keys": ("llama", {"num_key_value_heads": ABSENT}, "as saved"),
    "llama, no begin": ("llama", {"bos_token_id": None}, "as saved"),
    "llama, begin not said": ("llama", {"bos_token_id": ABSENT, "eos_token_id": [3, 4]}, "as saved"),
    "llama, tied, the same head": ("llama", {"tie_word_embeddings": True}, "same"),
    "llama, gelu_fast": ("llama", {"hidden_act": "gelu_fast"}, "as saved"),
    "llama, swish": ("llama", {"hidden_act": "swish"}, "as saved"),
    "llama, linear by type": ("llama", {"rope_parameters": {"type": "linear", "factor": 2.0}}, "as saved"),
    "llama 3, length not said": (
        "llama",
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 100.0, **LLAMA_3}},
        "as saved",
    ),
    "llama 3, length at top": (
        "llama",
        {
            "rope_parameters": {"rope_type": "llama3", "rope_theta": 100.0, **LLAMA_3},
            "original_max_position_embeddings": 4,
        },
        "as saved",
    ),
    "llama, theta in rope_scaling": (
        "llama",
        {"rope_parameters": ABSENT, "rope_scaling": {"rope_type": "default", "rope_theta": 20.0}, "rope_theta": 90.0},
        "as saved",
    ),
    "llama, two tables": (
        "llama",
        {"rope_parameters": {"rope_theta": 20.0}, "rope_scaling": {"type": "linear", "factor": 4.0}},
        "as saved",
    ),
    "llama, a table for each kind of layer": ("llama", {"rope_parameters": {"full_attention": ROPE[0]}}, "as saved"),
    "gpt-neox, heads of 14": (
        "gpt_neox",
        {"hidden_size": 28, "rope_parameters": ABSENT, "rotary_pct": 0.25},
        "as saved",
    ),
    "gpt-neox, heads of 14, a part rounded down": (
        "gpt_neox",
        {"hidden_size": 28, "rope_parameters": ABSENT, "rotary_pct": 0.3},
        "as saved",
    ),
    "gpt-neox, head_dim": ("gpt_neox", {"head_dim": 4}, "as saved"),
    "bloom, slow but exact": ("bloom", {"slow_but_exact": True, "pretraining_tp": 2}, "as saved"),
    "gpt-neo, attention_layers counts": ("gpt_neo", {"attention_layers": ["local", "global"]}, "as saved"),
    "gpt-neo, the pattern written out": (
        "gpt_neo",
        {"attention_types": [[["global"], 1], [["local"], 1]], "attention_layers": ABSENT},
        "as saved",
    ),
    "switch, a router of float16": ("switch_transformers", {"router_dtype": "float16"}, "as saved"),
    **decoder_configurations.NAMED,
}

HEADS = {
    "lm_head.weight": (
        "model.embed_tokens.weight",
        "transformer.wte.weight",
        "transformer.word_embeddings.weight",
        "shared.weight",
    ),
    "cls.predictions.decoder.weight": ("bert.embeddings.word_embeddings.weight",),
}
for _table, _embeddings in encoder_configurations.HEADS.items():
    HEADS[_table] = (*HEADS.get(_table, ()), *_embeddings)


def with_head(tensors: dict[str, list[Any]], head: str) -> dict[str, list[Any]]:
    """The tensors of a file, name -> [shape, by which name numbers are drawn], with a table for logits of its own."""
    if head in ("encoder.embed_tokens.weight",):
        return {**tensors, head: [tensors["shared.weight"][0], head]}
    if head == "positions":  # which older files of Marian have
        shape = [16, tensors["model.shared.weight"][0][1]]
        names = [f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder")]
        return {**tensors, **{name: [shape, name] for name in names}}
    for table, embeddings in HEADS.items():
        for embedding in embeddings:
            if head != "as saved" and embedding in tensors and (table in tensors or is_language_model(tensors)):
                shape = tensors[embedding][0]
                return {**tensors, table: [shape, embedding if head == "same" else table]}
    return tensors


def is_language_model(tensors: dict[str, list[Any]]) -> bool:
    return not any(name.startswith("classifier") for name in tensors)


def understood(
    configuration: dict[str, Any], head: str, told_by: Callable[[Any], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The case: what Transformers makes of it, and `told_by` of the model; by default its logits."""
    case: dict[str, Any] = {"config": configuration, "tensors": {}, "logits": None}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "config.json").write_text(json.dumps(configuration))
        try:
            parsed = transformers.AutoConfig.from_pretrained(path)
            kind = getattr(transformers, configuration["architectures"][0])
            kind(parsed).save_pretrained(path)
            shapes = {name: list(value.shape) for name, value in load_file(path / "model.safetensors").items()}
            case["tensors"] = with_head({name: [shape, name] for name, shape in shapes.items()}, head)
            save_file(
                {name: values_of(drawn_by, shape) for name, (shape, drawn_by) in case["tensors"].items()},
                path / "model.safetensors",
                metadata={"format": "pt"},
            )
            (path / "config.json").write_text(json.dumps(configuration))
            model, loading = kind.from_pretrained(
                path,
                dtype=torch.float32,
                attn_implementation="eager",
                experts_implementation="eager",
                output_loading_info=True,
            )
            if loading["missing_keys"] or loading["mismatched_keys"]:
                return case
            case |= (told_by or logits_of)(model.eval())
        except Exception as error:
            case["refused"] = f"{type(error).__name__}: {error}"[:200]
    return case


def logits_of(model: Any) -> dict[str, Any]:
    configuration = model.config
    ids = torch.tensor(np.random.RandomState(1).randint(2, 18, size=[2, 8]))
    fed = {"input_ids": ids}
    if configuration.is_encoder_decoder:
        fed["decoder_input_ids"] = torch.tensor(np.random.RandomState(2).randint(2, 18, size=[2, 6]))
        start = getattr(configuration, "decoder_start_token_id", None)
        if start is None and configuration.model_type == "bart":
            start = configuration.bos_token_id
        fed["decoder_input_ids"][:, 0] = 0 if start is None else start
    elif configuration.model_type in encoder_configurations.ENCODERS:
        ids[:, 0] = 2
    else:
        ids[:, 0] = _start(configuration)
    pad = configuration.pad_token_id
    if configuration.model_type in encoder_configurations.PADDED and pad is not None and 0 <= pad < 20:
        ids[1, -2:] = pad
        fed["attention_mask"] = ids.ne(pad).int()
    is_encoder = configuration.model_type in encoder_configurations.ENCODERS
    logits, float32_error = in_both_precisions(model, **fed, **({} if is_encoder else {"use_cache": False}))
    model.float()
    if not bool(torch.isfinite(logits).all()):
        return {"refused": "logits are not finite"}
    return {
        "logits": [[float(f"{x:.8g}") for x in row] for row in logits.flatten(0, -2).tolist()],
        "float32_error": float(f"{float32_error:.3g}"),
        **{key: value.tolist() for key, value in fed.items()},
    }


def _start(configuration: Any) -> int:
    """The id before a text, as meshtf's rules choose it."""
    end = configuration.eos_token_id
    end = end[0] if isinstance(end, list) else end
    candidates = [configuration.bos_token_id, end, 0]
    return next(token for token in candidates if token is not None and 0 <= token < configuration.vocab_size)


def main() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--only", help="draws of these families alone, with commas between")
    parser.add_argument("--named", action="store_true", help="the cases that have names, in place of drawn ones")
    given = parser.parse_args()
    cases = []
    if given.named:
        for title, (name, changes, head) in NAMED.items():
            cases.append({"name": title, **understood(changed(name, changes), head)})
        given.count = 0
    for number in range(given.count):
        dice = random.Random(f"{given.seed}/{number}")
        names = given.only.split(",") if given.only else sorted(KEYS)
        name = names[number % len(names)]
        configuration, head = drawn(dice, name)
        cases.append({"name": f"{given.seed}/{number} {name}, head {head}", **understood(configuration, head)})
    json.dump(cases, sys.stdout, indent=None, separators=(",", ":"))


if __name__ == "__main__":
    main()
