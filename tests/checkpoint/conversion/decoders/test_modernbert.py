"""ModernBERT's configuration, as its first release and Transformers 5 write it."""

from __future__ import annotations

from typing import Any

from meshtf.checkpoint.conversion.decoders.modernbert import READERS
from meshtf.checkpoint.conversion.family import find_family

PUBLISHED: dict[str, Any] = {
    "model_type": "modernbert",
    "architectures": ["ModernBertForMaskedLM"],
    "classifier_pooling": "mean",
    "cls_token_id": 50281,
    "deterministic_flash_attn": False,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "initializer_cutoff_factor": 2.0,
    "layer_norm_eps": 1e-05,
    "local_attention": 128,
    "local_rope_theta": 10000.0,
    "num_hidden_layers": 22,
    "position_embedding_type": "absolute",
}


def test_the_published_configuration_is_known() -> None:
    family = find_family("huggingface", "modernbert")
    family.check_keys(PUBLISHED, (), "config.json")
    model = family.model(PUBLISHED, {}, "config.json")
    assert model.plan is not None
    first, rest = model.plan.segments
    assert (first.kinds, first.repeats) == (("first full_attention",), 1)
    assert (rest.kinds, rest.repeats) == (("sliding_attention", "sliding_attention", "full_attention"), 7)
    assert model.settings["window_size"] == 65  # 64 to each side, and the token itself
    assert "MaskedLM.stack = @ChainedStacks()" in model.gin
    assert "Rotary.base = 160000.0" in model.gin


def test_tables_of_rotary_embeddings() -> None:
    read = READERS["rotary_of_modernbert"]
    scaled = {"rope_type": "linear", "factor": 2.0}
    both = read({"rope_scaling": scaled, "local_rope_theta": 5.0}, "here")["rope_parameters"]
    assert both == {
        "full_attention": {**scaled, "rope_theta": 160000.0},
        "sliding_attention": {**scaled, "rope_theta": 5.0},
    }
    by_type = read({"rope_scaling": {"type": "linear", "factor": 2.0}}, "here")["rope_parameters"]
    assert by_type["full_attention"]["rope_type"] == "default"


def test_a_window_is_half_of_what_is_said() -> None:
    found = READERS["layers_of_modernbert"]({"num_hidden_layers": 2, "local_attention": 5}, "here")
    assert found["layer_kinds"] == ["first full_attention", "full_attention"]
    assert found["window"] == 3
