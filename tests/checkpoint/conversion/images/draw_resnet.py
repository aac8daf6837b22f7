"""Lets PyTorch say what logits small residual networks give: Transformers' models, and one with torchvision's names.

As draw_encoders.py, in an environment of PyTorch and Transformers:

    cd tests/checkpoint/conversion
    PYTHONPATH=. python images/draw_resnet.py > images/drawn_resnet.json
"""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import torch
import transformers
from drawn_tensors import images_of, weights_of
from in_float64 import in_both_precisions
from torch import nn

BASE: dict[str, Any] = {
    "architectures": ["ResNetForImageClassification"],
    "model_type": "resnet",
    "embedding_size": 4,
    "hidden_sizes": [16, 32, 64, 128],
    "depths": [2, 1, 1, 1],
    "id2label": {"0": "cat", "1": "dog", "2": "tree"},
    "label2id": {"cat": 0, "dog": 1, "tree": 2},
}
BASIC = {"layer_type": "basic", "hidden_sizes": [4, 8, 16, 32], "depths": [1, 1, 2, 1]}
NAMED: dict[str, dict[str, Any]] = {
    "bottleneck": {},
    "bottleneck, version 1": {"downsample_in_bottleneck": True},
    "basic, grey": {**BASIC, "num_channels": 1},
}
ARCHITECTURES = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}
WIDTH, CLASSES = 2, 3


class Block(nn.Module):
    """A block with the names of torchvision's."""

    def __init__(self, given: int, width: int, stride: int, factor: int) -> None:
        super().__init__()
        sizes = [(given, width, 3, stride), (width, width, 3, 1)]
        if factor == 4:
            sizes = [(given, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)]
        self.count = len(sizes)
        for number, (inputs, outputs, side, step) in enumerate(sizes, 1):
            setattr(self, f"conv{number}", nn.Conv2d(inputs, outputs, side, step, side // 2, bias=False))
            setattr(self, f"bn{number}", nn.BatchNorm2d(outputs))
        outer = factor * width
        if stride != 1 or given != outer:
            self.downsample = nn.Sequential(nn.Conv2d(given, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for number in range(1, self.count + 1):
            y = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(y))
            y = torch.relu(y) if number < self.count else y
        return torch.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class Network(nn.Module):
    """A network with the names of torchvision's."""

    def __init__(self, depths: tuple[int, ...], factor: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False), nn.BatchNorm2d(WIDTH)
        given = WIDTH
        for stage, depth in enumerate(depths):
            blocks = []
            for block in range(depth):
                blocks.append(Block(given, WIDTH * 2**stage, 2 if stage and not block else 1, factor))
                given = factor * WIDTH * 2**stage
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(given, CLASSES)
        self.config = object()

    def forward(self, pixel_values: torch.Tensor) -> types.SimpleNamespace:
        x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(pixel_values))), 3, 2, 1)
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return types.SimpleNamespace(logits=self.fc(x.mean((2, 3))))


def understood(configuration: dict[str, Any], model: nn.Module, channels: int) -> dict[str, Any]:
    """The case of a model whose weights are drawn."""
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    drawn = {name: torch.tensor(weights_of(name, shape)) for name, shape in shapes.items()}
    model.load_state_dict(drawn)
    logits, error = in_both_precisions(model.eval(), pixel_values=torch.tensor(images_of(channels)))
    return {
        "config": configuration,
        "tensors": shapes,
        "logits": [[float(f"{x:.8g}") for x in row] for row in logits.tolist()],
        "float32_error": float(f"{error:.3g}"),
    }


def main() -> None:
    cases = []
    for title, changes in NAMED.items():
        configuration = BASE | changes
        parsed = transformers.ResNetConfig(**configuration)
        model = transformers.ResNetForImageClassification(parsed)
        cases.append({"name": title, **understood(configuration, model, parsed.num_channels)})
    for architecture, depths in ARCHITECTURES.items():
        model = Network(depths, 4 if architecture == "resnet50" else 1)
        cases.append({"name": architecture, **understood({"architecture": architecture}, model, 3)})
    print("[", ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases), "]", sep="\n", file=sys.stdout)


if __name__ == "__main__":
    main()
