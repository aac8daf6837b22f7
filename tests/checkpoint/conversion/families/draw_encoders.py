"""Lets Transformers say what logits some models give, and which tokens, decoded greedily.

As draw_configurations.py, beside which it is to be found, in an environment of PyTorch and Transformers:

    cd tests/checkpoint/conversion
    PYTHONPATH=. python families/draw_encoders.py > families/drawn_encoders.json
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import draw_configurations
import torch
import transformers

NEW_TOKENS = 5
NAMED: dict[str, tuple[str, dict[str, Any], str]] = {
    "roberta": ("roberta", {"hidden_act": "relu", "pad_token_id": 0}, "as saved"),
    "roberta, for classes": ("roberta_classifier", {}, "as saved"),
    "xlm-roberta, types of tokens": ("xlm_roberta", {"type_vocab_size": 2}, "same"),
    "opt": ("opt", {}, "as saved"),
    "opt, norms behind, a narrow table": ("opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 4}, "as saved"),
    "opt, no biases, a head of its own": ("opt", {"enable_bias": False}, "other"),
    "opt, no last norm": ("opt", {"_remove_final_layer_norm": True, "num_hidden_layers": 1}, "as saved"),
    "opt, norms without scales": ("opt", {"layer_norm_elementwise_affine": False}, "as saved"),
    "bart, scaled": ("bart", {"scale_embedding": True}, "as saved"),
    "bart, a head of its own": ("bart", {"decoder_start_token_id": None}, "other"),
    "bart, untied": ("bart", {"tie_word_embeddings": False}, "as saved"),
    "marian": ("marian", {}, "as saved"),
    "marian, two vocabularies": (
        "marian",
        {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 24},
        "as saved",
    ),
    "marian, tables of positions": ("marian", {}, "positions"),
    "distilbert": ("distilbert", {}, "same"),
    "distilbert, for classes": ("distilbert_classifier", {}, "as saved"),
    "electra": ("electra", {"hidden_act": "silu"}, "as saved"),
    "electra, for classes": ("electra_classifier", {"embedding_size": 8}, "as saved"),
    "electra, which tells replaced tokens": ("electra", {"architectures": ["ElectraForPreTraining"]}, "as saved"),
    "umt5": ("umt5", {"num_decoder_layers": 2}, "as saved"),
    "modernbert": ("modernbert", {"norm_bias": True, "global_rope_theta": 30.0, "local_rope_theta": 5.0}, "same"),
    "modernbert, for classes, means": (
        "modernbert_classifier",
        {"classifier_pooling": "mean", "layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2},
        "as saved",
    ),
    "deepseek-v2, groups": (
        "deepseek_v2",
        {
            "topk_method": "group_limited_greedy",
            "n_group": 2,
            "topk_group": 1,
            "q_lora_rank": None,
            "num_hidden_layers": 2,
            "routed_scaling_factor": 1.7,
            "rope_scaling": {
                "type": "yarn",
                "factor": 4.0,
                "mscale": 0.7,
                "mscale_all_dim": 0.7,
                "original_max_position_embeddings": 8,
                "beta_fast": 4.0,
            },
        },
        "as saved",
    ),
    "deepseek-v3": ("deepseek_v3", {"attention_bias": True, "v_head_dim": 10, "num_hidden_layers": 2}, "as saved"),
    "gpt-oss": ("gpt_oss", {"swiglu_limit": 0.5, "num_hidden_layers": 2}, "as saved"),
}
"""For each name a base, changed keys, and which table for logits its file has."""


def greedy(model: Any, case: dict[str, Any]) -> list[list[int]]:
    """The tokens that Transformers adds, to a text of four or to two of the targets."""
    for key in ("eos_token_id", "forced_eos_token_id", "forced_bos_token_id"):
        setattr(model.generation_config, key, None)
    model.generation_config.pad_token_id = 0
    ids = torch.tensor(case["input_ids"])
    mask = torch.tensor(case.get("attention_mask", torch.ones_like(ids).tolist()))
    options = {"do_sample": False, "num_beams": 1, "max_new_tokens": NEW_TOKENS}
    if "decoder_input_ids" in case:
        given = torch.tensor(case["decoder_input_ids"])[:, :2]
        found = model.generate(ids, attention_mask=mask, decoder_input_ids=given, **options)
    else:
        given = ids[:, :4]
        found = model.generate(given, attention_mask=mask[:, :4], **options)
    return found[:, given.shape[1] :].tolist()


def with_tokens(model: Any) -> dict[str, Any]:
    case = draw_configurations.logits_of(model)
    return {**case, "greedy": greedy(model, case)} if model.can_generate() else case


def main() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    cases = []
    for title, (name, changes, head) in NAMED.items():
        case = draw_configurations.understood(draw_configurations.changed(name, changes), head, with_tokens)
        cases.append({"name": title, **case})
    print("[", ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases), "]", sep="\n", file=sys.stdout)


if __name__ == "__main__":
    main()
