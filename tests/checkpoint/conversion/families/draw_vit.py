"""Lets Transformers say what logits small Vision Transformers give for two images.

As draw_encoders.py, in an environment of PyTorch and Transformers:

    cd tests/checkpoint/conversion
    PYTHONPATH=. python families/draw_vit.py > families/drawn_vit.json
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import draw_configurations
import numpy as np
import torch
import transformers
from in_float64 import in_both_precisions

BASE: dict[str, Any] = {
    "architectures": ["ViTForImageClassification"],
    "model_type": "vit",
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "image_size": 12,
    "patch_size": 4,
    "id2label": {"0": "cat", "1": "dog", "2": "tree"},
    "label2id": {"cat": 0, "dog": 1, "tree": 2},
}
NAMED: dict[str, dict[str, Any]] = {
    "vit": {},
    "vit, grey, one patch": {"num_channels": 1, "patch_size": 12, "hidden_act": "relu", "layer_norm_eps": 1e-6},
    "vit, no biases": {"qkv_bias": False},
    "vit, without a head": {"architectures": ["ViTModel"]},
    "vit, sides of two sizes": {"image_size": [12, 8]},
}


def logits_of(model: Any) -> dict[str, Any]:
    sizes = [2, model.config.num_channels, *model.vit.embeddings.image_size]
    images = np.random.RandomState(1).standard_normal(sizes).astype(np.float32).round(3)
    logits, float32_error = in_both_precisions(model, pixel_values=torch.tensor(images))
    return {
        "logits": [[float(f"{x:.8g}") for x in row] for row in logits.tolist()],
        "float32_error": float(f"{float32_error:.3g}"),
        "pixel_values": [float(f"{x:.3f}") for x in images.flatten()],
    }


def main() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    cases = []
    for title, changes in NAMED.items():
        case = draw_configurations.understood(BASE | changes, "as saved", logits_of)
        cases.append({"name": title, **case})
    print("[", ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases), "]", sep="\n", file=sys.stdout)


if __name__ == "__main__":
    main()
