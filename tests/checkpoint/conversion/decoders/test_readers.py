"""What readers make of keys; that Transformers reads them so, the drawn models show."""

from __future__ import annotations

import math
from typing import Any

import pytest

from meshtf.checkpoint.conversion.decoders.readers import READERS
from meshtf.errors import CheckpointError

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}


def read(name: str, **configuration: Any) -> dict[str, Any]:
    return READERS[name](configuration, "config.json")


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (YARN, 0.1 * math.log(4.0) + 1.0),
        ({**YARN, "factor": None}, 0.1 * math.log(32 / 8) + 1.0),
        ({**YARN, "factor": 0.5}, 1.0),
        ({**YARN, "mscale": 0.7, "mscale_all_dim": 1.1}, (0.07 * math.log(4.0) + 1.0) / (0.11 * math.log(4.0) + 1.0)),
        ({**YARN, "attention_factor": 1.5}, 1.5),
        ({**YARN, "rope_type": "longrope"}, math.sqrt(1.0 + math.log(4.0) / math.log(8))),
        ({**YARN, "rope_type": "longrope", "factor": 1.0}, 1.0),
    ],
)
def test_the_factor_of_attention(table: dict[str, Any], expected: float) -> None:
    found = read("rotary_attention_factor", rope_parameters=table, max_position_embeddings=32)
    assert found["rope_parameters"]["attention_factor"] == pytest.approx(expected)


def test_each_kind_of_layer_has_a_table_of_rotary_embeddings() -> None:
    found = read("rotary_of_gemma3", rope_scaling={"type": "linear", "factor": 8.0}, rope_local_base_freq=50.0)
    assert found["rope_parameters"] == {
        "full_attention": {"type": "linear", "factor": 8.0, "rope_theta": 1e6, "rope_type": "linear"},
        "sliding_attention": {"rope_theta": 50.0, "rope_type": "default"},
    }
    with pytest.raises(
        CheckpointError,
        match="has beta_fast = 2 among the rotary embeddings of full_attention, which these rules do not know",
    ):
        read("rotary_of_olmo3", rope_parameters={"full_attention": {"beta_fast": 2}})
    with pytest.raises(CheckpointError, match="has 'linear' where a table of rotary embeddings should be"):
        read("rotary_of_olmo3", rope_scaling="linear")


def test_kinds_of_layers() -> None:
    assert read("layers_of_smollm3", num_hidden_layers=3, no_rope_layer_interval=2)["layer_kinds"] == [
        "full_attention",
        "full_attention, not rotated",
        "full_attention",
    ]
    with pytest.raises(CheckpointError, match=r"has \[1\] entries of no_rope_layers for 3 layers"):
        read("layers_of_smollm3", num_hidden_layers=3, no_rope_layers=[1])
    sparse = read("sparse_layers", num_hidden_layers=5, decoder_sparse_step=2, mlp_only_layers=[3])["layer_kinds"]
    assert sparse == ["dense", "sparse", "dense", "dense", "dense"]


def test_heads_of_falcon() -> None:
    assert read("falcon_heads", num_attention_heads=4, multi_query=True)["num_key_value_heads"] == 1
    new = read("falcon_heads", num_attention_heads=4, num_kv_heads=2, multi_query=True, new_decoder_architecture=True)
    assert (new["num_key_value_heads"], new["parallel_attn"], new["num_ln_in_parallel_attn"]) == (2, True, 2)
    with pytest.raises(CheckpointError, match="has num_kv_heads = 2 and num_attention_heads = 4; without new_decoder"):
        read("falcon_heads", num_attention_heads=4, num_kv_heads=2, multi_query=False)


def test_a_part_of_a_head_is_rounded_down() -> None:
    part = {"partial_rotary_factor": 0.6}
    found = read("rotary_part", rope_parameters=part, hidden_size=32, num_attention_heads=4)
    assert found["rope_parameters"]["partial_rotary_factor"] == 0.5
    with pytest.raises(CheckpointError, match="rotates 3 of 6 elements of a head"):
        read("rotary_part", rope_parameters=part, head_dim=6)
