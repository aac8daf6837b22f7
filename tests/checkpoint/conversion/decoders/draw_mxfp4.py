"""Lets Transformers say which numbers blocks of four bits are: every byte, and scales from the smallest to the largest.

In an environment of PyTorch and Transformers:

    python tests/checkpoint/conversion/decoders/draw_mxfp4.py > tests/checkpoint/conversion/decoders/drawn_mxfp4.json
"""

from __future__ import annotations

import json

import torch
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

SCALES = (0, 1, 2, 63, 100, 120, 125, 126, 127, 128, 129, 140, 200, 250, 251, 252)
"""Larger scales give numbers beyond bfloat16's."""


def main() -> None:
    blocks = torch.arange(len(SCALES) * 16).to(torch.uint8).reshape(2, 4, 2, 16)
    scales = torch.tensor(SCALES, dtype=torch.uint8).reshape(2, 4, 2)
    values = convert_moe_packed_tensors(blocks, scales)
    bits = values.contiguous().view(torch.int16).int() & 0xFFFF
    print(json.dumps({"scales": list(SCALES), "shape": list(values.shape), "bits": bits.flatten().tolist()}))


if __name__ == "__main__":
    main()
