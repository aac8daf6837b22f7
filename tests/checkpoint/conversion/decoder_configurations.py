"""Configurations of decoders from which `draw_configurations.py` draws others, key by key."""

from __future__ import annotations

from typing import Any

ABSENT = "absent"
_SIZES: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 8}


def _of(model_type: str, architecture: str, **own: Any) -> dict[str, Any]:
    known = {**_SIZES, **own, "model_type": model_type, "architectures": [architecture]}
    return {key: value for key, value in known.items() if value != ABSENT}


_LATENTS = {
    "q_lora_rank": 6,
    "kv_lora_rank": 6,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 4,
    "v_head_dim": 3,
    "moe_intermediate_size": 8,
    "num_key_value_heads": 4,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "qwen3": _of("qwen3", "Qwen3ForCausalLM", head_dim=6),
    "qwen3_moe": _of("qwen3_moe", "Qwen3MoeForCausalLM", head_dim=4, mlp_only_layers=[0], **_EXPERTS),
    "mixtral": _of("mixtral", "MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2),
    "gemma3_text": _of(
        "gemma3_text",
        "Gemma3ForCausalLM",
        head_dim=4,
        num_hidden_layers=5,
        sliding_window=3,
        query_pre_attn_scalar=7,
        hidden_act=ABSENT,
        sliding_window_pattern=2,
    ),
    "phi3": _of("phi3", "Phi3ForCausalLM", partial_rotary_factor=0.5, hidden_size=16),
    "falcon": _of(
        "falcon",
        "FalconForCausalLM",
        num_key_value_heads=ABSENT,
        intermediate_size=ABSENT,
        rms_norm_eps=ABSENT,
        hidden_act=ABSENT,
        num_kv_heads=2,
        new_decoder_architecture=True,
        ffn_hidden_size=12,
    ),
    "olmo2": _of("olmo2", "Olmo2ForCausalLM"),
    "olmo3": _of("olmo3", "Olmo3ForCausalLM", num_hidden_layers=5, sliding_window=3, head_dim=4),
    "stablelm": _of("stablelm", "StableLmForCausalLM", hidden_size=16, rms_norm_eps=ABSENT, partial_rotary_factor=0.5),
    "phi": _of("phi", "PhiForCausalLM", hidden_size=16, rms_norm_eps=ABSENT, hidden_act="gelu_new"),
    "starcoder2": _of("starcoder2", "Starcoder2ForCausalLM", rms_norm_eps=ABSENT, hidden_act="gelu"),
    "granite": _of("granite", "GraniteForCausalLM", embedding_multiplier=3.0, logits_scaling=2.5),
    "smollm3": _of("smollm3", "SmolLM3ForCausalLM", num_hidden_layers=5),
    "deepseek_v2": _of("deepseek_v2", "DeepseekV2ForCausalLM", n_routed_experts=4, **_LATENTS),
    "deepseek_v3": _of("deepseek_v3", "DeepseekV3ForCausalLM", n_routed_experts=8, n_group=4, topk_group=2, **_LATENTS),
    "gpt_oss": _of(
        "gpt_oss",
        "GptOssForCausalLM",
        head_dim=4,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=3,
        num_hidden_layers=4,
    ),
}

ACTIVATIONS = ["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh", None, ABSENT]
_YARN = {"rope_type": "yarn", "factor": 4.0}
_LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 5.0]}
ROPE = [
    {"rope_type": "default", "rope_theta": 50.0},
    {"type": "linear", "factor": 2.0},
    {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 100.0},
    {"type": "dynamic", "factor": 4.0},
    {**_YARN, "rope_theta": 100.0},
    {**_YARN, "original_max_position_embeddings": 8, "beta_fast": 4.0, "beta_slow": 0.5},
    {**_YARN, "original_max_position_embeddings": 16, "truncate": False, "attention_factor": 1.3},
    {**_YARN, "mscale": 0.7, "mscale_all_dim": 1.1, "original_max_position_embeddings": 64, "beta_fast": 2.0},
    {**_YARN, "mscale": 0.7, "factor": None, "original_max_position_embeddings": 4},
    {"type": "yarn", "factor": 0.5, "beta_slow": None, "truncate": None},
    {**_LONG, "original_max_position_embeddings": 4},
    {**_LONG, "original_max_position_embeddings": 16, "factor": 8.0},
    {**_LONG, "attention_factor": 0.8, "rope_theta": 40.0},
    {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]},
    {"full_attention": {"rope_type": "default", "rope_theta": 20.0}},
    {"rope_theta": 20.0},
    {"factor": 2.0},
    {},
    None,
    ABSENT,
]
_KINDS = {"s": "sliding_attention", "f": "full_attention"}


