"""Opens folders that meshtf exported in Transformers, and compares logits with those of the stored models.

Not a test, since it needs PyTorch, which is large; in an environment that has it, with meshtf installed elsewhere:

    for name in gpt2 llama; do
      meshtf-checkpoint import tests/checkpoint/conversion/models/$name imported/$name
      meshtf-checkpoint export imported/$name exported/$name
    done
    python tests/checkpoint/conversion/open_exported.py exported/*
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import transformers

MODELS = Path(__file__).parent / "models"


def main(folders: list[str]) -> None:
    for folder in map(Path, folders):
        kind = json.loads((folder / "config.json").read_text())["architectures"][0]
        model = getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32).eval()
        known = json.loads((MODELS / folder.name / "expected.json").read_text())
        logits = torch.tensor(known.pop("logits"))
        with torch.no_grad():
            found = model(**{name: torch.tensor(ids) for name, ids in known.items()}).logits
        print(f"{folder}: {kind}, largest difference {(found - logits).abs().max():.2g}")


if __name__ == "__main__":
    main(sys.argv[1:])
