"""Lets PyTorch say what logits a small Vision Transformer with torchvision's names gives.

As draw_encoders.py, in an environment of PyTorch:

    cd tests/checkpoint/conversion
    PYTHONPATH=. python images/draw_torchvision_vit.py > images/drawn_torchvision_vit.json
"""

from __future__ import annotations

import json
import types
from collections import OrderedDict
from typing import Any

import torch
from drawn_tensors import square_images, weights_of
from in_float64 import in_both_precisions
from torch import nn

CONFIGURATION: dict[str, Any] = {
    "architecture": "vit_b_16",
    "image_size": 32,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "mlp_dim": 12,
}
CLASSES, PATCH = 3, 16


class Layer(nn.Module):
    """A layer with the names of torchvision's."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        width, hidden = sizes["hidden_dim"], sizes["mlp_dim"]
        self.ln_1, self.ln_2 = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.self_attention = nn.MultiheadAttention(width, sizes["num_heads"], batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, hidden), nn.GELU(), nn.Dropout(0.0), nn.Linear(hidden, width), nn.Dropout(0.0)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.ln_1(x)
        x = x + self.self_attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """An encoder with the names of torchvision's."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        width = sizes["hidden_dim"]
        self.pos_embedding = nn.Parameter(torch.zeros(1, (sizes["image_size"] // PATCH) ** 2 + 1, width))
        self.layers = nn.Sequential(
            OrderedDict((f"encoder_layer_{number}", Layer(sizes)) for number in range(sizes["num_layers"]))
        )
        self.ln = nn.LayerNorm(width, eps=1e-6)


class Network(nn.Module):
    """A network with the names of torchvision's."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        width = sizes["hidden_dim"]
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.conv_proj = nn.Conv2d(3, width, PATCH, PATCH)
        self.encoder = Encoder(sizes)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(width, CLASSES)))
        self.config = object()

    def forward(self, pixel_values: torch.Tensor) -> types.SimpleNamespace:
        x = self.conv_proj(pixel_values).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.encoder.pos_embedding
        x = self.encoder.ln(self.encoder.layers(x))
        return types.SimpleNamespace(logits=self.heads(x[:, 0]))


def main() -> None:
    model = Network(CONFIGURATION)
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    model.load_state_dict({name: torch.tensor(weights_of(name, shape)) for name, shape in shapes.items()})
    images = torch.tensor(square_images(CONFIGURATION["image_size"]))
    logits, error = in_both_precisions(model.eval(), pixel_values=images)
    case = {
        "config": CONFIGURATION,
        "tensors": shapes,
        "logits": [[float(f"{x:.8g}") for x in row] for row in logits.tolist()],
        "float32_error": float(f"{error:.3g}"),
    }
    print(json.dumps(case, separators=(",", ":")))


if __name__ == "__main__":
    main()