def patterns(*texts: str) -> list[Any]:
    return [[_KINDS[kind] for kind in text] for text in texts]


_COMMON: dict[str, list[Any]] = {
    "bos_token_id": [None, ABSENT, 5],
    "eos_token_id": [None, ABSENT, 3, [3, 4]],
    "pad_token_id": [None, ABSENT, 19],
    "is_causal": [False, True, None],
    "tie_word_embeddings": [True, False, ABSENT, None],
    "num_hidden_layers": [1, 2, 4],
    "rms_norm_eps": [1e-3, ABSENT],
    "hidden_act": ACTIVATIONS,
    "num_key_value_heads": [None, ABSENT, 1, 2, 4],
    "head_dim": [None, ABSENT, 2, 4, 6],
    "attention_bias": [True, False, None],
    "attention_dropout": [0.3],
    "mlp_bias": [True, False],
    "unheard_of": [1],
}
ROTARY: dict[str, list[Any]] = {
    "rope_parameters": ROPE,
    "rope_scaling": ROPE,
    "rope_theta": [30.0, 200, ABSENT],
    "original_max_position_embeddings": [4, 16],
    "max_position_embeddings": [4, 64, ABSENT],
    "partial_rotary_factor": [1.0, 0.5],
}
_WINDOWS: dict[str, list[Any]] = {
    "sliding_window": [2, 3, None, ABSENT],
    "use_sliding_window": [True, True, False],
    "max_window_layers": [0, 1, 2, None],
    "layer_types": [*patterns("fff", "ffs", "sfs", "sss", "ff"), None],
}
_SPARSE: dict[str, list[Any]] = {
    "num_experts": [4, 6, ABSENT],
    "num_local_experts": [4, 6],
    "num_experts_per_tok": [1, 2, 3, ABSENT],
    "norm_topk_prob": [True, False, None],
    "router_aux_loss_coef": [0.0, 0.5],
    "output_router_logits": [False],
}
QWEN = {**_COMMON, **ROTARY, **_WINDOWS}
KEYS: dict[str, dict[str, list[Any]]] = {
    "qwen3": QWEN,
    "qwen3_moe": {
        **QWEN,
        **_SPARSE,
        "mlp_only_layers": [[], [0], [1], [0, 2], None, ABSENT],
        "decoder_sparse_step": [1, 2, 3],
        "moe_intermediate_size": [4, ABSENT],
    },
    "mixtral": {**_COMMON, **ROTARY, **_WINDOWS, **_SPARSE, "router_jitter_noise": [0.1]},
    "gemma3_text": {
        **_COMMON,
        "head_dim": [2, 4, 6],  # of 256, as if absent, logits of attention are so large that float32 is not enough
        **ROTARY,
        **_WINDOWS,
        "hidden_activation": ACTIVATIONS,
        "hidden_act": ["relu", None],
        "layer_types": [*patterns("sssss", "fffff", "sfsfs", "ssfss", "fsffs", "ssssf"), ABSENT, None],
        "sliding_window_pattern": [2, 3, 6, ABSENT],
        "_sliding_window_pattern": [2, 4],
        "rope_local_base_freq": [20.0, ABSENT],
        "rope_parameters": [
            *ROPE,
            {"full_attention": {"rope_theta": 30.0}, "sliding_attention": {"rope_theta": 5.0, "rope_type": "default"}},
            {"sliding_attention": {"rope_type": "linear", "factor": 3.0}},
            {"full_attention": {"type": "linear", "factor": 3.0}, "sliding_attention": None},
        ],
        "attn_logit_softcapping": [None, ABSENT, 0.4],
        "final_logit_softcapping": [None, ABSENT, 0.4],
        "query_pre_attn_scalar": [3, ABSENT],
        "use_bidirectional_attention": [True, False, None],
    },
    "phi3": {
        **_COMMON,
        **ROTARY,
        "sliding_window": [2, None, ABSENT],
        "rope_scaling": [*ROPE, {**_LONG, "type": "su", "rope_type": None}, {**_LONG, "rope_type": "yarn"}],
        "partial_rotary_factor": [1.0, 0.5, 0.75, 0.3, ABSENT],
        "resid_pdrop": [0.1],
        "embd_pdrop": [0.1],
    },
    "falcon": {
        **_COMMON,
        **ROTARY,
        "new_decoder_architecture": [True, False, ABSENT],
        "multi_query": [True, False, ABSENT],
        "parallel_attn": [True, False, None],
        "num_ln_in_parallel_attn": [1, 2, None],
        "bias": [True, False, None],
        "alibi": [True, False],
        "num_kv_heads": [1, 2, 4, None, ABSENT],
        "ffn_hidden_size": [None, ABSENT, 10],
        "layer_norm_epsilon": [1e-3, ABSENT],
        "activation": ACTIVATIONS,
        "n_embed": [12],
        "num_key_value_heads": [1, 2],
        "hidden_dropout": [0.1],
        "apply_residual_connection_post_layernorm": [True, False],
    },
    "olmo2": {**_COMMON, **ROTARY, "layer_types": _WINDOWS["layer_types"]},
    "olmo3": {
        **_COMMON,
        **ROTARY,
        "sliding_window": [2, None, ABSENT],
        "layer_types": [*patterns("sssss", "fffff", "sfsfs", "ssfss", "fsffs"), ABSENT, None],
        "rope_local_base_freq": [20.0],
        "rope_parameters": [
            *ROPE,
            {"full_attention": {**_YARN, "rope_theta": 30.0}, "sliding_attention": {"rope_theta": 5.0}},
            {"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "linear", "factor": 3.0}},
        ],
        "rope_scaling": [*ROPE, {**_YARN, "attention_factor": 1.2, "beta_fast": 4.0}],
    },
    "stablelm": {
        **_COMMON,
        **ROTARY,
        "partial_rotary_factor": [1.0, 0.5, 0.25, 0.8, ABSENT],
        "use_qkv_bias": [True, False, None],
        "qk_layernorm": [True, False],
        "use_parallel_residual": [True, False, ABSENT],
        "layer_norm_eps": [1e-3, ABSENT],
        "hidden_dropout": [0.1],
    },
    "phi": {
        **_COMMON,
        **ROTARY,
        "partial_rotary_factor": [1.0, 0.5, 0.25, 0.8, ABSENT],
        "qk_layernorm": [True, True, False],
        "layer_norm_eps": [1e-3, ABSENT],
        "resid_pdrop": [0.1],
    },
    "starcoder2": {
        **_COMMON,
        **ROTARY,
        "use_bias": [True, False, ABSENT],
        "norm_epsilon": [1e-3, ABSENT],
        "sliding_window": [2, None, ABSENT],
        "layer_types": _WINDOWS["layer_types"],
        "residual_dropout": [0.1],
    },
    "granite": {
        **_COMMON,
        **ROTARY,
        "embedding_multiplier": [2, 0.3, ABSENT, None],
        "attention_multiplier": [0.5, 1, ABSENT],
        "residual_multiplier": [0.5, 1, ABSENT],
        "logits_scaling": [4, 0.5, ABSENT],
    },
    "smollm3": {
        **_COMMON,
        **ROTARY,
        **_WINDOWS,
        "layer_types": [*patterns("sssss", "fffff", "sfsfs", "fsffs"), ABSENT, None],
        "no_rope_layers": [[1, 0, 1, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0], [1], [], None, ABSENT],
        "no_rope_layer_interval": [2, 3, ABSENT],
    },
}

_LATENT_KEYS: dict[str, list[Any]] = {
    **_COMMON,
    **ROTARY,
    "num_key_value_heads": [None, ABSENT, 1, 4],
    "head_dim": [None, ABSENT, 2, 4],
    "q_lora_rank": [None, None, 3],
    "kv_lora_rank": [4, 8],
    "qk_nope_head_dim": [2, 6],
    "qk_rope_head_dim": [2, 4],
    "v_head_dim": [2, 8, 11],
    "qk_head_dim": [8, 6],
    "n_routed_experts": [4, 8, 6],
    "n_shared_experts": [1, 2, 3, 0, None],
    "moe_intermediate_size": [4, 12],
    "num_experts_per_tok": [1, 3, 4, 6, None],
    "first_k_dense_replace": [0, 1, 2, 3, 5, ABSENT],
    "n_group": [2, 4, 1, None, 8],
    "topk_group": [1, 2, 4, None],
    "norm_topk_prob": [True, False, None],
    "routed_scaling_factor": [1.0, 1.7, ABSENT],
    "output_router_logits": [False],
    "moe_layer_freq": [1],
    "rope_parameters": [*ROPE, {**_YARN, "mscale": 0.7, "mscale_all_dim": 0.7, "original_max_position_embeddings": 8}],
    "rope_scaling": [*ROPE, {"type": "linear", "factor": 3.0, "mscale_all_dim": 0.5}],
}
KEYS |= {
    "deepseek_v2": {
        **_LATENT_KEYS,
        "topk_method": ["greedy", "group_limited_greedy", "group_limited_greedy", "noaux_tc", ABSENT],
        "scoring_func": ["softmax", "sigmoid"],
        "num_experts": [4, 8],
    },
    "deepseek_v3": {
        **_LATENT_KEYS,
        "rope_interleave": [True, False, None],
        "topk_method": ["noaux_tc", "greedy"],
        "scoring_func": ["softmax", "sigmoid"],
        "num_local_experts": [4, 8],
        "num_mtp_layers": [0, 1],
        "num_nextn_predict_layers": [0, 2],
    },
    "gpt_oss": {
        **_COMMON,
        **ROTARY,
        "head_dim": [2, 4, 6, None],
        "num_local_experts": [3, 6],
        "num_experts": [3, 6],
        "num_experts_per_tok": [1, 3],
        "experts_per_token": [3],
        "sliding_window": [2, 5, None, ABSENT],
        "layer_types": [*patterns("sfsf", "ffff", "sssf", "ssss", "sf"), ABSENT, None],
        "swiglu_alpha": [1.0, ABSENT, None],
        "swiglu_limit": [0.5, 1.0, ABSENT],
        "hidden_act": ["relu", "silu"],
        "router_aux_loss_coef": [0.0, 0.9],
        "output_router_logits": [False],
        "initial_context_length": [4096, 16],
        "use_sliding_window": [True, False],
        "rope_parameters": [*ROPE, {**_YARN, "truncate": False, "original_max_position_embeddings": 8}],
        "quantization_config": [{"quant_method": "mxfp4"}],
    },
}

# name: (configuration, changed keys, which table for logits its file has)
NAMED: dict[str, tuple[str, dict[str, Any], str]] = {
    "qwen 3, ffs": (
        "qwen3",
        {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2, "attention_bias": True},
        "as saved",
    ),
    "qwen 3 with experts, one layer without": ("qwen3_moe", {"norm_topk_prob": True}, "as saved"),
    "mixtral, a window": ("mixtral", {"sliding_window": 3, "num_experts_per_tok": 3}, "as saved"),
    "gemma 3, sfsfs, scaled": (
        "gemma3_text",
        {"rope_scaling": {"rope_type": "linear", "factor": 4.0}, "rope_theta": 90.0, "rope_local_base_freq": 20.0},
        "as saved",
    ),
    "gemma 3, ssfss, capped": (
        "gemma3_text",
        {"layer_types": patterns("ssfss")[0], "final_logit_softcapping": 0.4, "attention_bias": True},
        "as saved",
    ),
    "gemma 3, sees both ways": ("gemma3_text", {"use_bidirectional_attention": True}, "as saved"),
    "phi 3, longrope, long": (
        "phi3",
        {
            "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [3.0]},
            "original_max_position_embeddings": 4,
        },
        "as saved",
    ),
    "phi 3, longrope, short": (
        "phi3",
        {
            "rope_parameters": {
                **_LONG,
                "rope_type": "su",
                "attention_factor": 1.2,
                "original_max_position_embeddings": 16,
            },
            "partial_rotary_factor": 1.0,
            "num_key_value_heads": 1,
        },
        "as saved",
    ),
    "falcon 40b": ("falcon", {"bias": True}, "as saved"),
    "falcon 7b": ("falcon", {"new_decoder_architecture": False, "num_kv_heads": ABSENT}, "other"),
    "falcon rw, alibi": (
        "falcon",
        {"new_decoder_architecture": False, "multi_query": False, "num_kv_heads": ABSENT, "alibi": True},
        "as saved",
    ),
    "olmo 2": ("olmo2", {}, "as saved"),
    "olmo 3, sssfs, yarn": (
        "olmo3",
        {"rope_scaling": {**_YARN, "original_max_position_embeddings": 16, "beta_fast": 4.0}},
        "as saved",
    ),
    "stablelm, side by side": ("stablelm", {"use_parallel_residual": True, "use_qkv_bias": True}, "as saved"),
    "stablelm, norms of queries": ("stablelm", {"qk_layernorm": True}, "as saved"),
    "phi, tied, norms of queries": ("phi", {"qk_layernorm": True, "tie_word_embeddings": True}, "as saved"),
    "starcoder 2": ("starcoder2", {"sliding_window": 2}, "as saved"),
    "granite": ("granite", {"attention_multiplier": 0.3, "residual_multiplier": 0.4, "mlp_bias": True}, "as saved"),
    "smollm 3, rrrnr": ("smollm3", {"attention_bias": True}, "as saved"),
    "llama, yarn": (
        "llama",
        {"rope_parameters": {**_YARN, "rope_theta": 50.0, "original_max_position_embeddings": 16, "mscale": 0.7}},
        "as saved",
    ),
    "llama, dynamic, long": (
        "llama",
        {"rope_parameters": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 4},
        "as saved",
    ),
    "llama, longrope": ("llama", {"rope_parameters": {**_LONG, "original_max_position_embeddings": 4}}, "as saved"),
}
