"""gpt-oss's configuration, as it is published."""

from __future__ import annotations

from typing import Any

from meshtf.checkpoint.conversion.decoders.gpt_oss import READERS
from meshtf.checkpoint.conversion.family import find_family

PUBLISHED: dict[str, Any] = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_hidden_layers": 24,
    "num_local_experts": 32,
    "eos_token_id": 200002,
    "experts_per_token": 4,
    "hidden_act": "silu",
    "initial_context_length": 4096,
    "output_router_logits": False,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "rope_type": "yarn",
        "truncate": False,
    },
    "rope_theta": 150000,
    "router_aux_loss_coef": 0.9,
    "swiglu_limit": 7.0,
}


def test_the_published_configuration_is_known() -> None:
    family = find_family("huggingface", "gpt_oss")
    family.check_keys(PUBLISHED, (), "config.json")
    model = family.model(PUBLISHED, {}, "config.json")
    assert model.plan is not None
    (segment,) = model.plan.segments
    assert (segment.kinds, segment.repeats) == (("sliding_attention", "full_attention"), 12)
    assert "YarnRotaryScaling.truncate = False" in model.gin
    assert "sliding/SelfAttention.window = 128" in model.gin


def test_rotary_embeddings_are_scaled_where_nothing_is_said() -> None:
    read = READERS["rotary_of_gpt_oss"]
    assert read({}, "here")["rope_parameters"]["factor"] == 32.0
    assert read({"rope_parameters": {}}, "here")["rope_parameters"] == {}
    assert "rope_parameters" not in read({"rope_scaling": {"factor": 2.0}}, "here")
