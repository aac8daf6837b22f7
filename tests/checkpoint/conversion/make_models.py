"""Makes the tiny models of Hugging Face's Transformers that lie in `models/`, random weights and all.

They are stored, since Transformers needs PyTorch, which is large. To make them anew, in an environment of its own:

    pip install torch transformers
    python tests/checkpoint/conversion/make_models.py [NAME...]

Beside each model lies `expected.json`: ids that were fed, and the logits that Transformers gave.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as hf

MODELS = Path(__file__).parent / "models"
IN_BFLOAT16, IN_SHARDS = ("llama_3_1",), ("gemma",)
_SIZES: dict[str, Any] = {"vocab_size": 20, "bos_token_id": 1, "eos_token_id": 2}
_LLAMA = {
    **_SIZES,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}


def causal_models() -> dict[str, Any]:
    gpt2 = {**_SIZES, "n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2}
    scaled = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 8}
    return {
        "gpt2": hf.GPT2LMHeadModel(hf.GPT2Config(**gpt2)),
        "llama": hf.LlamaForCausalLM(hf.LlamaConfig(**_LLAMA, head_dim=4, num_key_value_heads=2)),
        "llama_3_1": hf.LlamaForCausalLM(
            hf.LlamaConfig(
                **_LLAMA,
                head_dim=4,
                num_key_value_heads=1,
                tie_word_embeddings=True,
                rope_parameters={**scaled, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
            )
        ),
        "mistral": hf.MistralForCausalLM(
            hf.MistralConfig(**_LLAMA, head_dim=4, num_key_value_heads=4, sliding_window=3)
        ),
        "qwen2": hf.Qwen2ForCausalLM(hf.Qwen2Config(**_LLAMA, num_key_value_heads=2)),
        "gemma": hf.GemmaForCausalLM(hf.GemmaConfig(**_LLAMA, head_dim=4, num_key_value_heads=1)),
        "gemma2": hf.Gemma2ForCausalLM(
            hf.Gemma2Config(
                **{**_LLAMA, "num_hidden_layers": 4},
                head_dim=4,
                num_key_value_heads=2,
                sliding_window=3,
                query_pre_attn_scalar=7,
                attn_logit_softcapping=0.5,
                final_logit_softcapping=0.3,
                attn_implementation="eager",
            )
        ),
        "gpt_neo": hf.GPTNeoForCausalLM(
            hf.GPTNeoConfig(
                **_SIZES,
                max_position_embeddings=16,
                hidden_size=8,
                num_layers=2,
                num_heads=2,
                attention_types=[[["global", "local"], 1]],
                window_size=3,
            )
        ),
        "bloom": hf.BloomForCausalLM(hf.BloomConfig(**_SIZES, hidden_size=6, n_layer=1, n_head=3)),
        "gptj": hf.GPTJForCausalLM(
            hf.GPTJConfig(**_SIZES, n_positions=16, n_embd=8, n_layer=2, n_head=2, rotary_dim=2)
        ),
        "gpt_neox": hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**{**_LLAMA, "num_attention_heads": 2}, rotary_pct=0.5)),
    }


def encoder_decoders() -> dict[str, Any]:
    sizes = {
        "vocab_size": 20,
        "d_model": 8,
        "d_kv": 4,
        "d_ff": 12,
        "num_layers": 2,
        "num_decoder_layers": 2,
        "num_heads": 2,
        "relative_attention_num_buckets": 4,
        "relative_attention_max_distance": 6,
        "decoder_start_token_id": 0,
    }
    switch = {**sizes, "d_ff": 8, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "num_experts": 2}
    gated = hf.T5ForConditionalGeneration(
        hf.T5Config(**sizes, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    )
    # As in what is published; the library would tie it to the embedding.
    gated.lm_head.weight = torch.nn.Parameter(gated.lm_head.weight.detach().clone())
    return {
        "t5": hf.T5ForConditionalGeneration(hf.T5Config(**sizes)),
        "t5_1_1": gated,
        "switch_transformers": hf.SwitchTransformersForConditionalGeneration(
            hf.SwitchTransformersConfig(**switch, expert_capacity=64)
        ),
    }


def masked_models() -> dict[str, Any]:
    sizes = {
        "vocab_size": 20,
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 16,
    }
    return {
        "bert": hf.BertForMaskedLM(hf.BertConfig(**sizes)),
        "bert_classifier": hf.BertForSequenceClassification(hf.BertConfig(**sizes, num_labels=3)),
    }


def make(name: str, model: Any, feeds: dict[str, torch.Tensor]) -> None:
    folder = MODELS / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(len(name))
    with torch.no_grad():
        for parameter in model.parameters():  # what starts as 0 or 1 would hide mistakes
            value = 0.4 * torch.randn(parameter.shape)
            parameter.copy_(value.bfloat16() if name in IN_BFLOAT16 else value)
        model.eval()
        logits = model(**feeds).logits
    if name in IN_BFLOAT16:
        model.bfloat16()
    model.save_pretrained(folder, max_shard_size="2KB" if name in IN_SHARDS else "1GB")
    expected = {key: ids.tolist() for key, ids in feeds.items()}
    rounded = np.char.mod("%.6g", logits.numpy()).astype(np.float64).tolist()
    (folder / "expected.json").write_text(json.dumps({**expected, "logits": rounded}) + "\n")


def main(names: list[str]) -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, _SIZES["vocab_size"], [2, 6], generator=generator)
    with_start, inputs = ids.clone(), torch.flip(ids, [1])[:, :5].clone()
    with_start[:, 0], inputs[1, 3:] = _SIZES["bos_token_id"], 0
    decoder_ids = ids.clone()
    decoder_ids[:, 0] = 0
    mask = (inputs != 0).int()
    both = {"input_ids": inputs, "attention_mask": mask, "decoder_input_ids": decoder_ids}
    masked = {"input_ids": inputs, "attention_mask": mask, "token_type_ids": (ids[:, :5] % 2)}
    feeds = [
        *((name, model, {"input_ids": with_start}) for name, model in causal_models().items()),
        *((name, model, both) for name, model in encoder_decoders().items()),
        *((name, model, masked) for name, model in masked_models().items()),
    ]
    for name, model, own in feeds:
        if not names or name in names:
            make(name, model, own)


if __name__ == "__main__":
    main(sys.argv[1:])
