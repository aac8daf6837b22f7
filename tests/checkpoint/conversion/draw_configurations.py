"""Draws odd but legal configurations of each family, and lets Transformers say what logits they mean.

It runs in an environment with PyTorch and Transformers, which are large, and needs nothing of meshtf:

    pip install torch transformers
    python tests/checkpoint/conversion/draw_configurations.py --seed=0 --count=40 > drawn_models.json

Each case is a configuration, the tensors of its file, ids and logits; logits are null where Transformers refuses the model.
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
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from drawn_tensors import values_of
from safetensors.numpy import load_file, save_file

MODELS = Path(__file__).parent / "models"
ABSENT = "absent"

NUMBERS = {"layer_norm_eps": [1e-3, 1e-5], "rms_norm_eps": [1e-3, ABSENT], "layer_norm_epsilon": [1e-3, ABSENT]}
IDS = {
    "bos_token_id": [None, ABSENT, 5],
    "eos_token_id": [None, ABSENT, 3, [3, 4]],
    "pad_token_id": [None, ABSENT, 3],
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
}


def drawn(dice: random.Random, name: str) -> tuple[dict[str, Any], str]:
    """A configuration with some keys changed, and which table for logits its file has."""
    stored = {"mt5": "t5_1_1"}.get(name, name)
    configuration = json.loads((MODELS / stored / "config.json").read_text())
    if name == "mt5":
        configuration |= {"model_type": "mt5", "architectures": ["MT5ForConditionalGeneration"]}
    for _ in range(dice.choice([1, 1, 2, 2, 3])):
        key = dice.choice(sorted(KEYS[name]))
        value = copy.deepcopy(dice.choice(KEYS[name][key]))
        configuration.pop(key, None)
        if value != ABSENT:
            configuration[key] = value
    return configuration, dice.choice(["as saved", "as saved", "same", "other"])


HEADS = {
    "lm_head.weight": (
        "model.embed_tokens.weight",
        "transformer.wte.weight",
        "transformer.word_embeddings.weight",
        "shared.weight",
    ),
    "cls.predictions.decoder.weight": ("bert.embeddings.word_embeddings.weight",),
}


def with_head(tensors: dict[str, list[Any]], head: str) -> dict[str, list[Any]]:
    """The tensors of a file, name -> [shape, by which name numbers are drawn], with a table for logits of its own."""
    for table, embeddings in HEADS.items():
        for embedding in embeddings:
            if head != "as saved" and embedding in tensors and (table in tensors or is_language_model(tensors)):
                shape = tensors[embedding][0]
                return {**tensors, table: [shape, embedding if head == "same" else table]}
    return tensors


def is_language_model(tensors: dict[str, list[Any]]) -> bool:
    return not any(name.startswith("classifier") for name in tensors)


def understood(configuration: dict[str, Any], head: str) -> dict[str, Any]:
    """The case: what Transformers makes of it."""
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
                path, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
            )
            if loading["missing_keys"] or loading["mismatched_keys"]:
                return case
            case |= _logits(model.eval())
        except Exception as error:
            case["refused"] = f"{type(error).__name__}: {error}"[:200]
    return case


def _logits(model: Any) -> dict[str, Any]:
    configuration = model.config
    ids = torch.tensor(np.random.RandomState(1).randint(2, 18, size=[2, 8]))
    fed = {"input_ids": ids}
    if configuration.is_encoder_decoder:
        fed["decoder_input_ids"] = torch.tensor(np.random.RandomState(2).randint(2, 18, size=[2, 6]))
        start = configuration.decoder_start_token_id
        fed["decoder_input_ids"][:, 0] = 0 if start is None else start
    elif configuration.model_type == "bert":
        ids[:, 0] = 2
    else:
        ids[:, 0] = _start(configuration)
    with torch.no_grad():
        logits = model(**fed, use_cache=False).logits if configuration.model_type != "bert" else model(**fed).logits
    if not bool(torch.isfinite(logits).all()):
        return {"refused": "logits are not finite"}
    return {"logits": logits.tolist(), **{key: value.tolist() for key, value in fed.items()}}


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
    given = parser.parse_args()
    cases = []
    for number in range(given.count):
        dice = random.Random(f"{given.seed}/{number}")
        name = sorted(KEYS)[number % len(KEYS)]
        configuration, head = drawn(dice, name)
        cases.append({"name": f"{given.seed}/{number} {name}, head {head}", **understood(configuration, head)})
    json.dump(cases, sys.stdout, indent=None, separators=(",", ":"))


if __name__ == "__main__":
    main()
