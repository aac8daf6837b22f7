"""The configurations of DeepSeek-V2 and V3, as they are published and as they may be wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest

from meshtf.checkpoint.conversion.family import find_family
from meshtf.errors import CheckpointError

_YARN = {"beta_fast": 32, "beta_slow": 1, "factor": 40, "original_max_position_embeddings": 4096, "type": "yarn"}
PUBLISHED: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "vocab_size": 129280,
    "hidden_size": 7168,
    "aux_loss_alpha": 0.001,
    "auto_map": {},
    "ep_size": 1,
    "max_position_embeddings": 163840,
    "moe_layer_freq": 1,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "num_nextn_predict_layers": 1,
    "rope_scaling": {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    "scoring_func": "sigmoid",
    "seq_aux": True,
    "topk_method": "noaux_tc",
}


def read(**changed: Any) -> Any:
    configuration = {**PUBLISHED, **changed}
    family = find_family("huggingface", configuration["model_type"])
    family.check_keys(configuration, (), "config.json")
    return family.model(configuration, {}, "config.json")


def test_the_published_configuration_is_known() -> None:
    model = read()
    assert [(s.kinds, s.repeats) for s in model.plan.segments] == [(("dense",) * 3, 1), (("sparse",), 58)]
    # mscale = 0.1 log(40) + 1 counts twice in the scale, and not at all in cosines, where it is divided by itself
    assert model.settings["query_scale"] == pytest.approx(192**-0.5 * (0.1 * math.log(40) + 1.0) ** 2)
    assert model.settings["attention_factor"] == 1.0
    assert model.settings["d_shared"] == 2048


def test_layers_of_v2_have_one_group_unless_it_is_limited() -> None:
    v2 = {"model_type": "deepseek_v2", "scoring_func": "softmax", "topk_method": "greedy", "num_experts_per_tok": 6}
    v2 |= {"num_nextn_predict_layers": None}
    assert read(**v2, n_group=8, topk_group=3).settings["num_groups"] == 1
    limited = {**v2, "topk_method": "group_limited_greedy"}
    assert read(**limited, n_group=8, topk_group=3).settings["num_chosen_groups"] == 3
    with pytest.raises(CheckpointError, match="n_group = None and topk_group = None; both must be numbers of groups"):
        read(**limited)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"num_key_value_heads": 8},
            "has num_key_value_heads = 8 and num_attention_heads = 128; each head has keys of",
        ),
        ({"head_dim": 128}, "has head_dim = 128, and qk_rope_head_dim = 64; Transformers rotates by head_dim"),
        (
            {"scoring_func": "softmax"},
            "has scoring_func = 'softmax'; models of these rules, deepseek_v3, have 'sigmoid'",
        ),
        (
            {"quantization_config": {"quant_method": "fp8"}},
            "has quantization_config.quant_method = 'fp8', which the rules deepseek_v3.toml do not know",
        ),
    ],
)
def test_other_models_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(**changed)
